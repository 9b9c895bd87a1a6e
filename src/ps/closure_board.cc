#include "ps/closure_board.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "base/log.h"
#include "base/throw_error.h"
#include "ps/closure_wire.h"

namespace tandem::internal::ps {
namespace {

constexpr std::chrono::seconds kSayAgain{5};

std::exception_ptr error_of(ErrorCode code, const std::string& message) {
  try {
    throw_error(code, message);
  } catch (...) {
    return std::current_exception();
  }
}

}  // namespace

ClosureBoard::ClosureBoard(ClosureDispatcherOptions options)
    : options_(std::move(options)),
      seats_(options_.workers.size()),
      queue_(options_.first_closure, options_.queue_size) {}

// For those who schedule and wait

// Returns once over() is true. Says who is missing while nobody is there, and throws after a while.
template <typename Over>
void ClosureBoard::wait(std::unique_lock<std::mutex>& lock, Over over) {
  Clock::time_point say_at = Clock::now() + kSayAgain;
  while (!over()) {
    check_somebody_is_there(say_at);
    Clock::time_point until = say_at;
    if (ready_ == 0) until = std::min(until, none_ready_since_ + options_.all_workers_timeout);
    changed_.wait_until(lock, until);
  }
}

void ClosureBoard::check_somebody_is_there(Clock::time_point& say_at) const {
  const Clock::time_point now = Clock::now();
  if (ready_ == 0) {
    const auto since = std::chrono::duration<double>(now - none_ready_since_).count();
    const bool too_long = now >= none_ready_since_ + options_.all_workers_timeout;
    if (too_long || now >= say_at) {
      std::vector<std::string> missing;
      for (std::size_t worker = 0; worker < seats_.size(); ++worker) {
        missing.push_back(fmt::format("{} ({})", options_.workers[worker], seats_[worker].why));
      }
      const std::string who = fmt::format("{}", fmt::join(missing, ", "));
      if (too_long) {
        throw Unavailable(
            fmt::format("no worker has been there for {:.1f} s: {}; start them again", since, who));
      }
      log_info("coordinator: waiting for workers since {:.0f} s: {}", since, who);
    }
  }
  if (now >= say_at) say_at = now + kSayAgain;
}

void ClosureBoard::throw_failure() {
  queue_.clear_failure();
  failure_text_.clear();
  std::rethrow_exception(std::exchange(failure_, nullptr));
}

std::shared_ptr<ClosureBoard::State> ClosureBoard::schedule(const std::string& function,
                                                            const std::string& arguments) {
  if (arguments.size() > kMostClosureBytes) {
    throw InvalidArgument(fmt::format("the arguments of {} have {} bytes: at most {}", function,
                                      arguments.size(), kMostClosureBytes));
  }
  auto call = std::make_shared<const std::string>(encode_call({function, arguments}));
  std::unique_lock lock(mutex_);
  wait(lock, [&] { return failure_ ? queue_.running() == 0 : !queue_.full(); });
  if (failure_) throw_failure();
  auto state = std::make_shared<State>();
  state->closure = queue_.schedule();
  state->name = fmt::format("closure {} ({})", state->closure - options_.first_closure + 1, function);
  state->call = std::move(call);
  open_.emplace(state->closure, state);
  wake_one();
  return state;
}

void ClosureBoard::join() {
  std::unique_lock lock(mutex_);
  wait(lock, [&] { return queue_.idle(); });
  if (failure_) throw_failure();
}

bool ClosureBoard::done() {
  const std::lock_guard lock(mutex_);
  if (failure_ && queue_.running() == 0) throw_failure();
  return queue_.idle();
}

bool ClosureBoard::is_over(const State& state) const {
  const std::lock_guard lock(mutex_);
  return state.over;
}

const std::string& ClosureBoard::wait(const State& state) {
  std::unique_lock lock(mutex_);
  wait(lock, [&] { return state.over; });
  if (state.error) std::rethrow_exception(state.error);
  return state.result;
}

int ClosureBoard::ready_workers() const {
  const std::lock_guard lock(mutex_);
  return ready_;
}

void ClosureBoard::stop(const std::string& failure) {
  {
    const std::lock_guard lock(mutex_);
    stopped_ = true;
    farewell_ = failure;
    queue_.fail();
    const auto open = std::exchange(open_, {});
    for (const auto& [closure, state] : open) {
      state->over = true;
      state->error = std::make_exception_ptr(
          Cancelled(fmt::format("{} was cancelled: its coordinator is gone", state->name)));
    }
  }
  changed_.notify_all();
  for (const Seat& seat : seats_) seat.bell.ring();
}

std::string ClosureBoard::farewell() const {
  const std::lock_guard lock(mutex_);
  return farewell_;
}

// For the threads of the workers

void ClosureBoard::expect_function(const std::string& name) {
  const std::lock_guard lock(mutex_);
  expected_.insert(name);
  for (int worker = 0; worker < static_cast<int>(seats_.size()); ++worker) {
    if (seat(worker).ready) check_functions(worker);
  }
}

void ClosureBoard::check_functions(int worker) {
  Seat& there = seat(worker);
  const auto missing = std::ranges::find_if(
      expected_, [&](const std::string& function) { return !there.functions.contains(function); });
  if (missing == expected_.end() || there.refusal) return;
  there.refusal = fmt::format("{} has no function \"{}\": add_function() on every task, before serve()",
                              name(worker), *missing);
  keep_failure(std::make_exception_ptr(NotFound(*there.refusal)), *there.refusal);
  there.bell.ring();
}

void ClosureBoard::set_ready(int worker, std::vector<std::string> functions) {
  const std::lock_guard lock(mutex_);
  Seat& there = seat(worker);
  there.functions = {functions.begin(), functions.end()};
  there.refusal.reset();
  check_functions(worker);
  if (there.refusal) return;
  if (there.was_ready) log_info("coordinator: {} is back", name(worker));
  there.ready = there.was_ready = true;
  ++ready_;
  changed_.notify_all();
}

std::optional<std::string> ClosureBoard::refusal(int worker) const {
  const std::lock_guard lock(mutex_);
  return seats_[static_cast<std::size_t>(worker)].refusal;
}

void ClosureBoard::set_gone(int worker, const std::string& why) {
  const std::lock_guard lock(mutex_);
  Seat& there = seat(worker);
  there.why = why;
  there.refusal.reset();
  if (!std::exchange(there.ready, false)) return;
  idle_.erase(worker);
  if (--ready_ == 0) none_ready_since_ = Clock::now();
  std::string again;
  if (queue_.running_on(worker)) {
    const ClosureQueue::Lost lost = queue_.lose(worker);
    if (const auto found = open_.find(lost.closure); found != open_.end()) {
      again = fmt::format("; {} will run again (run {})", found->second->name, found->second->runs + 1);
    }
    if (lost.cancelled) {
      again.clear();
      cancel(lost.closure, failure_text_);
    }
  }
  if (!stopped_) log_warning("coordinator: {} is lost: {}{}", name(worker), why, again);
  // What it was woken for, or gives back, is for somebody else.
  if (queue_.queued() > 0) wake_one();
  changed_.notify_all();
}

std::optional<ClosureBoard::Job> ClosureBoard::take(int worker) {
  const std::lock_guard lock(mutex_);
  if (stopped_ || seat(worker).refusal) return std::nullopt;
  const auto closure = queue_.take(worker);
  if (!closure) {
    idle_.insert(worker);
    return std::nullopt;
  }
  idle_.erase(worker);
  State& state = *open_.at(*closure);
  ++state.runs;
  changed_.notify_all();  // there is room in the queue
  return Job{.closure = *closure, .settled_below = queue_.settled_below(), .call = state.call};
}

void ClosureBoard::succeed(int worker, std::string result) {
  const std::lock_guard lock(mutex_);
  settle(queue_.finish(worker), std::move(result), nullptr);
}

void ClosureBoard::fail(int worker, ErrorCode code, const std::string& text) {
  const std::lock_guard lock(mutex_);
  const std::uint64_t closure = queue_.finish(worker);
  const auto found = open_.find(closure);
  if (found == open_.end()) return;
  const std::string message =
      fmt::format("{}: {}: {}", name(worker), found->second->name, closure_text(text));
  const std::exception_ptr error = error_of(code, message);
  settle(closure, {}, error);
  keep_failure(error, message);
}

void ClosureBoard::keep_failure(const std::exception_ptr& error, const std::string& text) {
  if (!failure_) {
    failure_ = error;
    failure_text_ = text;
  }
  for (const std::uint64_t closure : queue_.fail()) cancel(closure, failure_text_);
  changed_.notify_all();
}

void ClosureBoard::settle(std::uint64_t closure, std::string result, const std::exception_ptr& error) {
  const auto found = open_.find(closure);
  if (found == open_.end()) return;
  State& state = *found->second;
  state.over = true;
  state.result = std::move(result);
  state.error = error;
  state.call.reset();
  open_.erase(found);
  changed_.notify_all();
}

void ClosureBoard::cancel(std::uint64_t closure, const std::string& why) {
  const auto found = open_.find(closure);
  if (found == open_.end()) return;
  const std::string message = fmt::format("{} was cancelled, because of {}", found->second->name, why);
  settle(closure, {}, std::make_exception_ptr(Cancelled(message)));
}

void ClosureBoard::wake_one() {
  if (idle_.empty()) return;
  const int worker = *idle_.begin();
  idle_.erase(idle_.begin());
  seat(worker).bell.ring();
}

}  // namespace tandem::internal::ps
