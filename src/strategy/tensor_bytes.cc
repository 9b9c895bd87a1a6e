#include "strategy/tensor_bytes.h"

#include <torch/torch.h>

namespace tandem::internal {
namespace {

constexpr std::int64_t kAlignment = 64;

std::int64_t aligned(std::size_t bytes) {
  return (static_cast<std::int64_t>(bytes) + kAlignment - 1) / kAlignment * kAlignment;
}

}  // namespace

at::Tensor to_bytes(const std::vector<at::Tensor>& tensors) {
  std::int64_t size = 0;
  for (const at::Tensor& tensor : tensors) size += aligned(tensor.nbytes());
  const at::Tensor bytes = at::zeros({size}, at::kByte);
  const std::vector<at::Tensor> places = from_bytes(bytes, tensors);
  for (std::size_t i = 0; i < tensors.size(); ++i) places[i].copy_(tensors[i].detach());
  return bytes;
}

std::vector<at::Tensor> from_bytes(const at::Tensor& bytes, const std::vector<at::Tensor>& like) {
  std::vector<at::Tensor> tensors;
  std::int64_t at = 0;
  for (const at::Tensor& one : like) {
    const auto size = static_cast<std::int64_t>(one.nbytes());
    tensors.push_back(bytes.slice(0, at, at + size).view(one.scalar_type()).view(one.sizes()));
    at += aligned(one.nbytes());
  }
  return tensors;
}

}  // namespace tandem::internal
