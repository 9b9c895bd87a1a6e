#pragma once

#include <gloo/transport/buffer.h>
#include <gloo/transport/context.h>
#include <gloo/transport/pair.h>
#include <gloo/transport/unbound_buffer.h>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>
#include <mutex>
#include <set>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

namespace tandem::internal::gloo_tcp {

// Gloo's transport failed in what it did with one member.
class PairFailed : public std::runtime_error {
 public:
  PairFailed(int member, const std::string& how) : std::runtime_error(how), member_(member) {}
  int member() const { return member_; }

 private:
  int member_;
};

class WatchedUnboundBuffer;

// Gloo's own transport with what it lacks: its waiters can be woken, errors tell which member they are about,
// and what is sent is counted. Every call is passed on; no byte is touched.
class WatchedContext final : public ::gloo::transport::Context {
 public:
  explicit WatchedContext(std::shared_ptr<::gloo::transport::Context> inner);

  // From any thread: closes all connections and makes every wait throw, now and later.
  void interrupt();

  std::uint64_t bytes_sent() const { return bytes_sent_.load(std::memory_order_relaxed); }
  // Without what the older algorithms receive: there the sender alone knows how much it is.
  std::uint64_t bytes_received() const { return bytes_received_.load(std::memory_order_relaxed); }

  // Gloo's interface.
  std::unique_ptr<::gloo::transport::Pair>& createPair(int member) override;
  std::unique_ptr<::gloo::transport::UnboundBuffer> createUnboundBuffer(void* data,
                                                                        std::size_t bytes) override;

 private:
  friend class WatchedBuffer;
  friend class WatchedUnboundBuffer;

  const std::shared_ptr<::gloo::transport::Context> inner_;
  std::atomic<std::uint64_t> bytes_sent_{0};
  std::atomic<std::uint64_t> bytes_received_{0};
  std::mutex buffers_mutex_;
  std::set<WatchedUnboundBuffer*> unbound_;
};

// The connection to one member.
class WatchedPair final : public ::gloo::transport::Pair {
 public:
  WatchedPair(WatchedContext& context, int member, ::gloo::transport::Pair& inner)
      : context_(context), member_(member), inner_(inner) {}

  const ::gloo::transport::Address& address() const override { return inner_.address(); }
  void connect(const std::vector<char>& bytes) override;
  void close() override { inner_.close(); }
  void setSync(bool enable, bool busy_poll) override { inner_.setSync(enable, busy_poll); }
  std::unique_ptr<::gloo::transport::Buffer> createSendBuffer(int slot, void* data,
                                                              std::size_t bytes) override;
  std::unique_ptr<::gloo::transport::Buffer> createRecvBuffer(int slot, void* data,
                                                              std::size_t bytes) override;
  void send(::gloo::transport::UnboundBuffer* buffer, std::uint64_t tag, std::size_t offset,
            std::size_t bytes) override;
  void recv(::gloo::transport::UnboundBuffer* buffer, std::uint64_t tag, std::size_t offset,
            std::size_t bytes) override;

 private:
  WatchedContext& context_;
  const int member_;
  ::gloo::transport::Pair& inner_;
};

// For the older algorithms: memory that one member may write to, or is written to it.
class WatchedBuffer final : public ::gloo::transport::Buffer {
 public:
  WatchedBuffer(WatchedContext& context, int member, int slot, void* data, std::size_t bytes,
                std::unique_ptr<::gloo::transport::Buffer> inner)
      : Buffer(slot, data, bytes), context_(context), member_(member), inner_(std::move(inner)) {}

  void send(std::size_t offset, std::size_t length, std::size_t remote_offset) override;
  void waitRecv() override;
  void waitSend() override;

 private:
  WatchedContext& context_;
  const int member_;
  std::unique_ptr<::gloo::transport::Buffer> inner_;
};

// For the newer ones: memory that any member may be sent, or send into. The time that Gloo passes to the
// waits does not count: who wants an end calls interrupt().
class WatchedUnboundBuffer final : public ::gloo::transport::UnboundBuffer {
 public:
  WatchedUnboundBuffer(WatchedContext& context, void* data, std::size_t bytes);
  ~WatchedUnboundBuffer() override;

  void send(int to, std::uint64_t slot, std::size_t offset, std::size_t bytes) override;
  void recv(int from, std::uint64_t slot, std::size_t offset, std::size_t bytes) override;
  void recv(std::vector<int> from, std::uint64_t slot, std::size_t offset, std::size_t bytes) override;
  bool waitRecv(int* rank, std::chrono::milliseconds timeout) override;
  bool waitSend(int* rank, std::chrono::milliseconds timeout) override;
  void abortWaitRecv() override { inner_->abortWaitRecv(); }
  void abortWaitSend() override { inner_->abortWaitSend(); }

 private:
  friend class WatchedPair;
  std::size_t length(std::size_t offset, std::size_t bytes) const;

  WatchedContext& context_;
  const std::unique_ptr<::gloo::transport::UnboundBuffer> inner_;
  int last_source_ = -1;
  int last_destination_ = -1;
};

}  // namespace tandem::internal::gloo_tcp
