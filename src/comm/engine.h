#pragma once

#include <chrono>
#include <cstdint>
#include <string>
#include <utility>

#include "tandem/communicator.h"

namespace tandem::internal {

enum class OperationKind : std::uint8_t {
  kAllReduce = 1,
  kBroadcast,
  kReduce,
  kAllGather,
  kReduceScatter,
  kBarrier,
  kSend,
  kReceive,
};

const char* operation_name(OperationKind kind);  // "all_reduce"

// One call of a Communicator, as an engine sees it.
struct Operation {
  using Clock = std::chrono::steady_clock;

  OperationKind kind = OperationKind::kBarrier;
  std::string name = {};
  Elements data = {};
  int root = -1;             // of broadcast and reduce; the partner of send and receive
  void* gathered = nullptr;  // of all_gather
  AllReduceAlgorithm algorithm = AllReduceAlgorithm::kRing;  // of all_reduce; never kAuto
  Clock::time_point deadline = Clock::time_point::max();
};

// Moves bytes between the members of a group: one folder per kind. Operations block, and come from one thread
// at a time.
class Engine {
 public:
  virtual ~Engine() = default;

  virtual std::string name() const = 0;
  virtual int rank() const = 0;
  virtual int size() const = 0;
  // "worker:1", for messages
  virtual std::string member_name(int rank) const = 0;
  // Whether the members are processes of different machines.
  virtual bool several_hosts() const = 0;
  // Whether it sums in a way of its own choice, whatever Operation::algorithm says.
  virtual bool chooses_algorithms() const { return false; }

  // Throws Unavailable if a member is gone, DeadlineExceeded after the deadline, FailedPrecondition if
  // another member is in another operation, Aborted after abort(). The engine is then of no further use.
  virtual void run(const Operation& operation) = 0;

  // From any thread: makes run() throw Aborted, now and later, and tells the others why, as far as the engine
  // can.
  virtual void abort(const std::string& reason) = 0;

  virtual Traffic traffic() const = 0;
};

// Elements [begin, end) of `count` that member `rank` of `size` keeps in a reduce_scatter.
std::pair<std::int64_t, std::int64_t> scattered_share(std::int64_t count, int rank, int size);

}  // namespace tandem::internal
