#include "tandem/data/mnist.h"

#include <ATen/ops/empty.h>
#include <fmt/format.h>

#include <cstring>

#include "data/idx_file.h"
#include "tandem/error.h"

namespace tandem::data {
namespace {

constexpr int kClasses = 10;

at::Tensor to_labels(const internal::IdxFile& file) {
  at::Tensor labels = at::empty({file.sizes[0]}, at::kLong);
  auto* out = labels.data_ptr<std::int64_t>();
  for (std::int64_t i = 0; i < file.sizes[0]; ++i) {
    if (file.values[i] >= kClasses) {
      throw DataLoss(fmt::format("{}: label {} at byte {}: expected 0 to {}", file.path.string(),
                                 file.values[i], internal::idx_header_bytes(1) + i, kClasses - 1));
    }
    out[i] = file.values[i];
  }
  return labels;
}

}  // namespace

Dataset mnist(const std::string& dir, Split split) {
  const std::string prefix = split == Split::kTrain ? "train" : "t10k";
  const auto labels = internal::read_idx_file(dir, prefix + "-labels-idx1-ubyte", 1);
  const auto images = internal::read_idx_file(dir, prefix + "-images-idx3-ubyte", 3);
  if (images.sizes[0] != labels.sizes[0]) {
    throw DataLoss(fmt::format("{}: {} images at byte 4: expected {}, the number of labels in {}",
                               images.path.string(), images.sizes[0], labels.sizes[0], labels.path.string()));
  }
  const at::Tensor pixels = at::empty({images.sizes[0], 1, images.sizes[1], images.sizes[2]}, at::kByte);
  std::memcpy(pixels.data_ptr(), images.values.data(), images.values.size());
  return Dataset::from_tensors(pixels, to_labels(labels));
}

std::string fashion_mnist_dir() {
  return "/usr/share/datasets/fashion-mnist";
}

Batch prepare_mnist(Batch example) {
  const at::Tensor in = example.x.tensor().contiguous();
  if (in.scalar_type() != at::kByte) {
    throw InvalidArgument(
        fmt::format("prepare_mnist: expected pixels of type Byte, got {}", c10::toString(in.scalar_type())));
  }
  at::Tensor out = at::empty(in.sizes(), at::kFloat);
  const std::uint8_t* from = in.data_ptr<std::uint8_t>();
  float* to = out.data_ptr<float>();
  for (std::int64_t i = 0; i < in.numel(); ++i) to[i] = static_cast<float>(from[i]) / 255;
  example.x = std::move(out);
  return example;
}

}  // namespace tandem::data
