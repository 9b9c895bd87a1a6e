// NVIDIA's NCCL, for one GPU per task. Compiles against CUDA 13 and NCCL 2.28; not run so far: there was no
// GPU.
//
// The Communicator's memory is the host's, so data goes to the device, through NCCL and back. NCCL chooses
// the algorithms. It neither asks who connects nor encrypts: for loopback, and for networks that nobody else
// can reach. A lost task is noticed late or never; abort() or a deadline wakes a waiter, and the others do
// not hear why.
#include <cuda_runtime.h>
#include <fmt/format.h>
#include <nccl.h>
#include <sched.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <mutex>
#include <optional>
#include <thread>
#include <vector>

#include "comm/backends.h"
#include "comm/rendezvous.h"
#include "tandem/error.h"

namespace tandem::internal::nccl {
namespace {

using Clock = Operation::Clock;

int number_of_gpus() {
  int count = 0;
  return cudaGetDeviceCount(&count) == cudaSuccess ? count : 0;
}

void check(cudaError_t code, const std::string& what) {
  if (code == cudaSuccess) return;
  throw Error(ErrorCode::kInternal,
              fmt::format("{} of engine nccl failed: {}", what, cudaGetErrorString(code)));
}

ncclDataType_t type_of(ElementType type) {
  switch (type) {
    case ElementType::kUint8:
      return ncclUint8;
    case ElementType::kInt32:
      return ncclInt32;
    case ElementType::kInt64:
      return ncclInt64;
    case ElementType::kFloat32:
      return ncclFloat32;
    case ElementType::kFloat64:
      return ncclFloat64;
    case ElementType::kBfloat16:
      return ncclBfloat16;
  }
  return ncclUint8;
}

// Memory on the device that grows with what it is asked for.
class DeviceMemory {
 public:
  ~DeviceMemory() { cudaFree(data_); }
  DeviceMemory() = default;
  DeviceMemory(const DeviceMemory&) = delete;
  DeviceMemory& operator=(const DeviceMemory&) = delete;

  char* at_least(std::size_t bytes, const std::string& what) {
    if (bytes > bytes_) {
      check(cudaFree(data_), what);
      data_ = nullptr;
      bytes_ = 0;
      check(cudaMalloc(&data_, bytes), what);
      bytes_ = bytes;
    }
    return static_cast<char*>(data_);
  }

 private:
  void* data_ = nullptr;
  std::size_t bytes_ = 0;
};

class NcclEngine final : public Engine {
 public:
  explicit NcclEngine(GroupSetup setup) : rank_(setup.rank), members_(setup.members) {
    const auto deadline = Clock::now() + setup.connect_timeout;
    const std::string what = "connecting";
    check(cudaSetDevice(device()), what);
    check(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking), what);

    ncclUniqueId id{};
    if (rank_ == 0) check(ncclGetUniqueId(&id), what);
    const std::string word =
        exchange(std::move(setup), std::string(reinterpret_cast<const char*>(&id), sizeof id)).front();
    std::memcpy(&id, word.data(), sizeof id);

    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    config.blocking = 0;
    check(ncclCommInitRankConfig(&group_, size(), id, rank_, &config), what);
    wait_for_nccl(what, deadline);
  }

  ~NcclEngine() override {
    cudaSetDevice(device_);
    // Destroying would wait for the others.
    if (group_) ncclCommAbort(group_);
    if (stream_) cudaStreamDestroy(stream_);
  }

  std::string name() const override { return "nccl"; }
  int rank() const override { return rank_; }
  int size() const override { return static_cast<int>(members_.size()); }
  std::string member_name(int rank) const override { return members_[static_cast<std::size_t>(rank)].name; }
  bool several_hosts() const override { return on_several_hosts(members_); }
  bool chooses_algorithms() const override { return true; }

  void run(const Operation& operation) override {
    const std::string what = fmt::format("{} \"{}\"", operation_name(operation.kind), operation.name);
    throw_if_aborted(what);
    if (operation.data.count > 0 || operation.kind == OperationKind::kBarrier) {
      check(cudaSetDevice(device_), what);
      const Result result = issue(operation, what);
      wait_for_nccl(what, operation.deadline);
      wait_for_device(what, operation.deadline);
      // Only now: a copy into memory that CUDA does not know blocks, with no deadline, until its turn comes.
      if (result.bytes > 0) {
        check(cudaMemcpy(result.host, result.device, result.bytes, cudaMemcpyDeviceToHost), what);
      }
    }
    operations_.fetch_add(1, std::memory_order_relaxed);
  }

  // Whoever waits in run() sees the flag within a millisecond and calls ncclCommAbort; NCCL does not allow
  // that from two threads.
  void abort(const std::string& reason) override {
    const std::lock_guard lock(mutex_);
    if (!reason_) reason_ = reason;
    aborted_ = true;
  }

  Traffic traffic() const override { return {.operations = operations_.load(std::memory_order_relaxed)}; }

 private:
  // The tasks of one host take its GPUs in the group's order.
  int device() {
    const auto& self = members_[static_cast<std::size_t>(rank_)];
    device_ = static_cast<int>(std::count_if(members_.begin(), members_.begin() + rank_,
                                             [&](const Member& other) { return other.host == self.host; }));
    const int gpus = number_of_gpus();
    if (device_ >= gpus) {
      throw InvalidArgument(fmt::format(
          "engine \"nccl\" needs a GPU for each task: {} is task {} on {}, which has {} GPUs; use engine "
          "\"tcp\", or fewer tasks per host",
          self.name, device_, self.host, gpus));
    }
    return device_;
  }

  void to_device(void* device, const void* host, std::size_t bytes, const std::string& what) {
    check(cudaMemcpyAsync(device, host, bytes, cudaMemcpyHostToDevice, stream_), what);
  }

  // What is to be copied back.
  struct Result {
    void* host = nullptr;
    const void* device = nullptr;
    std::size_t bytes = 0;
  };

  // Puts everything on the stream.
  Result issue(const Operation& operation, const std::string& what) {
    const Elements& data = operation.data;
    const std::size_t bytes = data.bytes();
    const auto count = static_cast<std::size_t>(data.count);
    const ncclDataType_t type = type_of(data.type);
    const bool is_root = operation.root == rank_;
    switch (operation.kind) {
      case OperationKind::kAllReduce: {
        char* place = memory_.at_least(bytes, what);
        to_device(place, data.data, bytes, what);
        check(ncclAllReduce(place, place, count, type, ncclSum, group_, stream_), what);
        return {data.data, place, bytes};
      }
      case OperationKind::kBroadcast: {
        char* place = memory_.at_least(bytes, what);
        if (is_root) to_device(place, data.data, bytes, what);
        check(ncclBroadcast(place, place, count, type, operation.root, group_, stream_), what);
        return is_root ? Result{} : Result{data.data, place, bytes};
      }
      case OperationKind::kReduce: {
        char* place = memory_.at_least(bytes, what);
        to_device(place, data.data, bytes, what);
        check(ncclReduce(place, place, count, type, ncclSum, operation.root, group_, stream_), what);
        return is_root ? Result{data.data, place, bytes} : Result{};
      }
      case OperationKind::kAllGather: {
        char* place = memory_.at_least(bytes * members_.size(), what);
        char* mine = place + bytes * static_cast<std::size_t>(rank_);
        to_device(mine, data.data, bytes, what);
        check(ncclAllGather(mine, place, count, type, group_, stream_), what);
        return {operation.gathered, place, bytes * members_.size()};
      }
      case OperationKind::kReduceScatter:
        return issue_reduce_scatter(data, what);
      case OperationKind::kBarrier: {
        char* place = memory_.at_least(sizeof(float), what);
        check(cudaMemsetAsync(place, 0, sizeof(float), stream_), what);
        check(ncclAllReduce(place, place, 1, ncclFloat32, ncclSum, group_, stream_), what);
        return {};
      }
      case OperationKind::kSend: {
        char* place = memory_.at_least(bytes, what);
        to_device(place, data.data, bytes, what);
        check(ncclSend(place, count, type, operation.root, group_, stream_), what);
        return {};
      }
      case OperationKind::kReceive: {
        char* place = memory_.at_least(bytes, what);
        check(ncclRecv(place, count, type, operation.root, group_, stream_), what);
        return {data.data, place, bytes};
      }
    }
    return {};
  }

  // NCCL's shares are equal: those that are one element shorter get one of padding.
  Result issue_reduce_scatter(const Elements& data, const std::string& what) {
    const std::size_t element = element_size(data.type);
    const auto share_of = [&](int member) {
      const auto [begin, end] = scattered_share(data.count, member, size());
      return std::pair{static_cast<char*>(data.data) + static_cast<std::size_t>(begin) * element,
                       static_cast<std::size_t>(end - begin) * element};
    };
    const std::size_t longest = share_of(0).second;
    char* place = memory_.at_least(longest * members_.size(), what);
    check(cudaMemsetAsync(place, 0, longest * members_.size(), stream_), what);
    for (int member = 0; member < size(); ++member) {
      const auto [from, bytes] = share_of(member);
      to_device(place + longest * static_cast<std::size_t>(member), from, bytes, what);
    }
    char* mine = place + longest * static_cast<std::size_t>(rank_);
    check(ncclReduceScatter(place, mine, longest / element, type_of(data.type), ncclSum, group_, stream_),
          what);
    const auto [to, bytes] = share_of(rank_);
    return {to, mine, bytes};
  }

  // The group does not block: a call may only have been begun when it returns.
  void wait_for_nccl(const std::string& what, Clock::time_point deadline) {
    wait(what, deadline, [&] {
      ncclResult_t state = ncclSuccess;
      check(ncclCommGetAsyncError(group_, &state), what);
      check(state, what);
      return state == ncclSuccess;
    });
  }

  void wait_for_device(const std::string& what, Clock::time_point deadline) {
    wait(what, deadline, [&] {
      const cudaError_t state = cudaStreamQuery(stream_);
      if (state == cudaErrorNotReady) {
        ncclResult_t network = ncclSuccess;
        check(ncclCommGetAsyncError(group_, &network), what);
        check(network, what);
        return false;
      }
      check(state, what);
      return true;
    });
  }

  template <typename Done>
  void wait(const std::string& what, Clock::time_point deadline, Done done) {
    constexpr auto kEager = std::chrono::milliseconds(2);
    constexpr auto kNap = std::chrono::microseconds(100);
    const auto begun = Clock::now();
    while (!done()) {
      const auto now = Clock::now();
      if (aborted_ || now >= deadline) {
        give_up();
        throw_if_aborted(what);
        throw DeadlineExceeded(fmt::format("{} of engine nccl did not end in time, after {:.1f} s", what,
                                           std::chrono::duration<double>(now - begun).count()));
      }
      if (now - begun < kEager) {
        sched_yield();
      } else {
        std::this_thread::sleep_for(kNap);
      }
    }
  }

  // Ends NCCL's kernels; what is left of the stream then runs out.
  void give_up() {
    if (group_) ncclCommAbort(std::exchange(group_, nullptr));
    cudaStreamSynchronize(stream_);
  }

  void throw_if_aborted(const std::string& what) {
    if (!aborted_) return;
    const std::lock_guard lock(mutex_);
    throw Aborted(fmt::format("{} of engine nccl: {}", what, *reason_));
  }

  void check(ncclResult_t code, const std::string& what) {
    if (code == ncclSuccess || code == ncclInProgress) return;
    const std::string how = ncclGetErrorString(code);
    give_up();
    throw Unavailable(fmt::format("{} of engine nccl failed: {}", what, how));
  }
  static void check(cudaError_t code, const std::string& what) { nccl::check(code, what); }

  const int rank_;
  const std::vector<Member> members_;
  int device_ = 0;
  cudaStream_t stream_ = nullptr;
  ncclComm_t group_ = nullptr;
  DeviceMemory memory_;
  std::atomic<std::uint64_t> operations_{0};
  std::atomic<bool> aborted_{false};
  std::mutex mutex_;
  std::optional<std::string> reason_;
};

}  // namespace

bool available() {
  return number_of_gpus() > 0;
}

std::unique_ptr<Engine> create(GroupSetup setup) {
  if (!available()) {
    throw Unimplemented("engine \"nccl\": this machine has no GPU that CUDA can use; use engine \"tcp\"");
  }
  refuse_open_network(setup, "nccl");
  return std::make_unique<NcclEngine>(std::move(setup));
}

}  // namespace tandem::internal::nccl
