#include "comm/gloo_algorithms.h"

#include <gloo/allgather.h>
#include <gloo/allreduce.h>
#include <gloo/allreduce_halving_doubling.h>
#include <gloo/allreduce_ring_chunked.h>
#include <gloo/barrier.h>
#include <gloo/broadcast.h>
#include <gloo/math.h>
#include <gloo/reduce.h>

#include <cstring>
#include <list>
#include <tuple>
#include <vector>

#include "comm/bfloat16.h"

namespace tandem::internal {
namespace {

// No deadline of Gloo's own: the transport keeps that of the operation.
constexpr std::chrono::hours kNoTimeout{24 * 365};
// What the older algorithms can count in an int.
constexpr std::size_t kLargestBound = std::size_t{1} << 30;
constexpr std::size_t kMostKept = 64;
constexpr std::uint64_t kSlot = 1;

// Calls fn with a value of the C++ type of the elements.
template <typename Fn>
auto with_type(ElementType type, Fn fn) {
  switch (type) {
    case ElementType::kUint8:
      return fn(std::uint8_t{});
    case ElementType::kInt32:
      return fn(std::int32_t{});
    case ElementType::kInt64:
      return fn(std::int64_t{});
    case ElementType::kFloat32:
      return fn(float{});
    case ElementType::kFloat64:
      return fn(double{});
    case ElementType::kBfloat16:
      return fn(Bfloat16{});
  }
  __builtin_unreachable();
}

using Sum = void (*)(void*, const void*, const void*, std::size_t);

Sum sum_of(ElementType type) {
  return with_type(type, [](auto value) -> Sum { return &::gloo::sum<decltype(value)>; });
}

}  // namespace

struct GlooAlgorithms::Impl {
  using Key = std::tuple<AllReduceAlgorithm, ElementType, std::int64_t, std::string>;

  struct Kept {
    Key key;
    void* data;
    std::vector<char> own_memory;
    std::shared_ptr<::gloo::Context> context;
    int first_slot;
    std::unique_ptr<::gloo::Algorithm> algorithm;
  };

  int rank;
  int size;
  Bound bound;
  MakeContext make_context;
  std::shared_ptr<::gloo::Context> context;
  int next_slot = 0;
  std::list<Kept> kept;  // the latest first

  void all_reduce(const Operation& operation) {
    const bool needs_bound = operation.algorithm == AllReduceAlgorithm::kHalvingDoubling ||
                             operation.algorithm == AllReduceAlgorithm::kRingChunked;
    if (needs_bound && operation.data.bytes() <= kLargestBound) {
      bound_all_reduce(operation);
      return;
    }
    ::gloo::AllreduceOptions options(context);
    options.setAlgorithm(operation.algorithm == AllReduceAlgorithm::kBcube
                             ? ::gloo::AllreduceOptions::Algorithm::BCUBE
                             : ::gloo::AllreduceOptions::Algorithm::RING);
    with_type(operation.data.type, [&](auto value) {
      using T = decltype(value);
      options.setOutput(static_cast<T*>(operation.data.data), static_cast<std::size_t>(operation.data.count));
    });
    options.setReduceFunction(sum_of(operation.data.type));
    options.setTimeout(kNoTimeout);
    ::gloo::allreduce(options);
  }

  void bound_all_reduce(const Operation& operation) {
    const Elements& data = operation.data;
    Kept& kept = bound_algorithm(operation);
    if (bound == Bound::kToOwnMemory) std::memcpy(kept.data, data.data, data.bytes());
    kept.algorithm->run();
    if (bound == Bound::kToOwnMemory) std::memcpy(data.data, kept.data, data.bytes());
  }

  // The members make and drop these alike, since they issue the same operations; so their slots agree. Only
  // the memory may be another one on one of them, which then makes its own anew at the same slots.
  Kept& bound_algorithm(const Operation& operation) {
    const Elements& data = operation.data;
    const Key key{operation.algorithm, data.type, data.count, operation.name};
    auto found = kept.begin();
    while (found != kept.end() && found->key != key) ++found;
    if (found == kept.end()) {
      kept.push_front({key, nullptr, {}, nullptr, next_slot, nullptr});
      if (bound == Bound::kToOwnMemory) kept.front().own_memory.resize(data.bytes());
      next_slot += 4 * size * size + 4;
      if (kept.size() > kMostKept) kept.pop_back();
    } else {
      kept.splice(kept.begin(), kept, found);
    }
    Kept& mine = kept.front();
    void* wanted = bound == Bound::kToOwnMemory ? mine.own_memory.data() : data.data;
    if (mine.data != wanted) {
      mine.algorithm.reset();
      mine.context = make_context(mine.first_slot);
      mine.algorithm = with_type(data.type, [&](auto value) -> std::unique_ptr<::gloo::Algorithm> {
        using T = decltype(value);
        const std::vector<T*> pointers{static_cast<T*>(wanted)};
        const int count = static_cast<int>(data.count);
        if (operation.algorithm == AllReduceAlgorithm::kRingChunked) {
          return std::make_unique<::gloo::AllreduceRingChunked<T>>(mine.context, pointers, count);
        }
        return std::make_unique<::gloo::AllreduceHalvingDoubling<T>>(mine.context, pointers, count);
      });
      mine.data = wanted;
    }
    return mine;
  }

  void broadcast(const Operation& operation) {
    ::gloo::BroadcastOptions options(context);
    options.setOutput(static_cast<char*>(operation.data.data), operation.data.bytes());
    options.setRoot(operation.root);
    options.setTimeout(kNoTimeout);
    ::gloo::broadcast(options);
  }

  void reduce(const Operation& operation) {
    std::vector<char> scratch(rank == operation.root ? 0 : operation.data.bytes());
    void* output = scratch.empty() ? operation.data.data : scratch.data();
    ::gloo::ReduceOptions options(context);
    with_type(operation.data.type, [&](auto value) {
      using T = decltype(value);
      const auto count = static_cast<std::size_t>(operation.data.count);
      options.setInput(static_cast<T*>(operation.data.data), count);
      options.setOutput(static_cast<T*>(output), count);
    });
    options.setReduceFunction(sum_of(operation.data.type));
    options.setRoot(operation.root);
    options.setTimeout(kNoTimeout);
    ::gloo::reduce(options);
  }

  void all_gather(const Operation& operation) {
    ::gloo::AllgatherOptions options(context);
    options.setInput(static_cast<char*>(operation.data.data), operation.data.bytes());
    options.setOutput(static_cast<char*>(operation.gathered),
                      operation.data.bytes() * static_cast<std::size_t>(size));
    options.setTimeout(kNoTimeout);
    ::gloo::allgather(options);
  }

  // Gloo's own writes its result over what it may still be sending. A ring: in each of n - 1 rounds a member
  // adds what comes from its left to one share and passes another on to its right, so that the sum of share r
  // ends at member r.
  void reduce_scatter(const Operation& operation) {
    const Elements& data = operation.data;
    const std::size_t width = element_size(data.type);
    const auto share = [&](int member) {
      const auto [begin, end] = scattered_share(data.count, (member % size + size) % size, size);
      return std::pair(static_cast<std::size_t>(begin) * width,
                       static_cast<std::size_t>(end - begin) * width);
    };
    std::vector<char> inbox(share(0).second);
    const auto source = context->createUnboundBuffer(data.data, data.bytes());
    const auto target = context->createUnboundBuffer(inbox.data(), inbox.size());
    for (int round = 1; round < size; ++round) {
      const auto [out, out_bytes] = share(rank - round);
      const auto [in, in_bytes] = share(rank - round - 1);
      source->send((rank + 1) % size, kSlot, out, out_bytes);
      target->recv((rank + size - 1) % size, kSlot, 0, in_bytes);
      target->waitRecv(kNoTimeout);
      char* sum = static_cast<char*>(data.data) + in;
      sum_of(data.type)(sum, sum, inbox.data(), in_bytes / width);
      source->waitSend(kNoTimeout);
    }
  }

  void barrier() {
    ::gloo::BarrierOptions options(context);
    options.setTimeout(kNoTimeout);
    ::gloo::barrier(options);
  }

  void point_to_point(const Operation& operation) {
    const auto buffer = context->createUnboundBuffer(operation.data.data, operation.data.bytes());
    if (operation.kind == OperationKind::kSend) {
      buffer->send(operation.root, kSlot);
      buffer->waitSend(kNoTimeout);
    } else {
      buffer->recv(operation.root, kSlot);
      buffer->waitRecv(kNoTimeout);
    }
  }
};

GlooAlgorithms::GlooAlgorithms(int rank, int size, Bound bound, MakeContext make_context)
    : impl_(std::make_unique<Impl>(Impl{rank, size, bound, std::move(make_context), nullptr, 0, {}})) {
  impl_->context = impl_->make_context(0);
}

GlooAlgorithms::~GlooAlgorithms() = default;

void GlooAlgorithms::clear() {
  impl_->kept.clear();
}

void GlooAlgorithms::run(const Operation& operation) {
  const bool empty = operation.data.count == 0;
  if (impl_->size == 1) {
    if (operation.kind == OperationKind::kAllGather && !empty) {
      std::memcpy(operation.gathered, operation.data.data, operation.data.bytes());
    }
    return;
  }
  if (empty && operation.kind != OperationKind::kBarrier) return;
  switch (operation.kind) {
    case OperationKind::kAllReduce:
      return impl_->all_reduce(operation);
    case OperationKind::kBroadcast:
      return impl_->broadcast(operation);
    case OperationKind::kReduce:
      return impl_->reduce(operation);
    case OperationKind::kAllGather:
      return impl_->all_gather(operation);
    case OperationKind::kReduceScatter:
      return impl_->reduce_scatter(operation);
    case OperationKind::kBarrier:
      return impl_->barrier();
    case OperationKind::kSend:
    case OperationKind::kReceive:
      return impl_->point_to_point(operation);
  }
}

}  // namespace tandem::internal
