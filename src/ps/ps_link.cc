#include "ps/ps_link.h"

#include <fmt/format.h>
#include <poll.h>

#include <algorithm>

#include "base/crc32c.h"
#include "base/log.h"
#include "ps/limits.h"
#include "ps/push_ledger.h"
#include "ps/wire_values.h"
#include "tandem/error.h"

namespace tandem::internal::ps {
namespace {

using std::chrono::milliseconds;

constexpr milliseconds kFirstBackOff{10};
constexpr milliseconds kLongestBackOff{500};
constexpr milliseconds kNotReadyPause{25};
constexpr std::chrono::seconds kSayAgain{10};
constexpr std::size_t kReadBlock = std::size_t{256} << 10;
constexpr std::size_t kMostParts = 64;
constexpr int kMostDamaged = 3;

}  // namespace

void PsHandle::Operation::answered(const std::string& who, const std::exception_ptr& failure) {
  {
    const std::lock_guard lock(mutex);
    if (failure && !error) error = failure;
    if (--missing[who] == 0) missing.erase(who);
  }
  changed.notify_all();
}

void PsHandle::Operation::was_initialised() {
  const std::lock_guard lock(mutex);
  ++initialised_before;
}

PsLink::PsLink(int ps, const PlacementPlan& plan, const PsClientOptions& options)
    : ps_(ps),
      plan_(plan),
      options_(options),
      digest_(plan.digest()),
      name_(fmt::format("ps {}", ps)),
      place_(name_),
      line_(options, ps, bell_, stopping_),
      next_step_(options.step),
      down_since_(Clock::now()),
      say_at_(Clock::now() + kSayAgain) {
  thread_ = std::thread([this] { run(); });
}

PsLink::~PsLink() {
  close();
}

void PsLink::close() {
  stopping_ = true;
  bell_.ring();
  if (thread_.joinable()) thread_.join();
}

void PsLink::ask(std::unique_ptr<Request> request) {
  {
    const std::lock_guard lock(mutex_);
    if (!error_) queue_.push_back(std::move(request));
  }
  if (request) {
    request->operation->answered(name_, error_);
  } else {
    bell_.ring();
  }
}

void PsLink::wait_until_ready() {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return ready_ || error_; });
  if (error_) std::rethrow_exception(error_);
}

std::uint64_t PsLink::lost(std::size_t shard) const {
  const std::lock_guard lock(mutex_);
  const auto found = lost_.find(shard);
  return found == lost_.end() ? 0 : found->second.count();
}

std::uint64_t PsLink::lost_at_worst() const {
  const std::lock_guard lock(mutex_);
  std::uint64_t worst = 0;
  for (const auto& [shard, lost] : lost_) worst = std::max(worst, lost.count());
  return worst;
}

void PsLink::run() {
  try {
    while (!finished_) {
      try {
        connect();
        while (!greet()) {
          check_patience("the chief has not initialised it");
          line_.pause(kNotReadyPause);
        }
        connected_ = true;
        exchange();
      } catch (const tcp::ChannelClosed& closed) {
        connected_ = false;
        line_.close();
        if (down_since_ == Clock::time_point{}) {
          down_since_ = Clock::now();
          say_at_ = down_since_ + kSayAgain;
          log_warning("worker {}: {} is gone ({}); waiting for its return", options_.worker, place_,
                      closed.what());
        }
        check_patience(closed.what());
        line_.pause(back_off_);
        back_off_ = std::min(2 * back_off_, kLongestBackOff);
      }
    }
    if (line_.is_open()) line_.channel().finish();
    fail(std::make_exception_ptr(FailedPrecondition("this worker has finished")));
  } catch (const PsLine::Stopped&) {
    fail(std::make_exception_ptr(Aborted("the client was closed")));
  } catch (...) {
    fail(std::current_exception());
  }
}

void PsLink::check_patience(const std::string& why) {
  const Clock::time_point now = Clock::now();
  const milliseconds most = was_ready_ ? options_.ps_outage : options_.connect_timeout;
  if (now - down_since_ > most) {
    throw Unavailable(fmt::format("{} {} for {:.1f} s ({}): start it again, or raise {}", place_,
                                  was_ready_ ? "has been gone" : "has not come",
                                  std::chrono::duration<double>(now - down_since_).count(), why,
                                  was_ready_ ? "--ps_outage" : "the time to connect"));
  }
  if (now < say_at_) return;
  say_at_ = now + kSayAgain;
  log_info("worker {}: waiting for {} since {:.0f} s: {}", options_.worker, place_,
           std::chrono::duration<double>(now - down_since_).count(), why);
}

void PsLink::connect() {
  std::string why = "nobody knows where it is";
  const auto endpoint = options_.locate(ps_, why);
  if (!endpoint) throw tcp::ChannelClosed(why);
  place_ = fmt::format("{} ({})", name_, endpoint->address);
  line_.connect(*endpoint);
}

// The steps before requests flow

std::vector<std::byte> PsLink::read_message(Prologue& prologue) {
  std::vector<std::byte> header = line_.read_message(prologue);
  if (prologue.kind == MessageKind::kAnswer) {
    const auto answer = decode<Answer>(prologue, header);
    if (answer.status == Status::kMalformed) {
      throw InvalidArgument(fmt::format("{}: {}", place_, answer.message));
    }
  }
  return header;
}

bool PsLink::greet() {
  if (!first_values_) {
    const std::lock_guard lock(mutex_);
    if (!queue_.empty() && queue_.front()->kind == MessageKind::kInitialise) {
      first_values_ = std::move(queue_.front());
      queue_.pop_front();
    }
  }
  if (first_values_) initialise(*first_values_);
  Hello hello{.worker = static_cast<std::uint32_t>(options_.worker),
              .incarnation = options_.incarnation,
              .plan_digest = digest_,
              .oldest_seq = next_seq_,
              .step = next_step_};
  for (const auto& request : unanswered_) {
    if (request->kind != MessageKind::kPush) continue;
    hello.oldest_seq = request->push.seq;
    hello.step = request->push.step;
    break;
  }
  std::string bytes = encode(hello);
  const iovec part{bytes.data(), bytes.size()};
  line_.write_all(std::span(&part, 1));
  Prologue prologue;
  const std::vector<std::byte> header = read_message(prologue);
  const auto reply = decode<HelloReply>(prologue, header);
  if (reply.status == Status::kNotReady) return false;
  if (reply.status == Status::kNotAdmitted) {
    throw FailedPrecondition(fmt::format("{}: {}", place_, reply.message));
  }
  if (reply.status != Status::kApplied) throw InvalidArgument(fmt::format("{}: {}", place_, reply.message));
  take_reply_of_hello(reply);
  return true;
}

void PsLink::initialise(const Request& request) {
  std::string header = encode(request.initialise);
  std::vector<iovec> parts{{header.data(), header.size()},
                           {const_cast<char*>(request.texts.data()), request.texts.size()}};
  for (const PayloadSpans& payload : request.payloads) {
    parts.push_back({const_cast<std::byte*>(payload.values.data()), payload.values.size()});
  }
  line_.write_all(parts);
  Prologue prologue;
  const std::vector<std::byte> bytes = read_message(prologue);
  const auto answer = decode<Answer>(prologue, bytes);
  if (answer.status == Status::kNotReady) return;
  if (answer.status == Status::kDamaged) ask_again(answer.message);
  if (answer.status != Status::kApplied) throw InvalidArgument(fmt::format("{}: {}", place_, answer.message));
  if (answer.before) request.operation->was_initialised();
  first_values_->operation->answered(name_);
  first_values_.reset();
}

void PsLink::take_reply_of_hello(const HelloReply& reply) {
  std::uint64_t worst = 0;
  {
    const std::lock_guard lock(mutex_);
    for (const HelloReply::Entry& entry : reply.shards) {
      worst = std::max(worst, lost_[entry.shard].add(entry.last_seq, entry.lost));
    }
    ready_ = true;
  }
  if (worst > 0) {
    log_warning("worker {}: {} is back from a snapshot: {} updates of this worker are lost", options_.worker,
                place_, worst);
  } else if (was_ready_) {
    log_info("worker {}: {} is back, and nothing is lost", options_.worker, place_);
  }
  if (!was_ready_) first_step_ = reply.step;
  global_step_ = reply.global_step;
  was_ready_ = true;
  down_since_ = {};
  back_off_ = kFirstBackOff;
  changed_.notify_all();
}

// Requests flow

void PsLink::exchange() {
  to_send_ = 0;
  out_.clear();
  reading_ = Reading::kPrologue;
  filled_ = 0;
  while (!finished_) {
    if (stopping_) throw PsLine::Stopped{};
    take_requests();
    const bool wrote = write_some();
    const bool read = read_some();
    if (wrote || read || line_.channel().has_unread()) continue;
    const short events = out_.empty() ? POLLIN : POLLIN | POLLOUT;
    std::array<pollfd, 2> polled{
        {{bell_.descriptor(), POLLIN, 0}, {line_.channel().descriptor(), events, 0}}};
    poll(polled.data(), polled.size(), 1000);
    bell_.heard();
  }
}

void PsLink::take_requests() {
  auto pushes = static_cast<std::size_t>(
      std::ranges::count(unanswered_, MessageKind::kPush, [](const auto& request) { return request->kind; }));
  const std::lock_guard lock(mutex_);
  while (!queue_.empty()) {
    Request& next = *queue_.front();
    if (next.kind == MessageKind::kPush) {
      if (pushes == kPushWindow) return;
      ++pushes;
      next.push.seq = next_seq_++;
    }
    unanswered_.push_back(std::move(queue_.front()));
    queue_.pop_front();
  }
}

// Of an earlier push, if there is some: fresh memory costs more than filling it.
std::vector<std::byte> PsLink::narrow_memory(std::size_t bytes) {
  auto spare = spare_narrowed_.extract(bytes);
  return spare.empty() ? std::vector<std::byte>(bytes) : std::move(spare.mapped());
}

void PsLink::prepare(Request& request) {
  if (!request.header.empty()) return;
  switch (request.kind) {
    case MessageKind::kPush:
      for (std::size_t i = 0; i < request.payloads.size(); ++i) {
        Push::Entry& entry = request.push.entries[i];
        PayloadSpans& payload = request.payloads[i];
        if (entry.kind == PayloadKind::kNothing) continue;
        if (payload.values.size() != entry.value_bytes()) {
          auto& narrowed = request.narrowed.emplace_back(narrow_memory(entry.value_bytes()));
          to_bfloat16(payload.values, narrowed);
          payload.values = narrowed;
        }
        entry.crc = payload_crc(payload);
      }
      request.header = encode(request.push);
      break;
    case MessageKind::kPull:
      for (std::size_t i = 0; i < request.targets.size(); ++i) {
        const auto rows = std::as_bytes(request.targets[i].row_ids);
        if (request.pull.entries[i].kind == PayloadKind::kRows) {
          request.pull.entries[i].crc = crc32c(rows.data(), rows.size());
        }
      }
      request.header = encode(request.pull);
      break;
    case MessageKind::kInitialise:
      request.header = encode(request.initialise);
      break;
    case MessageKind::kAssign:
      request.header = encode(request.assign);
      break;
    case MessageKind::kRead:
      request.header = encode(request.read);
      break;
    default:
      request.header =
          encode(Finished{.worker = request.push.worker, .incarnation = request.push.incarnation});
  }
}

bool PsLink::write_some() {
  if (out_.empty()) {
    if (to_send_ == unanswered_.size()) return false;
    Request& request = *unanswered_[to_send_];
    prepare(request);
    const auto add = [&](const void* data, std::size_t bytes) {
      if (bytes > 0) out_.push_back({const_cast<void*>(data), bytes});
    };
    add(request.header.data(), request.header.size());
    add(request.texts.data(), request.texts.size());
    for (const PayloadSpans& payload : request.payloads) {
      add(payload.row_ids.data(), payload.row_ids.size());
      add(payload.values.data(), payload.values.size());
    }
    for (const PullTarget& target : request.targets) {
      add(target.row_ids.data(), target.row_ids.size_bytes());
    }
    out_at_ = 0;
  }
  std::size_t moved = line_.channel().write(out_.data() + out_at_,
                                            static_cast<int>(std::min(kMostParts, out_.size() - out_at_)));
  if (moved == 0) return false;
  while (moved > 0) {
    iovec& part = out_[out_at_];
    const std::size_t bytes = std::min(moved, part.iov_len);
    part.iov_base = static_cast<std::byte*>(part.iov_base) + bytes;
    part.iov_len -= bytes;
    moved -= bytes;
    if (part.iov_len == 0) ++out_at_;
  }
  if (out_at_ == out_.size()) {
    out_.clear();
    ++to_send_;
  }
  return true;
}

bool PsLink::read_some() {
  const auto fill = [&](std::span<std::byte> bytes) {
    const std::size_t moved = line_.channel().read(bytes.data() + filled_, bytes.size() - filled_);
    filled_ += moved;
    return moved > 0;
  };
  switch (reading_) {
    case Reading::kPrologue:
      if (!fill(prologue_bytes_)) return false;
      if (filled_ < kPrologueBytes) return true;
      prologue_ = parse_prologue(prologue_bytes_, plan_.bytes() + most_state_bytes(plan_.bytes()));
      header_.resize(prologue_.header_bytes);
      filled_ = 0;
      reading_ = Reading::kHeader;
      return true;
    case Reading::kHeader:
      if (!fill(header_)) return false;
      if (filled_ < header_.size()) return true;
      filled_ = 0;
      reading_ = Reading::kPrologue;
      take_reply();
      return true;
    case Reading::kPayload:
      return read_payload();
  }
  return false;
}

void PsLink::take_reply() {
  if (prologue_.kind == MessageKind::kAnswer) {
    take_answer(decode<Answer>(prologue_, header_));
    return;
  }
  if (to_send_ == 0) throw tcp::ChannelClosed("answers what was not asked");
  switch (unanswered_.front()->kind) {
    case MessageKind::kPush:
      return take_push_replies(decode<PushReplies>(prologue_, header_));
    case MessageKind::kPull:
      return take_pull_reply(decode<PullReply>(prologue_, header_));
    case MessageKind::kRead:
      return take_read_reply(decode<ReadReply>(prologue_, header_));
    default:
      throw tcp::ChannelClosed("answers another message");
  }
}

void PsLink::take_answer(const Answer& answer) {
  if (to_send_ == 0) throw InvalidArgument(fmt::format("{}: {}", place_, answer.message));
  const Request& request = *unanswered_.front();
  if (answer.status == Status::kDamaged || answer.status == Status::kNotAdmitted) ask_again(answer.message);
  if (answer.status != Status::kApplied) throw InvalidArgument(fmt::format("{}: {}", place_, answer.message));
  if (answer.before) request.operation->was_initialised();
  if (request.kind == MessageKind::kAssign && request.assign.has_global_step) {
    global_step_ = request.assign.global_step;
  }
  finished_ = request.kind == MessageKind::kFinished;
  damaged_ = 0;
  answer_front();
}

// Saying hello again puts right what can be.
void PsLink::ask_again(const std::string& why) {
  if (++damaged_ > kMostDamaged) throw DataLoss(fmt::format("{}: {}", place_, why));
  throw tcp::ChannelClosed(why);
}

void PsLink::answer_front() {
  for (auto& memory : unanswered_.front()->narrowed) {
    const std::size_t bytes = memory.size();
    spare_narrowed_.emplace(bytes, std::move(memory));
  }
  unanswered_.front()->operation->answered(name_);
  unanswered_.pop_front();
  --to_send_;
}

void PsLink::take_push_replies(const PushReplies& replies) {
  const Request& request = *unanswered_.front();
  if (replies.seq != request.push.seq) throw tcp::ChannelClosed("answers another push");
  Status worst = Status::kApplied;
  for (const PushReplies::Entry& entry : replies.entries) worst = std::max(worst, entry.status);
  if (worst == Status::kGap || worst == Status::kNotAdmitted || worst == Status::kDamaged) {
    ask_again(replies.message.empty() ? status_name(worst) : replies.message);
  }
  if (!settles(worst)) throw InvalidArgument(fmt::format("{}: {}", place_, replies.message));
  damaged_ = 0;
  next_step_ = replies.step;
  if (ps_ == 0) global_step_ = replies.global_step;
  {
    const std::lock_guard lock(request.operation->mutex);
    PsOutcome& outcome = request.operation->outcome;
    if (ps_ == 0) outcome.global_step = replies.global_step;
    if (outcome.message.empty()) outcome.message = replies.message;
    outcome.status = std::max(outcome.status, worst);
    outcome.next_step = outcome.next_step == 0 ? replies.step : std::min(outcome.next_step, replies.step);
  }
  answer_front();
}

void PsLink::take_pull_reply(const PullReply& reply) {
  if (ps_ == 0) global_step_ = reply.global_step;
  const Request& request = *unanswered_.front();
  if (reply.entries.size() != request.targets.size()) throw tcp::ChannelClosed("answers another pull");
  parts_.clear();
  for (std::size_t i = 0; i < reply.entries.size(); ++i) {
    const PullReply::Entry& entry = reply.entries[i];
    const Pull::Entry& asked = request.pull.entries[i];
    if (entry.status == Status::kNotAdmitted) throw tcp::ChannelClosed(reply.message);
    if (entry.status != Status::kApplied) {
      throw InvalidArgument(fmt::format("{}: {}", place_, reply.message));
    }
    const auto& variable = plan_.variables()[static_cast<std::size_t>(plan_.shards()[asked.shard].variable)];
    const std::size_t wanted =
        request.targets[i].values.size() / wire_type_bytes(*wire_type_of(variable.dtype));
    if (entry.shard != asked.shard || entry.type != asked.type || entry.count != wanted) {
      throw tcp::ChannelClosed("answers another pull");
    }
    parts_.push_back({.shard = entry.shard,
                      .to = request.targets[i].values,
                      .wire_bytes = entry.payload_bytes(),
                      .crc = entry.crc});
  }
  begin_payload();
}

void PsLink::take_read_reply(ReadReply reply) {
  const Request& request = *unanswered_.front();
  if (reply.status == Status::kNotAdmitted) throw tcp::ChannelClosed(reply.message);
  if (reply.status != Status::kApplied) throw InvalidArgument(fmt::format("{}: {}", place_, reply.message));
  const Shard& shard = plan_.shards()[request.read.shard];
  const ShardTensor& values = reply.entries.front();
  if (values.shard != request.read.shard || values.payload_bytes() != shard.bytes ||
      prologue_.payload_bytes > shard.bytes + most_state_bytes(shard.bytes)) {
    throw tcp::ChannelClosed("answers another read");
  }
  parts_.clear();
  ShardImage& image = *request.image;
  image.values.resize(shard.bytes);
  image.state.resize(reply.entries.size() - 1);
  for (std::size_t i = 0; i < reply.entries.size(); ++i) {
    ShardTensor& tensor = reply.entries[i];
    std::vector<std::byte>& bytes = i == 0 ? image.values : image.state[i - 1].bytes;
    bytes.resize(tensor.payload_bytes());
    if (i > 0) {
      StateImage& state = image.state[i - 1];
      state.name = std::move(tensor.name);
      state.dtype = std::move(tensor.dtype);
      state.shape = std::move(tensor.shape);
    }
    parts_.push_back({.shard = tensor.shard, .to = bytes, .wire_bytes = bytes.size(), .crc = tensor.crc});
  }
  begin_payload();
}

void PsLink::begin_payload() {
  part_ = 0;
  crc_ = 0;
  reading_ = Reading::kPayload;
}

bool PsLink::read_payload() {
  bool moved = false;
  for (; part_ < parts_.size(); ++part_) {
    const Part& part = parts_[part_];
    std::span<std::byte> to = part.to;
    const bool narrowed = to.size() != part.wire_bytes;
    if (narrowed) {
      halves_.resize(part.wire_bytes);
      to = halves_;
    }
    while (filled_ < to.size()) {
      const std::size_t got =
          line_.channel().read(to.data() + filled_, std::min(kReadBlock, to.size() - filled_));
      if (got == 0) return moved;
      moved = true;
      crc_ = crc32c(to.data() + filled_, got, crc_);
      filled_ += got;
      // What is to be sent must not wait for all of it.
      if (!out_.empty() || to_send_ < unanswered_.size()) break;
    }
    if (filled_ < to.size()) return true;
    if (crc_ != part.crc) {
      ask_again(fmt::format("values of {} are damaged on the way", plan_.shard_name(part.shard)));
    }
    if (narrowed) from_bfloat16(halves_, part.to);
    filled_ = 0;
    crc_ = 0;
  }
  reading_ = Reading::kPrologue;
  damaged_ = 0;
  answer_front();
  return true;
}

void PsLink::fail(const std::exception_ptr& error) {
  {
    const std::lock_guard lock(mutex_);
    error_ = error;
    for (auto& request : queue_) unanswered_.push_back(std::move(request));
    queue_.clear();
  }
  if (first_values_) first_values_->operation->answered(name_, error);
  for (const auto& request : unanswered_) request->operation->answered(name_, error);
  unanswered_.clear();
  changed_.notify_all();
}

}  // namespace tandem::internal::ps
