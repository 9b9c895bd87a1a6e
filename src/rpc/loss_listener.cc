#include "rpc/loss_listener.h"

#include <exception>
#include <utility>

#include "base/log.h"

namespace tandem::internal {

void LossListener::set(Listener listener) {
  std::unique_lock lock(mutex_);
  called_.wait(lock, [&] { return !caller_ || caller_ == std::this_thread::get_id(); });
  std::swap(listener_, listener);  // the former is destroyed without the lock
  if (lost_) call(lock);
}

void LossListener::tell(const LostTask& lost) {
  std::unique_lock lock(mutex_);
  if (lost_) return;
  lost_ = lost;
  call(lock);
}

void LossListener::call(std::unique_lock<std::mutex>& lock) {
  Listener listener = std::exchange(listener_, nullptr);
  if (!listener) return;
  const auto outer = std::exchange(caller_, std::this_thread::get_id());
  lock.unlock();
  try {
    listener(*lost_);  // which never changes again
  } catch (const std::exception& error) {
    log_warning("the listener to the loss of {} threw: {}", lost_->task.name(), error.what());
  } catch (...) {
    log_warning("the listener to the loss of {} threw", lost_->task.name());
  }
  listener = nullptr;  // before the lock: what it holds may have a destructor that asks us something
  lock.lock();
  caller_ = outer;
  called_.notify_all();
}

}  // namespace tandem::internal
