#include "ps/staging.h"

#include <sys/mman.h>

#include <algorithm>
#include <cassert>
#include <chrono>
#include <new>
#include <utility>

namespace tandem::internal::ps {
namespace {

// Larger ones come from the system and go back to it whole, so that none is left in a heap with holes.
constexpr std::size_t kMapped = std::size_t{128} << 10;
constexpr std::size_t kPage = 4096;

// The same room for sizes that differ little, so that buffers can be used again.
std::size_t room_for(std::size_t size) {
  const std::size_t grain = size >= kMapped ? kPage : 64;
  return (size + grain - 1) / grain * grain;
}

}  // namespace

Staging::Buffer::Buffer(Buffer&& other) noexcept
    : home_(std::exchange(other.home_, nullptr)),
      data_(std::exchange(other.data_, nullptr)),
      size_(std::exchange(other.size_, 0)),
      room_(other.room_) {}

Staging::Buffer& Staging::Buffer::operator=(Buffer&& other) noexcept {
  std::swap(home_, other.home_);
  std::swap(data_, other.data_);
  std::swap(size_, other.size_);
  std::swap(room_, other.room_);
  return *this;
}

Staging::Buffer::~Buffer() {
  if (home_) home_->give_back(data_, room_);
}

Staging::~Staging() {
  for (const auto& [room, data] : kept_) release(data, room);
}

std::byte* Staging::allocate(std::size_t room) {
  if (room < kMapped) return static_cast<std::byte*>(::operator new (room, std::align_val_t{64}));
  void* data = mmap(nullptr, room, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (data == MAP_FAILED) throw std::bad_alloc();
  return static_cast<std::byte*>(data);
}

void Staging::release(std::byte* data, std::size_t room) {
  if (room < kMapped) {
    ::operator delete (data, std::align_val_t{64});
  } else {
    munmap(data, room);
  }
}

void Staging::set_budget(std::uint64_t bytes) {
  const std::lock_guard lock(mutex_);
  budget_ = bytes;
}

std::uint64_t Staging::budget() const {
  const std::lock_guard lock(mutex_);
  return budget_;
}

// Lets kept buffers go, the largest first, until so many bytes more fit.
void Staging::make_room(std::uint64_t bytes) {
  while (used_ + bytes > budget_ && !kept_.empty()) {
    const auto largest = std::prev(kept_.end());
    release(largest->second, largest->first);
    used_ -= largest->first;
    kept_bytes_ -= largest->first;
    kept_.erase(largest);
  }
}

Staging::Buffer Staging::make(std::size_t size) {
  if (size == 0) return {};
  const std::size_t room = room_for(size);
  if (const auto kept = kept_.find(room); kept != kept_.end()) {
    std::byte* data = kept->second;
    kept_.erase(kept);
    kept_bytes_ -= room;
    return {this, data, size, room};
  }
  make_room(room);
  std::byte* data = allocate(room);
  used_ += room;
  return {this, data, size, room};
}

std::optional<std::vector<Staging::Buffer>> Staging::try_take(const void* who,
                                                              std::span<const std::size_t> sizes) {
  std::uint64_t total = 0;
  for (const std::size_t size : sizes) total += room_for(size);
  const std::lock_guard lock(mutex_);
  const bool first = line_.empty() || line_.front() == who;
  // What is larger than everything goes when nothing else is there: better than never.
  const bool fits = used_ - kept_bytes_ + total <= budget_ || used_ == kept_bytes_;
  if (!first || !fits) {
    if (std::ranges::find(line_, who) == line_.end()) line_.push_back(who);
    return std::nullopt;
  }
  if (!line_.empty()) line_.pop_front();
  std::vector<Buffer> buffers;
  buffers.reserve(sizes.size());
  for (const std::size_t size : sizes) buffers.push_back(make(size));
  return buffers;
}

void Staging::forget(const void* who) {
  {
    const std::lock_guard lock(mutex_);
    if (std::erase(line_, who) == 0) return;
  }
  changed_.notify_all();
  if (freed_) freed_();
}

std::optional<Staging::Buffer> Staging::take(std::size_t size, const std::function<bool()>& stop) {
  const std::size_t sizes[] = {size};
  while (!stop()) {
    if (auto buffers = try_take(&sizes, sizes)) return std::move(buffers->front());
    std::unique_lock lock(mutex_);
    changed_.wait_for(lock, std::chrono::milliseconds(50));
  }
  forget(&sizes);
  return std::nullopt;
}

void Staging::give_back(std::byte* data, std::size_t room) {
  bool waited_for = false;
  {
    const std::lock_guard lock(mutex_);
    if (used_ <= budget_) {
      kept_.emplace(room, data);
      kept_bytes_ += room;
    } else {
      release(data, room);
      used_ -= room;
    }
    waited_for = !line_.empty();
  }
  if (!waited_for) return;
  changed_.notify_all();
  if (freed_) freed_();
}

}  // namespace tandem::internal::ps
