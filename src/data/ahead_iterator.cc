#include "data/ahead_iterator.h"

#include <algorithm>
#include <utility>

#include "data/one_thread.h"

namespace tandem::internal {
namespace {

using Clock = std::chrono::steady_clock;

// A chunk that took less may be larger, one that took more should be smaller.
constexpr std::chrono::microseconds kShortChunk{250};
constexpr std::chrono::microseconds kLongChunk{1000};

}  // namespace

AheadIterator::AheadIterator(std::unique_ptr<ElementIterator> upstream, std::function<void(Element&)> work,
                             AheadOptions options)
    : upstream_(std::move(upstream)), work_(std::move(work)), options_(options), ring_(options.max_chunks) {}

AheadIterator::~AheadIterator() {
  stop();
}

bool AheadIterator::next(Element& element) {
  if (!started_) start();
  while (position_ == current_.elements.size()) {
    if (current_.last) {
      stop();
      if (current_.error) std::rethrow_exception(std::exchange(current_.error, nullptr));
      return false;
    }
    wait_for_chunk();
  }
  element = std::move(current_.elements[position_++]);
  return true;
}

std::int64_t AheadIterator::skip(std::int64_t n) {
  return started_ ? ElementIterator::skip(n) : upstream_->skip(n);
}

// The work may change the number of rows.
SkippedRows AheadIterator::skip_rows(std::int64_t elements, std::int64_t rows) {
  return started_ || work_ ? SkippedRows{} : upstream_->skip_rows(elements, rows);
}

void AheadIterator::start() {
  started_ = true;
  at::get_num_threads();  // before our threads set theirs: see one_thread.h
  for (int i = 0; i < options_.threads; ++i) threads_.emplace_back([this] { run(); });
}

void AheadIterator::stop() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  room_.notify_all();
  for (auto& thread : threads_) thread.join();
  threads_.clear();
}

void AheadIterator::wait_for_chunk() {
  std::unique_lock lock(mutex_);
  Chunk& next = ring_[taken_ % options_.max_chunks];
  // No deadline: a map may take as long as it likes, and a thread that began a chunk always ends it.
  chunk_ready_.wait(lock, [&] { return next.ready; });
  current_ = std::exchange(next, {});
  position_ = 0;
  ++taken_;
  lock.unlock();
  room_.notify_one();
}

void AheadIterator::run() {
  use_one_thread();
  while (true) {
    Chunk chunk;
    std::int64_t number = 0;
    Clock::time_point begun;
    {
      const std::lock_guard reading(reading_);
      if (!begin(number)) return;
      begun = Clock::now();
      read(chunk);
      if (chunk.last) {
        const std::lock_guard lock(mutex_);
        read_all_ = true;
      }
    }
    work(chunk);
    adapt(std::ssize(chunk.elements), Clock::now() - begun);
    {
      const std::lock_guard lock(mutex_);
      chunk.ready = true;
      ring_[number % options_.max_chunks] = std::move(chunk);
    }
    chunk_ready_.notify_one();
  }
}

// Waits for room in the ring; false if there is nothing left to do.
bool AheadIterator::begin(std::int64_t& number) {
  std::unique_lock lock(mutex_);
  room_.wait(lock, [&] { return stopping_ || read_all_ || begun_ - taken_ < options_.max_chunks; });
  number = begun_;
  if (stopping_ || read_all_) return false;
  ++begun_;
  return true;
}

void AheadIterator::read(Chunk& chunk) try {
  const std::int64_t size = chunk_size_;
  chunk.elements.reserve(size);
  for (Element element; !stopping_ && std::ssize(chunk.elements) < size;) {
    if (!upstream_->next(element)) {
      chunk.last = true;
      break;
    }
    chunk.elements.push_back(std::move(element));
  }
} catch (...) {
  chunk.error = std::current_exception();
  chunk.last = true;
}

void AheadIterator::adapt(std::int64_t size, std::chrono::nanoseconds took) {
  if (took < kShortChunk) chunk_size_ = std::clamp<std::int64_t>(2 * size, 1, options_.max_chunk_size);
  if (took > kLongChunk) chunk_size_ = std::max<std::int64_t>(size / 2, 1);
}

void AheadIterator::work(Chunk& chunk) {
  if (!work_) return;
  std::size_t done = 0;
  try {
    for (; done < chunk.elements.size() && !stopping_; ++done) work_(chunk.elements[done]);
  } catch (...) {
    chunk.elements.resize(done);
    chunk.error = std::current_exception();
    chunk.last = true;
  }
}

}  // namespace tandem::internal
