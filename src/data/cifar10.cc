#include "tandem/data/cifar10.h"

#include <ATen/ops/empty.h>

#include "data/cifar10_files.h"

namespace tandem::data {

Dataset cifar10(const std::string& dir, Split split) {
  const internal::Cifar10Files files(dir, split);
  const at::Tensor images = at::empty({files.records(), 3, 32, 32}, at::kByte);
  const at::Tensor labels = at::empty({files.records()}, at::kLong);
  files.read(images.data_ptr<std::uint8_t>(), labels.data_ptr<std::int64_t>());
  return Dataset::from_tensors(images, labels);
}

}  // namespace tandem::data
