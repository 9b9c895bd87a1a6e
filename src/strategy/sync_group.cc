#include "strategy/sync_group.h"

#include <fmt/format.h>
#include <torch/torch.h>

#include <algorithm>
#include <cstring>

#include "tandem/error.h"

namespace tandem::internal {
namespace {

constexpr std::int64_t kMostDims = 8;

ElementType element_type(at::ScalarType dtype) {
  switch (dtype) {
    case at::kByte:
      return ElementType::kUint8;
    case at::kInt:
      return ElementType::kInt32;
    case at::kLong:
      return ElementType::kInt64;
    case at::kFloat:
      return ElementType::kFloat32;
    case at::kDouble:
      return ElementType::kFloat64;
    case at::kBFloat16:
      return ElementType::kBfloat16;
    default:
      throw InvalidArgument(fmt::format("tensors of {} cannot be summed over tasks", c10::toString(dtype)));
  }
}

Elements elements_of(const at::Tensor& tensor) {
  return {tensor.data_ptr(), tensor.numel(), element_type(tensor.scalar_type())};
}

Elements bytes_of(const at::Tensor& tensor) {
  return {tensor.data_ptr(), static_cast<std::int64_t>(tensor.nbytes()), ElementType::kUint8};
}

at::Tensor tensor_of(const std::string& text) {
  const at::Tensor bytes = at::empty({static_cast<std::int64_t>(text.size())}, at::kByte);
  if (!text.empty()) std::memcpy(bytes.data_ptr(), text.data(), text.size());
  return bytes;
}

std::string text_of(const at::Tensor& bytes) {
  return std::string(static_cast<const char*>(bytes.data_ptr()), bytes.nbytes());
}

bool lies_on_host(const at::Tensor& tensor) {
  return tensor.is_cpu() && tensor.is_contiguous();
}

}  // namespace

at::ScalarType wire_dtype(at::ScalarType dtype) {
  switch (dtype) {
    case at::kHalf:
      return at::kFloat;
    case at::kBool:
    case at::kChar:
    case at::kShort:
      return at::kInt;
    default:
      return dtype;
  }
}

void SyncGroup::all_reduce(const std::string& name, const at::Tensor& tensor) {
  if (tensor.numel() == 0) return;
  const torch::NoGradGuard no_grad;
  const at::ScalarType dtype = wire_dtype(tensor.scalar_type());
  if (lies_on_host(tensor) && dtype == tensor.scalar_type()) {
    group_->run([&] { communicator().all_reduce(name, elements_of(tensor)); });
    return;
  }
  const at::Tensor host = tensor.to(at::kCPU, dtype).contiguous();
  group_->run([&] { communicator().all_reduce(name, elements_of(host)); });
  tensor.copy_(host);
}

Pending SyncGroup::all_reduce_async(const std::string& name, const at::Tensor& tensor) {
  while (!under_way_.empty() && under_way_.front().first.done()) under_way_.pop_front();
  Pending pending;
  group_->run([&] { pending = communicator().all_reduce_async(name, elements_of(tensor)); });
  under_way_.emplace_back(pending, tensor);
  return pending;
}

void SyncGroup::wait(const Pending& pending) {
  group_->run([&] { pending.wait(); });
}

void SyncGroup::broadcast(const std::string& name, const at::Tensor& tensor) {
  if (tensor.numel() == 0) return;
  const torch::NoGradGuard no_grad;
  const at::Tensor host = lies_on_host(tensor) ? tensor : tensor.to(at::kCPU).contiguous();
  group_->run([&] { communicator().broadcast(name, bytes_of(host), 0); });
  if (!host.is_same(tensor)) tensor.copy_(host);
}

at::Tensor SyncGroup::broadcast_bytes(const std::string& name, const at::Tensor& bytes) {
  const at::Tensor length = at::scalar_tensor(bytes.numel(), at::kLong);
  broadcast(name + " (length)", length);
  const at::Tensor all = is_chief() ? bytes : at::empty({length.item<std::int64_t>()}, at::kByte);
  broadcast(name, all);
  return all;
}

std::string SyncGroup::broadcast_text(const std::string& name, const std::string& text) {
  return text_of(broadcast_bytes(name, tensor_of(text)));
}

std::vector<std::string> SyncGroup::all_gather_text(const std::string& name, const std::string& text) {
  std::vector<std::string> by_rank;
  for (const at::Tensor& bytes : all_gather_any(name, tensor_of(text))) by_rank.push_back(text_of(bytes));
  return by_rank;
}

std::vector<at::Tensor> SyncGroup::all_gather(const std::string& name, const at::Tensor& tensor) {
  const torch::NoGradGuard no_grad;
  const at::Tensor mine = tensor.detach().to(at::kCPU).contiguous();
  if (mine.numel() == 0) return std::vector<at::Tensor>(static_cast<std::size_t>(size()), mine);
  const at::Tensor all =
      at::empty({size(), static_cast<std::int64_t>(mine.nbytes())}, at::TensorOptions().dtype(at::kByte));
  group_->run([&] { communicator().all_gather(name, bytes_of(mine), all.data_ptr()); });
  std::vector<at::Tensor> by_rank;
  for (int rank = 0; rank < size(); ++rank) {
    by_rank.push_back(all[rank].view(mine.scalar_type()).view(mine.sizes()));
  }
  return by_rank;
}

std::vector<at::Tensor> SyncGroup::all_gather_any(const std::string& name, const at::Tensor& tensor) {
  const torch::NoGradGuard no_grad;
  const at::Tensor mine = tensor.defined() ? tensor.detach().to(at::kCPU).contiguous() : at::Tensor();
  // Whether there is one, its dtype, how many dimensions, and these.
  at::Tensor head = at::zeros({3 + kMostDims}, at::kLong);
  if (mine.defined()) {
    if (mine.dim() > kMostDims) {
      throw InvalidArgument(
          fmt::format("{}: the tensor has {} dimensions: expected {} at most", name, mine.dim(), kMostDims));
    }
    head[0] = 1;
    head[1] = static_cast<std::int64_t>(mine.scalar_type());
    head[2] = mine.dim();
    for (std::int64_t d = 0; d < mine.dim(); ++d) head[3 + d] = mine.size(d);
  }
  std::vector<at::Tensor> by_rank;
  std::int64_t most = 0;
  for (const at::Tensor& their : all_gather(name + " (shape)", head)) {
    const auto* fields = their.data_ptr<std::int64_t>();
    by_rank.push_back(fields[0] == 0
                          ? at::Tensor()
                          : at::empty(at::IntArrayRef(fields + 3, static_cast<std::size_t>(fields[2])),
                                      static_cast<at::ScalarType>(fields[1])));
    if (by_rank.back().defined()) most = std::max(most, static_cast<std::int64_t>(by_rank.back().nbytes()));
  }
  const at::Tensor padded = at::zeros({most}, at::kByte);
  if (mine.defined() && mine.numel() > 0) std::memcpy(padded.data_ptr(), mine.data_ptr(), mine.nbytes());
  const std::vector<at::Tensor> values = all_gather(name, padded);
  for (std::size_t rank = 0; rank < values.size(); ++rank) {
    const at::Tensor& their = by_rank[rank];
    if (their.defined() && their.numel() > 0)
      std::memcpy(their.data_ptr(), values[rank].data_ptr(), their.nbytes());
  }
  return by_rank;
}

std::vector<std::int64_t> SyncGroup::sum(const std::string& name, std::vector<std::int64_t> values) {
  group_->run([&] {
    communicator().all_reduce(name,
                              {values.data(), static_cast<std::int64_t>(values.size()), ElementType::kInt64});
  });
  return values;
}

void SyncGroup::ran(std::int64_t step, std::int64_t rows) {
  if (!gradients_met_.exchange(false)) return;
  const auto now = std::chrono::steady_clock::now();
  const double seconds = std::chrono::duration<double>(now - last_step_).count();
  last_step_ = now;
  group_->set_progress(step, static_cast<double>(rows) / seconds);
}

}  // namespace tandem::internal
