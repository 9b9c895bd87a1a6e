#include "collectives_member.h"

#include <fmt/format.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <functional>

#include "base/net.h"
#include "comm/group.h"
#include "orders.h"
#include "tandem/error.h"
#include "turns.h"

namespace tandem::bench {
namespace {

using internal::FileDescriptor;

constexpr const char* kHost = "127.0.0.1";

Communicator join(const MemberFlags& flags, std::size_t communicator) {
  internal::GroupSetup setup{.rank = flags.rank};
  for (int member = 0; member < flags.size; ++member) {
    const auto place = communicator * static_cast<std::size_t>(flags.size) + static_cast<std::size_t>(member);
    setup.members.push_back({.name = fmt::format("worker:{}", member), .host = kHost});
    if (flags.ports.empty()) continue;
    setup.members.back().data_address = internal::join_host_port(kHost, flags.ports[place]);
    if (member == flags.rank) setup.port = std::make_unique<internal::DataPort>(kHost, flags.ports[place]);
  }
  return internal::join_group(std::move(setup),
                              {.algorithm = kAlgorithms[communicator], .engine = flags.engine});
}

// What a plain connection can do: both ends send and receive at once, whatever the kernel takes and has.
class PlainSocket {
 public:
  explicit PlainSocket(const MemberFlags& flags) : buffer_(std::size_t{1} << 20) {
    const auto address = internal::resolve_host(kHost, flags.ports[0]).front();
    const FileDescriptor first(socket(address.family(), SOCK_STREAM | SOCK_CLOEXEC, 0));
    const int on = 1;
    if (flags.rank == 0) {
      setsockopt(first.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
      if (bind(first.get(), address.get(), address.length) != 0 || listen(first.get(), 1) != 0)
        fail("listen");
      connection_ = FileDescriptor(accept4(first.get(), nullptr, nullptr, SOCK_CLOEXEC));
    } else {
      connection_ = dial(address);
    }
    if (!connection_) fail("connect");
    setsockopt(connection_.get(), IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
  }

  void exchange(std::int64_t bytes) {
    std::int64_t to_send = bytes;
    std::int64_t to_receive = bytes;
    while (to_send > 0 || to_receive > 0) {
      std::int64_t moved = 0;
      if (to_send > 0) moved += take(to_send, send(connection_.get(), buffer_.data(), part(to_send), kFlags));
      if (to_receive > 0)
        moved += take(to_receive, recv(connection_.get(), buffer_.data(), part(to_receive), kFlags));
      if (moved > 0) continue;
      pollfd ready{.fd = connection_.get(), .events = 0, .revents = 0};
      if (to_send > 0) ready.events |= POLLOUT;
      if (to_receive > 0) ready.events |= POLLIN;
      poll(&ready, 1, -1);
    }
  }

 private:
  static constexpr int kFlags = MSG_DONTWAIT | MSG_NOSIGNAL;

  [[noreturn]] static void fail(const char* what) {
    throw Unavailable(fmt::format("plain socket: {}: {}", what, std::strerror(errno)));
  }

  static FileDescriptor dial(const internal::SocketAddress& address) {
    for (int tries = 0; tries < 1000; ++tries) {
      FileDescriptor connection(socket(address.family(), SOCK_STREAM | SOCK_CLOEXEC, 0));
      if (connect(connection.get(), address.get(), address.length) == 0) return connection;
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
    }
    return {};
  }

  std::size_t part(std::int64_t bytes) const {
    return std::min(buffer_.size(), static_cast<std::size_t>(bytes));
  }

  static std::int64_t take(std::int64_t& left, ssize_t moved) {
    if (moved < 0 && errno != EAGAIN && errno != EINTR) fail("exchange");
    if (moved <= 0) return 0;
    left -= moved;
    return moved;
  }

  std::vector<char> buffer_;
  FileDescriptor connection_;
};

double seconds_of_one(int repeats, const std::function<void()>& once) {
  return seconds_of([&] {
           for (int i = 0; i < repeats; ++i) once();
         }) /
         repeats;
}

void be_socket(const MemberFlags& flags, OrderSocket& orders) {
  PlainSocket socket(flags);
  obey_orders(orders, [&](const Order& order) {
    socket.exchange(1);
    return Answer{.seconds = seconds_of_one(order.repeats, [&] { socket.exchange(order.bytes); }),
                  .bytes_sent = static_cast<double>(order.bytes)};
  });
}

void be_communicator(const MemberFlags& flags, OrderSocket& orders) {
  std::vector<Communicator> groups;
  const std::size_t communicators =
      flags.ports.empty() ? 1 : flags.ports.size() / static_cast<std::size_t>(flags.size);
  for (std::size_t i = 0; i < communicators; ++i) groups.push_back(join(flags, i));
  std::vector<float> data;  // zeros, so that sums of sums stay numbers
  obey_orders(orders, [&](const Order& order) {
    Communicator& group = groups[static_cast<std::size_t>(order.communicator)];
    const auto count = order.bytes / static_cast<std::int64_t>(sizeof(float));
    if (data.size() < static_cast<std::size_t>(count)) data.resize(static_cast<std::size_t>(count));
    const std::string name = std::to_string(order.bytes);
    group.barrier("ready");
    const Traffic before = group.traffic();
    Answer answer;
    answer.seconds = seconds_of_one(order.repeats, [&] {
      if (order.work == Work::kMpiAllReduce) {
        mpi_all_reduce(data.data(), count);
      } else {
        group.all_reduce(name, {data.data(), count, ElementType::kFloat32});
      }
    });
    answer.bytes_sent = static_cast<double>(group.traffic().bytes_sent - before.bytes_sent) / order.repeats;
    return answer;
  });
}

}  // namespace

void be_member(MemberFlags flags) {
  if (const char* rank = std::getenv("OMPI_COMM_WORLD_RANK")) flags.rank = std::atoi(rank);
  OrderSocket orders = OrderSocket::dial(flags.orders, flags.rank);
  if (flags.engine == "socket") {
    be_socket(flags, orders);
  } else {
    be_communicator(flags, orders);
  }
}

}  // namespace tandem::bench
