#include "comm/gloo/watched_transport.h"

#include <gloo/common/error.h>

namespace tandem::internal::gloo_tcp {
namespace {

// As long as Gloo's own longest; interrupt() is what ends a wait.
constexpr std::chrono::milliseconds kForever = std::chrono::hours(100);

template <typename Fn>
auto naming(int member, Fn fn) {
  try {
    return fn();
  } catch (const ::gloo::Exception& error) {
    throw PairFailed(member, error.what());
  }
}

}  // namespace

WatchedContext::WatchedContext(std::shared_ptr<::gloo::transport::Context> inner)
    : Context(inner->rank, inner->size), inner_(std::move(inner)) {
  pairs_.resize(static_cast<std::size_t>(size));
  setTimeout(kForever);
  inner_->setTimeout(kForever);
}

// Gloo has no call for this, so: a wait in the same context that times out makes Gloo fail and close all its
// connections, which wakes who waits for a receive or for a bound buffer. Sends that are queued behind others
// it forgets; those waits are ended one by one.
void WatchedContext::interrupt() {
  char nothing = 0;
  try {
    inner_->createUnboundBuffer(&nothing, sizeof nothing)->waitRecv(std::chrono::milliseconds(1));
  } catch (const ::gloo::IoException&) {
  }
  const std::lock_guard lock(buffers_mutex_);
  for (WatchedUnboundBuffer* buffer : unbound_) {
    buffer->abortWaitRecv();
    buffer->abortWaitSend();
  }
}

std::unique_ptr<::gloo::transport::Pair>& WatchedContext::createPair(int member) {
  auto& pair = pairs_.at(static_cast<std::size_t>(member));
  pair = std::make_unique<WatchedPair>(*this, member, *inner_->createPair(member));
  return pair;
}

std::unique_ptr<::gloo::transport::UnboundBuffer> WatchedContext::createUnboundBuffer(void* data,
                                                                                      std::size_t bytes) {
  return std::make_unique<WatchedUnboundBuffer>(*this, data, bytes);
}

void WatchedPair::connect(const std::vector<char>& bytes) {
  naming(member_, [&] { inner_.connect(bytes); });
}

std::unique_ptr<::gloo::transport::Buffer> WatchedPair::createSendBuffer(int slot, void* data,
                                                                         std::size_t bytes) {
  return std::make_unique<WatchedBuffer>(context_, member_, slot, data, bytes,
                                         inner_.createSendBuffer(slot, data, bytes));
}

std::unique_ptr<::gloo::transport::Buffer> WatchedPair::createRecvBuffer(int slot, void* data,
                                                                         std::size_t bytes) {
  return std::make_unique<WatchedBuffer>(context_, member_, slot, data, bytes,
                                         inner_.createRecvBuffer(slot, data, bytes));
}

void WatchedPair::send(::gloo::transport::UnboundBuffer* buffer, std::uint64_t tag, std::size_t offset,
                       std::size_t bytes) {
  static_cast<WatchedUnboundBuffer*>(buffer)->send(member_, tag, offset, bytes);
}

void WatchedPair::recv(::gloo::transport::UnboundBuffer* buffer, std::uint64_t tag, std::size_t offset,
                       std::size_t bytes) {
  static_cast<WatchedUnboundBuffer*>(buffer)->recv(member_, tag, offset, bytes);
}

void WatchedBuffer::send(std::size_t offset, std::size_t length, std::size_t remote_offset) {
  naming(member_, [&] { inner_->send(offset, length, remote_offset); });
  context_.bytes_sent_.fetch_add(length, std::memory_order_relaxed);
}

void WatchedBuffer::waitRecv() {
  naming(member_, [&] { inner_->waitRecv(); });
}

void WatchedBuffer::waitSend() {
  naming(member_, [&] { inner_->waitSend(); });
}

WatchedUnboundBuffer::WatchedUnboundBuffer(WatchedContext& context, void* data, std::size_t bytes)
    : UnboundBuffer(data, bytes),
      context_(context),
      inner_(context.inner_->createUnboundBuffer(data, bytes)) {
  const std::lock_guard lock(context_.buffers_mutex_);
  context_.unbound_.insert(this);
}

WatchedUnboundBuffer::~WatchedUnboundBuffer() {
  const std::lock_guard lock(context_.buffers_mutex_);
  context_.unbound_.erase(this);
}

std::size_t WatchedUnboundBuffer::length(std::size_t offset, std::size_t bytes) const {
  return bytes == kUnspecifiedByteCount ? size - offset : bytes;
}

void WatchedUnboundBuffer::send(int to, std::uint64_t slot, std::size_t offset, std::size_t bytes) {
  naming(to, [&] { inner_->send(to, slot, offset, bytes); });
  last_destination_ = to;
  context_.bytes_sent_.fetch_add(length(offset, bytes), std::memory_order_relaxed);
}

void WatchedUnboundBuffer::recv(int from, std::uint64_t slot, std::size_t offset, std::size_t bytes) {
  naming(from, [&] { inner_->recv(from, slot, offset, bytes); });
  last_source_ = from;
  context_.bytes_received_.fetch_add(length(offset, bytes), std::memory_order_relaxed);
}

void WatchedUnboundBuffer::recv(std::vector<int> from, std::uint64_t slot, std::size_t offset,
                                std::size_t bytes) {
  last_source_ = from.empty() ? -1 : from.front();
  naming(last_source_, [&] { inner_->recv(std::move(from), slot, offset, bytes); });
  context_.bytes_received_.fetch_add(length(offset, bytes), std::memory_order_relaxed);
}

bool WatchedUnboundBuffer::waitRecv(int* rank, std::chrono::milliseconds) {
  if (naming(last_source_, [&] { return inner_->waitRecv(rank, kForever); })) return true;
  throw PairFailed(last_source_, "interrupted");
}

bool WatchedUnboundBuffer::waitSend(int* rank, std::chrono::milliseconds) {
  if (naming(last_destination_, [&] { return inner_->waitSend(rank, kForever); })) return true;
  throw PairFailed(last_destination_, "interrupted");
}

}  // namespace tandem::internal::gloo_tcp
