#include "ps/ps_link.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/log.h"
#include "tandem/error.h"

namespace tandem::internal::ps {
namespace {

using std::chrono::milliseconds;

constexpr milliseconds kFirstBackOff{10};
constexpr milliseconds kLongestBackOff{500};
constexpr milliseconds kNotReadyPause{25};
constexpr std::chrono::seconds kSayAgain{10};
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
          if (was_ready_ && gave_values_) {
            throw Unavailable(
                fmt::format("{} has come back without what it held, from no snapshot: give it a "
                            "snapshot folder, or go on from a checkpoint",
                            place_));
          }
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
  } catch (const Unavailable&) {
    lost_for_good_ = true;
    fail(std::current_exception());
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
  gave_values_ = true;
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
    log_warning("worker {}: {} is back from an earlier state: {} updates of this worker are lost",
                options_.worker, place_, worst);
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

// Saying hello again puts right what can be.
void PsLink::ask_again(const std::string& why) {
  if (++damaged_ > kMostDamaged) throw DataLoss(fmt::format("{}: {}", place_, why));
  throw tcp::ChannelClosed(why);
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
