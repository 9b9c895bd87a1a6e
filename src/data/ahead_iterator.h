#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "data/dataset_view.h"

namespace tandem::internal {

struct AheadOptions {
  int threads = 1;
  // Elements that a thread takes at once, at most. It takes as many as are done in a fraction of a
  // millisecond: a hand-over then costs little, and neither the first element nor the end has to wait for
  // long.
  std::int64_t max_chunk_size = 1;
  // Chunks begun and not yet asked for: where the threads stop and wait.
  std::int64_t max_chunks = 1;
};

// Prepares elements ahead of whoever asks, in threads of its own, and hands them out in upstream's order.
//
// The threads take turns to read a chunk from upstream, then work on their chunks at once. Each chunk has a
// number, given while it is read, and waits in its place of a ring until that number's turn comes. What
// upstream or the work throws ends its chunk, and comes out of next() after the elements that came before it.
//
// The threads start at the first next() and end at the last, at an error, or with the iterator.
class AheadIterator final : public ElementIterator {
 public:
  // An empty `work` leaves the elements as they are.
  AheadIterator(std::unique_ptr<ElementIterator> upstream, std::function<void(Element&)> work,
                AheadOptions options);
  ~AheadIterator() override;

  bool next(Element& element) override;
  std::int64_t skip(std::int64_t n) override;
  SkippedRows skip_rows(std::int64_t elements, std::int64_t rows) override;

 private:
  struct Chunk {
    std::vector<Element> elements;
    std::exception_ptr error;  // thrown after the elements
    bool last = false;
    bool ready = false;
  };

  void start();
  void stop();
  void run();
  bool begin(std::int64_t& number);
  void read(Chunk& chunk);
  void work(Chunk& chunk);
  void adapt(std::int64_t size, std::chrono::nanoseconds took);
  void wait_for_chunk();

  const std::unique_ptr<ElementIterator> upstream_;
  const std::function<void(Element&)> work_;
  const AheadOptions options_;

  // Whoever reads upstream holds it: chunks are numbered in upstream's order.
  std::mutex reading_;

  std::mutex mutex_;  // guards what follows
  std::condition_variable chunk_ready_;
  std::condition_variable room_;
  std::vector<Chunk> ring_;
  std::int64_t begun_ = 0;
  std::int64_t taken_ = 0;
  bool read_all_ = false;
  std::atomic<std::int64_t> chunk_size_{1};
  std::atomic<bool> stopping_{false};  // written under the mutex, looked at between elements without

  // Of the thread that asks.
  std::vector<std::thread> threads_;
  bool started_ = false;
  Chunk current_;
  std::size_t position_ = 0;
};

}  // namespace tandem::internal
