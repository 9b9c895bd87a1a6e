#include "base/tcp_prober.h"

#include <poll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>

#include "tandem/error.h"

namespace tandem::internal {

TcpProber::TcpProber(Report report)
    : report_(std::move(report)),
      wake_(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)),
      thread_([this] { work(); }) {}

TcpProber::~TcpProber() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  eventfd_write(wake_.get(), 1);
  thread_.join();
}

void TcpProber::probe(int id, const std::string& host, int port, std::chrono::milliseconds patience) {
  {
    const std::lock_guard lock(mutex_);
    requests_.push_back({.id = id, .host = host, .port = port, .deadline = Clock::now() + patience});
  }
  eventfd_write(wake_.get(), 1);
}

void TcpProber::work() {
  while (true) {
    std::vector<Request> requests;
    {
      const std::lock_guard lock(mutex_);
      if (stopping_) return;
      requests.swap(requests_);
    }
    for (const Request& request : requests) begin(request);
    wait();
  }
}

void TcpProber::begin(const Request& request) {
  if (attempts_.contains(request.id)) return;
  const std::string name = join_host_port(request.host, request.port);
  auto known = resolved_.find(name);
  if (known == resolved_.end()) {
    try {
      // Once: by the time that a probe matters, a slow name server must not delay the answer.
      known = resolved_.emplace(name, resolve_host(request.host, request.port)).first;
    } catch (const NotFound&) {
      return report_(request.id, Outcome::kSilent);
    }
  }
  const SocketAddress& address = known->second.front();
  FileDescriptor connection(socket(address.family(), SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  // Out of descriptors, say: nothing was learned.
  if (connection.get() < 0) return report_(request.id, Outcome::kSilent);
  if (connect(connection.get(), address.get(), address.length) == 0)
    return report_(request.id, Outcome::kAnswered);
  if (errno == ECONNREFUSED) return report_(request.id, Outcome::kRefused);
  if (errno != EINPROGRESS) return report_(request.id, Outcome::kSilent);
  attempts_.emplace(request.id, Attempt{std::move(connection), request.deadline});
}

// Until a connection is decided, one is too late, or a new request comes.
void TcpProber::wait() {
  std::vector<pollfd> ends{{wake_.get(), POLLIN, 0}};
  std::vector<int> ids{-1};
  auto first = Clock::time_point::max();
  for (const auto& [id, attempt] : attempts_) {
    ends.push_back({attempt.connection.get(), POLLOUT, 0});
    ids.push_back(id);
    first = std::min(first, attempt.deadline);
  }
  int patience = -1;
  if (!attempts_.empty()) {
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(first - Clock::now());
    patience = static_cast<int>(std::max<std::int64_t>(left.count(), 0));
  }
  poll(ends.data(), ends.size(), patience);
  eventfd_t ignored = 0;
  eventfd_read(wake_.get(), &ignored);
  for (std::size_t i = 1; i < ends.size(); ++i) {
    const Attempt& attempt = attempts_.at(ids[i]);
    Outcome outcome = Outcome::kSilent;
    if (ends[i].revents != 0) {
      int error = 0;
      socklen_t length = sizeof error;
      getsockopt(ends[i].fd, SOL_SOCKET, SO_ERROR, &error, &length);
      if (error == 0) outcome = Outcome::kAnswered;
      if (error == ECONNREFUSED) outcome = Outcome::kRefused;
    } else if (Clock::now() < attempt.deadline) {
      continue;
    }
    attempts_.erase(ids[i]);
    report_(ids[i], outcome);
  }
}

}  // namespace tandem::internal
