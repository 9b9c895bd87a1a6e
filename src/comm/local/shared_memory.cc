#include "comm/local/shared_memory.h"

#include <torch/torch.h>

#include <algorithm>
#include <cstring>

#include "base/meeting.h"
#include "comm/local/board.h"
#include "tandem/cross_device_ops.h"

namespace tandem {
namespace internal {
namespace {

constexpr std::int64_t kCacheLine = 64;

// Small enough that the partial sum stays in the first-level cache while it is added to and copied out.
constexpr std::int64_t kBlockBytes = 8 << 10;

// One pass over memory: each block is summed over all sources in cache, then written to every destination.
template <typename T>
void sum_blocks(const std::vector<const T*>& sources, const std::vector<T*>& destinations, std::int64_t begin,
                std::int64_t end) {
  constexpr std::int64_t kBlock = kBlockBytes / static_cast<std::int64_t>(sizeof(T));
  alignas(kCacheLine) T block[kBlock];
  for (std::int64_t at = begin; at < end; at += kBlock) {
    const std::int64_t n = std::min(kBlock, end - at);
    const T* first = sources[0] + at;
    if (sources.size() == 1) {
      std::copy_n(first, n, block);
    } else {
      const T* second = sources[1] + at;
      for (std::int64_t i = 0; i < n; ++i) block[i] = first[i] + second[i];
    }
    for (std::size_t s = 2; s < sources.size(); ++s) {
      const T* next = sources[s] + at;
      for (std::int64_t i = 0; i < n; ++i) block[i] = block[i] + next[i];
    }
    for (T* destination : destinations)
      std::memcpy(destination + at, block, static_cast<std::size_t>(n) * sizeof(T));
  }
}

}  // namespace

std::pair<std::int64_t, std::int64_t> share_of(std::int64_t elements, int seat, int seats) {
  const std::int64_t lines = (elements + kCacheLine - 1) / kCacheLine;
  const auto cut = [&](int i) { return std::min(elements, lines * i / seats * kCacheLine); };
  return {cut(seat), cut(seat + 1)};
}

void sum_range(const std::vector<at::Tensor>& sources, const std::vector<at::Tensor>& destinations,
               std::int64_t begin, std::int64_t end) {
  AT_DISPATCH_ALL_TYPES_AND2(at::kHalf, at::kBFloat16, sources[0].scalar_type(), "sum_range", [&] {
    std::vector<const scalar_t*> from;
    std::vector<scalar_t*> to;
    for (const auto& tensor : sources) from.push_back(tensor.data_ptr<scalar_t>());
    for (const auto& tensor : destinations) to.push_back(tensor.data_ptr<scalar_t>());
    sum_blocks(from, to, begin, end);
  });
}

namespace {

class SharedMemoryAllReduce final : public CrossDeviceOps {
 public:
  std::string name() const override { return "shared memory"; }
  bool shares_memory() const override { return true; }

  void all_reduce(Meeting& meeting, int replica, at::Tensor& tensor) override {
    if (meeting.seats() == 1) return;
    const std::vector<at::Tensor>& tensors = board_.lay_down(meeting, replica, tensor, kName);
    const auto [begin, end] = share_of(tensor.numel(), replica, meeting.seats());
    sum_range(tensors, tensors, begin, end);
    meeting.arrive(replica, kName);  // every share is written
  }

 private:
  static constexpr const char* kName = "all_reduce";

  Board board_;
};

}  // namespace
}  // namespace internal

std::shared_ptr<CrossDeviceOps> shared_memory_all_reduce() {
  return std::make_shared<internal::SharedMemoryAllReduce>();
}

}  // namespace tandem
