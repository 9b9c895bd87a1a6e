#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>

#include "base/file_descriptor.h"

namespace tandem::bench {

// What bench/collectives asks of the processes it measures. In between they sleep in a read: nobody who
// measures shares a core with them.
enum class Work : std::int32_t {
  kAllReduce,     // by the communicator
  kMpiAllReduce,  // by MPI_Allreduce itself
  kExchange,      // so many bytes each way over a plain socket
};

struct Order {
  Work work = Work::kAllReduce;
  std::int32_t communicator = 0;  // of several that a process may have
  std::int32_t repeats = 1;
  std::int64_t bytes = 0;
};

struct Answer {
  double seconds = 0;     // for one
  double bytes_sent = 0;  // by one
};

// One end of the connection between the two, over a local socket of this machine.
class OrderSocket {
 public:
  explicit OrderSocket(internal::FileDescriptor socket) : socket_(std::move(socket)) {}
  // What a process calls: `name` is a name in the abstract namespace, where the other side listens.
  // Throws Unavailable if nobody does.
  static OrderSocket dial(const std::string& name, int rank);

  template <typename Message>
  void send(const Message& message) {
    send_bytes(&message, sizeof message);
  }
  // Empty if the other side is gone. Throws DeadlineExceeded after `patience`.
  template <typename Message>
  std::optional<Message> receive(std::chrono::milliseconds patience) {
    Message message;
    if (!receive_bytes(&message, sizeof message, patience)) return std::nullopt;
    return message;
  }

 private:
  void send_bytes(const void* data, std::size_t bytes);
  bool receive_bytes(void* data, std::size_t bytes, std::chrono::milliseconds patience);

  internal::FileDescriptor socket_;
};

// Where the processes of one group dial in.
class OrderListener {
 public:
  OrderListener();

  const std::string& name() const { return name_; }
  // The next one to dial, with its rank. Throws DeadlineExceeded.
  std::pair<int, OrderSocket> accept(std::chrono::milliseconds patience);

 private:
  std::string name_;
  internal::FileDescriptor socket_;
};

// Answers orders with `obey` until the other side is gone.
template <typename Obey>
void obey_orders(OrderSocket& socket, Obey obey) {
  constexpr std::chrono::milliseconds kSilence = std::chrono::minutes(5);
  while (const auto order = socket.receive<Order>(kSilence)) socket.send<Answer>(obey(*order));
}

}  // namespace tandem::bench
