#include <ATen/ops/empty.h>

#include <memory>

#include "data/synthetic_pictures.h"
#include "tandem/data/cifar10.h"

namespace tandem::data {

Dataset synthetic_cifar10(Split split, std::int64_t examples, std::uint64_t seed) {
  const auto pictures =
      std::make_shared<const internal::SyntheticPictures>(internal::kSyntheticCifar10, split, seed);
  return Dataset::from_function(examples, [pictures](std::int64_t index) {
    const auto [channels, side] = pictures->shape();
    Batch example{at::empty({channels, side, side}, at::kByte), at::empty({}, at::kLong)};
    pictures->draw(index, example.x.tensor().data_ptr<std::uint8_t>());
    *example.y.tensor().data_ptr<std::int64_t>() = pictures->label(index);
    return example;
  });
}

}  // namespace tandem::data
