#include "comm/tcp/mesh.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>

#include "base/log.h"
#include "comm/choose_algorithm.h"
#include "comm/tcp/buffers.h"
#include "tandem/error.h"

namespace tandem::internal::tcp {
namespace {

using Clock = Operation::Clock;

constexpr std::chrono::seconds kNotice{30};
constexpr std::chrono::milliseconds kFarewell{500};

double seconds(Clock::duration duration) {
  return std::chrono::duration<double>(duration).count();
}

bool is_point_to_point(OperationKind kind) {
  return kind == OperationKind::kSend || kind == OperationKind::kReceive;
}

}  // namespace

Mesh::Mesh(int rank, std::vector<std::string> names, std::vector<Channel> channels)
    : ::gloo::transport::Context(rank, static_cast<int>(names.size())),
      names_(std::move(names)),
      wake_(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {
  pairs_.resize(names_.size());
  for (int member = 0; member < size; ++member) {
    Channel& channel = channels[static_cast<std::size_t>(member)];
    if (channel)
      pairs_[static_cast<std::size_t>(member)] = std::make_unique<Link>(*this, member, std::move(channel));
  }
}

Mesh::~Mesh() = default;

void Mesh::begin(const Operation& operation) {
  const bool point_to_point = is_point_to_point(operation.kind);
  if (!point_to_point) ++collectives_;
  header_ = {};
  header_.operation = operation.kind;
  header_.type = operation.data.type;
  header_.algorithm =
      operation.kind == OperationKind::kAllReduce ? operation.algorithm : AllReduceAlgorithm::kAuto;
  header_.root = operation.root;
  // Odd numbers: what is sent between two collectives.
  header_.sequence = 2 * collectives_ + (point_to_point ? 1 : 0);
  header_.count = operation.data.count;
  std::copy_n(operation.name.begin(), std::min(operation.name.size(), header_.name.size()),
              header_.name.begin());
  deadline_ = operation.deadline;
  begun_ = Clock::now();
  next_notice_ = begun_ + kNotice;
  operations_.fetch_add(1, std::memory_order_relaxed);
  for (int member = 0; member < size; ++member) {
    if (has_link(member)) link(member).release();
  }
}

void Mesh::wait(int& count, Link* awaited) {
  if (awaited && count == 0 && !interrupted()) {
    awaited->write_some();
    awaited->read_some();
  }
  while (count == 0) poll_links(awaited);
  --count;
}

void Mesh::poll_links(Link* awaited) {
  if (interrupted()) throw Aborted(fmt::format("{} was told to stop in {}", name(rank), describe()));
  bool unread = false;
  for (int member = 0; member < size; ++member) {
    if (!has_link(member) || !link(member).has_unread()) continue;
    link(member).read_some();
    unread = true;
  }
  if (unread) return;
  if (awaited) {
    awaited->check_can_come();
  } else {
    for (int member = 0; member < size; ++member) {
      if (has_link(member)) link(member).check_receives();
    }
  }

  std::vector<pollfd> polled{{wake_.get(), POLLIN, 0}};
  std::vector<Link*> links{nullptr};
  for (int member = 0; member < size; ++member) {
    if (!has_link(member)) continue;
    Link& each = link(member);
    const short events =
        static_cast<short>((each.can_read() ? POLLIN : 0) | (each.has_unsent() ? POLLOUT : 0));
    if (events == 0) continue;
    polled.push_back({each.descriptor(), events, 0});
    links.push_back(&each);
  }
  const Clock::time_point now = Clock::now();
  if (now >= deadline_) {
    throw DeadlineExceeded(fmt::format("{} waited {:.1f} s in {} for {}", name(rank), seconds(now - begun_),
                                       describe(), awaited ? name(awaited->peer()) : awaited_members()));
  }
  if (now >= next_notice_) {
    log_warning("{} waits in {} for {}, {:.0f} s so far", name(rank), describe(),
                awaited ? name(awaited->peer()) : awaited_members(), seconds(now - begun_));
    next_notice_ = now + kNotice;
  }
  const auto patience = std::chrono::ceil<std::chrono::milliseconds>(std::min(deadline_, next_notice_) - now);
  if (poll(polled.data(), polled.size(), static_cast<int>(patience.count())) <= 0) return;
  for (std::size_t i = 1; i < polled.size(); ++i) {
    if (polled[i].revents & POLLOUT) links[i]->write_some();
    if (polled[i].revents & (POLLIN | POLLHUP | POLLERR)) links[i]->read_some();
  }
}

std::string Mesh::awaited_members() const {
  std::vector<std::string> awaited;
  for (int member = 0; member < size; ++member) {
    if (!has_link(member)) continue;
    const Link& each = static_cast<const Link&>(*pairs_[static_cast<std::size_t>(member)]);
    if (each.has_unsent() || each.has_receives()) awaited.push_back(name(member));
  }
  return awaited.empty() ? "the others" : fmt::format("{}", fmt::join(awaited, ", "));
}

void Mesh::interrupt() {
  interrupted_.store(true, std::memory_order_release);
  const std::uint64_t one = 1;
  [[maybe_unused]] const ssize_t written = write(wake_.get(), &one, sizeof one);
}

void Mesh::give_up(ErrorCode code, const std::string& reason) {
  interrupted_.store(true, std::memory_order_release);
  FrameHeader header = header_;
  header.kind = FrameKind::kAbort;
  header.offset = static_cast<std::uint64_t>(code);
  for (int member = 0; member < size; ++member) {
    if (has_link(member)) link(member).give_up(header, reason.substr(0, kLongestReason));
  }
}

void Mesh::say_goodbye() {
  FrameHeader header = header_;
  header.kind = FrameKind::kGoodbye;
  std::vector<Link*> open;
  for (int member = 0; member < size; ++member) {
    if (!has_link(member)) continue;
    link(member).say_goodbye(header);
    open.push_back(&link(member));
  }
  // Closing at once could discard what the other side has not read yet.
  const Clock::time_point until = Clock::now() + kFarewell;
  while (!open.empty() && Clock::now() < until) {
    std::vector<pollfd> polled;
    for (const Link* each : open) polled.push_back({each->descriptor(), POLLIN, 0});
    const auto patience = std::chrono::ceil<std::chrono::milliseconds>(until - Clock::now());
    if (poll(polled.data(), polled.size(), std::max(0, static_cast<int>(patience.count()))) <= 0) break;
    std::erase_if(open, [](Link* each) { return each->drain(); });
  }
}

Traffic Mesh::traffic() const {
  return {operations_.load(std::memory_order_relaxed), bytes_sent_.load(std::memory_order_relaxed),
          bytes_received_.load(std::memory_order_relaxed)};
}

std::string Mesh::describe(const FrameHeader& header) {
  std::string text = operation_name(header.operation);
  if (!name_of(header).empty()) text += fmt::format(" \"{}\"", name_of(header));
  text += fmt::format(" #{}", header.sequence / 2);
  if (header.operation != OperationKind::kBarrier) {
    text += fmt::format(" of {} {}", header.count, element_name(header.type));
  }
  if (header.operation == OperationKind::kAllReduce)
    text += fmt::format(" by {}", algorithm_name(header.algorithm));
  return text;
}

std::unique_ptr<::gloo::transport::Pair>& Mesh::createPair(int member) {
  return pairs_[static_cast<std::size_t>(member)];
}

std::unique_ptr<::gloo::transport::UnboundBuffer> Mesh::createUnboundBuffer(void* data, std::size_t bytes) {
  return std::make_unique<PostedBuffer>(*this, data, bytes);
}

}  // namespace tandem::internal::tcp
