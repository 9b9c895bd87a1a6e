#include "comm/tcp/buffers.h"

namespace tandem::internal::tcp {

std::size_t PostedBuffer::length(std::size_t offset, std::size_t bytes) const {
  return bytes == kUnspecifiedByteCount ? size - offset : bytes;
}

void PostedBuffer::send(int to, std::uint64_t slot, std::size_t offset, std::size_t bytes) {
  FrameHeader header = mesh_.header();
  header.kind = FrameKind::kPosted;
  header.slot = slot;
  last_destination_ = to;
  mesh_.link(to).send(header, static_cast<const char*>(ptr) + offset, length(offset, bytes), &sent_);
}

void PostedBuffer::recv(int from, std::uint64_t slot, std::size_t offset, std::size_t bytes) {
  recv(std::vector<int>{from}, slot, offset, bytes);
}

void PostedBuffer::recv(std::vector<int> from, std::uint64_t slot, std::size_t offset, std::size_t bytes) {
  const auto receive = std::make_shared<PostedReceive>(
      PostedReceive{this, static_cast<char*>(ptr) + offset, length(offset, bytes), from.size() == 1});
  for (const int rank : from) mesh_.link(rank).post(slot, receive);
  // Bcube and reduce post several, from several members, before they wait for the first.
  Link* source = from.size() == 1 ? &mesh_.link(from.front()) : nullptr;
  awaited_ = expected_ == 0 || awaited_ == source ? source : nullptr;
  ++expected_;
}

bool PostedBuffer::waitRecv(int* rank, std::chrono::milliseconds) {
  mesh_.wait(received_, awaited_);
  --expected_;
  if (rank) *rank = last_source_;
  return true;
}

bool PostedBuffer::waitSend(int* rank, std::chrono::milliseconds) {
  mesh_.wait(sent_, nullptr);
  if (rank) *rank = last_destination_;
  return true;
}

BoundBuffer::BoundBuffer(Mesh& mesh, Link& link, Use use, int slot, void* data, std::size_t bytes)
    : ::gloo::transport::Buffer(slot, data, bytes), mesh_(mesh), link_(link), use_(use) {
  if (use_ == Use::kReceive) link_.add(static_cast<std::uint64_t>(slot_), this);
}

BoundBuffer::~BoundBuffer() {
  if (use_ == Use::kReceive) link_.remove(static_cast<std::uint64_t>(slot_), this);
}

void BoundBuffer::send(std::size_t offset, std::size_t length, std::size_t remote_offset) {
  FrameHeader header = mesh_.header();
  header.kind = FrameKind::kBound;
  header.slot = static_cast<std::uint64_t>(slot_);
  header.offset = remote_offset;
  link_.send(header, data() + offset, length, &sent_);
}

}  // namespace tandem::internal::tcp
