#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <memory>
#include <optional>
#include <string>
#include <utility>

namespace tandem {

namespace internal {
class Engine;
struct CommunicatorImpl;
struct PendingState;
}  // namespace internal

// TensorFlow's CommunicationImplementation: what moves tensors between the tasks.
enum class CommunicationImplementation {
  kAuto,  // what the devices and the build offer
  kRing,  // a ring over TCP, whatever the size
  kNccl,  // NVIDIA's NCCL, for GPUs; without them a notice, and the ring
};

// How a sum over all tasks is formed. All give every task the same bits; different ones may round
// differently from three tasks on.
enum class AllReduceAlgorithm : std::uint8_t {
  kAuto,             // by size and number of tasks, the same in every run
  kRing,             // each task sends 2 (n - 1) / n of the data, to one neighbour
  kRingChunked,      // the same in smaller chunks, two of them under way
  kHalvingDoubling,  // as much data in log2(n) exchanges
  kBcube,            // fewer, larger exchanges than the ring, with more partners
};

// What gradients look like between the tasks. 16 bits halve the traffic; sums are rounded to them.
enum class WireFormat { kFull, kBfloat16 };

// TensorFlow's CommunicationOptions, and more to choose by hand.
struct CommunicationOptions {
  // Gradients travel in packs of about this size, the last layers' first, while backward goes on. 0: one pack
  // below 32 MiB, packs of 32 MiB above.
  std::size_t bytes_per_pack = 0;

  // A collective that takes longer throws DeadlineExceeded, naming the tasks it waits for. Unset: no limit of
  // its own; the loss of a task ends it all the same.
  std::optional<std::chrono::milliseconds> timeout = {};

  CommunicationImplementation implementation = CommunicationImplementation::kAuto;

  AllReduceAlgorithm algorithm = AllReduceAlgorithm::kAuto;

  WireFormat wire_format = WireFormat::kFull;

  // What carries the bytes: "tcp" (tandem's own), "gloo" (Gloo's TCP), "mpi", "nccl". Empty: tcp.
  std::string engine = {};

  // These options with those fields of `call` in place of them that are not the defaults.
  CommunicationOptions merge(const CommunicationOptions& call) const;
};

enum class ElementType : std::uint8_t { kUint8, kInt32, kInt64, kFloat32, kFloat64, kBfloat16 };

std::size_t element_size(ElementType type);
const char* element_name(ElementType type);  // "float32"

// Contiguous values in host memory that somebody else owns.
struct Elements {
  void* data = nullptr;
  std::int64_t count = 0;
  ElementType type = ElementType::kFloat32;

  std::size_t bytes() const { return static_cast<std::size_t>(count) * element_size(type); }
};

// A collective under way. A value: a shared handle; dropping it does not end the collective, and its memory
// must stay until it has ended.
class Pending {
 public:
  Pending() = default;

  // Throws what the collective threw.
  void wait() const;
  // Throws DeadlineExceeded if it goes on for longer; it then still goes on.
  void wait(std::chrono::milliseconds timeout) const;
  bool done() const;

 private:
  friend class Communicator;
  explicit Pending(std::shared_ptr<internal::PendingState> state) : state_(std::move(state)) {}
  std::shared_ptr<internal::PendingState> state_;
};

// What has gone through a communicator so far.
struct Traffic {
  std::uint64_t operations = 0;
  std::uint64_t bytes_sent = 0;  // payload
  std::uint64_t bytes_received = 0;
};

// Collectives between the processes of a group, over host memory.
//
// Every member must issue the same collectives in the same order, with equal names, counts and types; the
// tcp engine notices if not, and throws FailedPrecondition that names both sides. Calls may come from several
// threads, if all members agree on their order. Collectives run one after the other, on a thread of the
// communicator's; the calls that do not end in _async wait.
//
// After a member is lost, abort(), or a failed collective, every call throws: Unavailable if a member is
// gone, DeadlineExceeded, or Aborted.
class Communicator {
 public:
  // For the rooms above; see comm/group.h.
  Communicator(std::unique_ptr<internal::Engine> engine, CommunicationOptions options);
  // Says goodbye to the others. Collectives under way are aborted.
  ~Communicator();
  Communicator(Communicator&&) noexcept;
  Communicator& operator=(Communicator&&) noexcept;

  int rank() const;
  int size() const;
  // "tcp", "gloo", "mpi", "nccl"
  std::string engine() const;
  const CommunicationOptions& options() const;

  // Replaces every member's data by the sum over all. `name` says what it is, for messages and traces.
  Pending all_reduce_async(const std::string& name, Elements data);
  void all_reduce(const std::string& name, Elements data);

  // Replaces every member's data by the root's.
  void broadcast(const std::string& name, Elements data, int root);
  // The root's data becomes the sum; the others' is as before.
  void reduce(const std::string& name, Elements data, int root);
  // `all` holds size() times `mine`, in rank order.
  void all_gather(const std::string& name, Elements mine, void* all);
  // The sum of all members' data, of which this one keeps its share: elements [begin, end) of `data`, equal
  // shares in rank order, the first ones one element larger. The rest of `data` is left undefined.
  std::pair<std::int64_t, std::int64_t> reduce_scatter(const std::string& name, Elements data);
  void barrier(const std::string& name);

  // From one member to another. In order with the collectives: what is sent between two collectives must be
  // received between the same two.
  void send(const std::string& name, Elements data, int to);
  void receive(const std::string& name, Elements data, int from);

  // Wakes every waiter, here at once and at the others as soon as they hear of it; they throw Aborted with
  // `reason`. With an error to rethrow, waiters here throw that one. From any thread; the first reason stays.
  void abort(const std::string& reason, std::exception_ptr error = {});

  Traffic traffic() const;

 private:
  std::unique_ptr<internal::CommunicatorImpl> impl_;
};

}  // namespace tandem
