// Whatever MPI the machines have, for clusters whose network it knows best. All tasks must be started by one
// mpirun, in the order of the group. MPI chooses the algorithms. What it lacks beside engine "tcp":
//   - A lost task is noticed by nobody here; mpirun ends the others.
//   - A collective cannot be taken back: after a deadline or abort() the memory it works on must stay as long
//     as the process, which should end soon. MPI is then not finalized either, for that would wait.
//   - The others do not hear why: each needs its own abort().
//   - Members that are in different operations mix up their data, or wait for each other.
//   - What it sends is not known: traffic() counts operations only.
#include <fmt/format.h>
#include <mpi.h>
#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdlib>
#include <cstring>
#include <mutex>
#include <optional>
#include <thread>
#include <vector>

#include "comm/backends.h"
#include "comm/bfloat16.h"
#include "tandem/error.h"

namespace tandem::internal::mpi {
namespace {

using Clock = Operation::Clock;

// Counts are int in MPI.
constexpr std::int64_t kMostElements = std::int64_t{1} << 30;

// MPI belongs to the process: begun once, ended when the process ends.
std::atomic<bool> unfinished_operations{false};
pid_t begun_by = 0;

void finalize() {
  int finalized = 0;
  MPI_Finalized(&finalized);
  if (finalized == 0 && !unfinished_operations && begun_by == getpid()) MPI_Finalize();
}

void begin_mpi() {
  int initialized = 0;
  MPI_Initialized(&initialized);
  int provided = MPI_THREAD_SINGLE;
  if (initialized == 0) {
    MPI_Init_thread(nullptr, nullptr, MPI_THREAD_SERIALIZED, &provided);
    begun_by = getpid();
    std::atexit(finalize);
  } else {
    MPI_Query_thread(&provided);
  }
  if (provided < MPI_THREAD_SERIALIZED) {
    throw InvalidArgument(
        "engine \"mpi\" calls MPI from more than one thread, one at a time: initialize it with "
        "MPI_Init_thread(MPI_THREAD_SERIALIZED), or leave that to tandem");
  }
}

MPI_Datatype type_of(ElementType type) {
  switch (type) {
    case ElementType::kUint8:
      return MPI_UINT8_T;
    case ElementType::kInt32:
      return MPI_INT32_T;
    case ElementType::kInt64:
      return MPI_INT64_T;
    case ElementType::kFloat32:
      return MPI_FLOAT;
    case ElementType::kFloat64:
      return MPI_DOUBLE;
    case ElementType::kBfloat16:
      return MPI_UINT16_T;  // summed by an operation of ours
  }
  return MPI_DATATYPE_NULL;
}

void add_bfloat16(void* from, void* to, int* count, MPI_Datatype*) {
  const auto* addends = static_cast<const Bfloat16*>(from);
  auto* sums = static_cast<Bfloat16*>(to);
  for (int i = 0; i < *count; ++i) sums[i] = sums[i] + addends[i];
}

int as_int(std::int64_t value) {
  return static_cast<int>(value);
}

class MpiEngine final : public Engine {
 public:
  explicit MpiEngine(const GroupSetup& setup) : rank_(setup.rank), members_(setup.members) {
    if (unfinished_operations) {
      throw FailedPrecondition(
          "engine \"mpi\" has an operation that never ended, from a group before this one: start the process "
          "again");
    }
    begin_mpi();
    int world_rank = 0;
    int world_size = 0;
    MPI_Comm_rank(MPI_COMM_WORLD, &world_rank);
    MPI_Comm_size(MPI_COMM_WORLD, &world_size);
    if (world_rank != rank_ || world_size != size()) {
      throw InvalidArgument(fmt::format(
          "engine \"mpi\": {} is member {} of {}, but rank {} of {} in MPI: start all tasks, in the "
          "cluster's order, with one mpirun -n {} PROGRAM",
          member_name(rank_), rank_, size(), world_rank, world_size, size()));
    }
    MPI_Request request = MPI_REQUEST_NULL;
    check(MPI_Comm_idup(MPI_COMM_WORLD, &group_, &request), "connecting");
    wait(request, "connecting", Clock::now() + setup.connect_timeout);
    MPI_Comm_set_errhandler(group_, MPI_ERRORS_RETURN);
    MPI_Op_create(add_bfloat16, 1, &sum_of_bfloat16_);
  }

  ~MpiEngine() override {
    int finalized = 0;
    MPI_Finalized(&finalized);
    // Of a group with an operation under way nothing may be touched.
    if (finalized != 0 || unfinished_operations) return;
    MPI_Op_free(&sum_of_bfloat16_);
    MPI_Comm_free(&group_);
  }

  std::string name() const override { return "mpi"; }
  int rank() const override { return rank_; }
  int size() const override { return static_cast<int>(members_.size()); }
  std::string member_name(int rank) const override { return members_[static_cast<std::size_t>(rank)].name; }
  bool several_hosts() const override { return on_several_hosts(members_); }
  bool chooses_algorithms() const override { return true; }

  void run(const Operation& operation) override {
    const std::string what = fmt::format("{} \"{}\"", operation_name(operation.kind), operation.name);
    switch (operation.kind) {
      case OperationKind::kAllReduce:
        all_reduce(operation, what);
        break;
      case OperationKind::kBroadcast:
        broadcast(operation, what, operation.data.data, operation.root);
        break;
      case OperationKind::kReduce:
        reduce(operation, what);
        break;
      case OperationKind::kAllGather:
        all_gather(operation, what);
        break;
      case OperationKind::kReduceScatter:
        reduce_scatter(operation, what);
        break;
      case OperationKind::kBarrier:
        begin_and_wait(operation, what, [&](MPI_Request* request) { return MPI_Ibarrier(group_, request); });
        break;
      case OperationKind::kSend:
        in_parts(operation, [&](std::int64_t at, int count) {
          begin_and_wait(operation, what, [&](MPI_Request* request) {
            return MPI_Isend(element(operation.data, at), count, type_of(operation.data.type), operation.root,
                             0, group_, request);
          });
        });
        break;
      case OperationKind::kReceive:
        in_parts(operation, [&](std::int64_t at, int count) {
          begin_and_wait(operation, what, [&](MPI_Request* request) {
            return MPI_Irecv(element(operation.data, at), count, type_of(operation.data.type), operation.root,
                             0, group_, request);
          });
        });
        break;
    }
    operations_.fetch_add(1, std::memory_order_relaxed);
  }

  void abort(const std::string& reason) override {
    const std::lock_guard lock(mutex_);
    if (!reason_) reason_ = reason;
    aborted_ = true;
  }

  Traffic traffic() const override { return {.operations = operations_.load(std::memory_order_relaxed)}; }

 private:
  static void* element(const Elements& data, std::int64_t at) {
    return static_cast<char*>(data.data) + at * static_cast<std::int64_t>(element_size(data.type));
  }

  MPI_Op sum_of(ElementType type) const {
    return type == ElementType::kBfloat16 ? sum_of_bfloat16_ : MPI_SUM;
  }

  template <typename Fn>
  static void in_parts(const Operation& operation, Fn fn) {
    for (std::int64_t at = 0; at < operation.data.count; at += kMostElements) {
      fn(at, as_int(std::min(kMostElements, operation.data.count - at)));
    }
  }

  void all_reduce(const Operation& operation, const std::string& what) {
    const Elements& data = operation.data;
    in_parts(operation, [&](std::int64_t at, int count) {
      begin_and_wait(operation, what, [&](MPI_Request* request) {
        return MPI_Iallreduce(MPI_IN_PLACE, element(data, at), count, type_of(data.type), sum_of(data.type),
                              group_, request);
      });
    });
  }

  void broadcast(const Operation& operation, const std::string& what, void* place, int root) {
    const Elements data{place, operation.data.count, operation.data.type};
    in_parts(operation, [&](std::int64_t at, int count) {
      begin_and_wait(operation, what, [&](MPI_Request* request) {
        return MPI_Ibcast(element(data, at), count, type_of(data.type), root, group_, request);
      });
    });
  }

  void reduce(const Operation& operation, const std::string& what) {
    const Elements& data = operation.data;
    const bool is_root = operation.root == rank_;
    in_parts(operation, [&](std::int64_t at, int count) {
      void* place = element(data, at);
      begin_and_wait(operation, what, [&](MPI_Request* request) {
        return MPI_Ireduce(is_root ? MPI_IN_PLACE : place, is_root ? place : nullptr, count,
                           type_of(data.type), sum_of(data.type), operation.root, group_, request);
      });
    });
  }

  void all_gather(const Operation& operation, const std::string& what) {
    const Elements& mine = operation.data;
    const Elements all{operation.gathered, mine.count * size(), mine.type};
    if (mine.count <= kMostElements / size()) {
      begin_and_wait(operation, what, [&](MPI_Request* request) {
        return MPI_Iallgather(mine.data, as_int(mine.count), type_of(mine.type), all.data, as_int(mine.count),
                              type_of(mine.type), group_, request);
      });
      return;
    }
    std::memcpy(element(all, mine.count * rank_), mine.data, mine.bytes());
    for (int member = 0; member < size(); ++member) {
      broadcast(operation, what, element(all, mine.count * member), member);
    }
  }

  void reduce_scatter(const Operation& operation, const std::string& what) {
    const Elements& data = operation.data;
    if (data.count > kMostElements) return all_reduce(operation, what);
    counts_.clear();
    for (int member = 0; member < size(); ++member) {
      const auto [begin, end] = scattered_share(data.count, member, size());
      counts_.push_back(as_int(end - begin));
    }
    begin_and_wait(operation, what, [&](MPI_Request* request) {
      return MPI_Ireduce_scatter(MPI_IN_PLACE, data.data, counts_.data(), type_of(data.type),
                                 sum_of(data.type), group_, request);
    });
    // In place means at the front.
    const auto [begin, end] = scattered_share(data.count, rank_, size());
    if (begin == end) return;
    std::memmove(element(data, begin), data.data,
                 static_cast<std::size_t>(end - begin) * element_size(data.type));
  }

  template <typename Begin>
  void begin_and_wait(const Operation& operation, const std::string& what, Begin begin) {
    throw_if_aborted(what);
    MPI_Request request = MPI_REQUEST_NULL;
    check(begin(&request), what);
    wait(request, what, operation.deadline);
  }

  // MPI moves on only while it is called, so the first waits are short; who waits for long is waiting for a
  // member that computes, perhaps on this very core.
  void wait(MPI_Request& request, const std::string& what, Clock::time_point deadline) {
    constexpr auto kEager = std::chrono::milliseconds(2);
    constexpr auto kShortNap = std::chrono::microseconds(50);
    constexpr auto kLongNap = std::chrono::milliseconds(1);
    constexpr auto kPatience = std::chrono::milliseconds(200);
    const auto begun = Clock::now();
    while (true) {
      int done = 0;
      check(MPI_Test(&request, &done, MPI_STATUS_IGNORE), what);
      if (done != 0) return;
      const auto now = Clock::now();
      if (aborted_ || now >= deadline) {
        unfinished_operations = true;
        throw_if_aborted(what);
        throw DeadlineExceeded(fmt::format("{} of engine mpi did not end in time, after {:.1f} s", what,
                                           std::chrono::duration<double>(now - begun).count()));
      }
      if (now - begun < kEager) {
        sched_yield();
      } else {
        std::this_thread::sleep_for(now - begun < kPatience ? kShortNap : kLongNap);
      }
    }
  }

  void throw_if_aborted(const std::string& what) {
    if (!aborted_) return;
    const std::lock_guard lock(mutex_);
    throw Aborted(fmt::format("{} of engine mpi: {}", what, *reason_));
  }

  static void check(int code, const std::string& what) {
    if (code == MPI_SUCCESS) return;
    std::array<char, MPI_MAX_ERROR_STRING> text{};
    int length = 0;
    MPI_Error_string(code, text.data(), &length);
    unfinished_operations = true;
    throw Unavailable(fmt::format("{} of engine mpi failed: {}", what, text.data()));
  }

  const int rank_;
  const std::vector<Member> members_;
  MPI_Comm group_ = MPI_COMM_NULL;
  MPI_Op sum_of_bfloat16_ = MPI_OP_NULL;
  std::vector<int> counts_;  // must stay while an operation that was given it is under way
  std::atomic<std::uint64_t> operations_{0};
  std::atomic<bool> aborted_{false};
  std::mutex mutex_;
  std::optional<std::string> reason_;
};

}  // namespace

bool available() {
  return true;
}

std::unique_ptr<Engine> create(GroupSetup setup) {
  return std::make_unique<MpiEngine>(setup);
}

}  // namespace tandem::internal::mpi
