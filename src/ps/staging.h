#pragma once

#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <vector>

namespace tandem::internal::ps {

// The memory for tensors on their way through a ps: pushes that come in, copies that go out or to the disk.
// There is a fixed amount of it, whatever the number of workers; who gets none waits in line. Buffers that
// come back are kept for the next one of their size: fresh memory costs more than filling it.
//
// Any thread. Nobody may wait here while holding a buffer, or all might.
class Staging {
 public:
  // Goes back when it is destroyed.
  class Buffer {
   public:
    Buffer() = default;
    Buffer(Buffer&& other) noexcept;
    Buffer& operator=(Buffer&& other) noexcept;
    ~Buffer();

    std::span<std::byte> bytes() const { return {data_, size_}; }

   private:
    friend class Staging;
    Buffer(Staging* home, std::byte* data, std::size_t size, std::size_t room)
        : home_(home), data_(data), size_(size), room_(room) {}

    Staging* home_ = nullptr;
    std::byte* data_ = nullptr;
    std::size_t size_ = 0;
    std::size_t room_ = 0;
  };

  // `freed` is called, from whatever thread, when something came back and somebody waits.
  explicit Staging(std::function<void()> freed = {}) : freed_(std::move(freed)) {}
  ~Staging();
  Staging(const Staging&) = delete;

  void set_budget(std::uint64_t bytes);
  std::uint64_t budget() const;

  // All of them, or nothing if they do not fit now: `who` is in line then, and asks again when freed() says
  // so, or calls forget(). Together they must not be more than the budget.
  std::optional<std::vector<Buffer>> try_take(const void* who, std::span<const std::size_t> sizes);
  void forget(const void* who);

  // Waits, until `stop` says so.
  std::optional<Buffer> take(std::size_t size, const std::function<bool()>& stop);

 private:
  void give_back(std::byte* data, std::size_t room);
  void make_room(std::uint64_t bytes);
  Buffer make(std::size_t size);
  static std::byte* allocate(std::size_t room);
  static void release(std::byte* data, std::size_t room);

  const std::function<void()> freed_;
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::uint64_t budget_ = std::uint64_t{32} << 20;
  std::uint64_t used_ = 0;  // lent and kept
  std::uint64_t kept_bytes_ = 0;
  std::multimap<std::size_t, std::byte*> kept_;
  std::deque<const void*> line_;
};

}  // namespace tandem::internal::ps
