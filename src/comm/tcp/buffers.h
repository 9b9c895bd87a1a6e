#pragma once

#include <gloo/transport/buffer.h>
#include <gloo/transport/unbound_buffer.h>

#include <chrono>
#include <cstdint>
#include <vector>

#include "comm/tcp/link.h"
#include "comm/tcp/mesh.h"

namespace tandem::internal::tcp {

// Memory for Gloo's newer algorithms: each send and receive names its partner. The deadline of the operation
// counts, not the time that Gloo passes.
class PostedBuffer final : public ::gloo::transport::UnboundBuffer {
 public:
  PostedBuffer(Mesh& mesh, void* data, std::size_t bytes)
      : ::gloo::transport::UnboundBuffer(data, bytes), mesh_(mesh) {}

  void send(int to, std::uint64_t slot, std::size_t offset, std::size_t bytes) override;
  void recv(int from, std::uint64_t slot, std::size_t offset, std::size_t bytes) override;
  void recv(std::vector<int> from, std::uint64_t slot, std::size_t offset, std::size_t bytes) override;
  bool waitRecv(int* rank, std::chrono::milliseconds timeout) override;
  bool waitSend(int* rank, std::chrono::milliseconds timeout) override;
  // Mesh::abort() is what wakes a waiter.
  void abortWaitRecv() override {}
  void abortWaitSend() override {}

 private:
  friend class Link;
  std::size_t length(std::size_t offset, std::size_t bytes) const;

  Mesh& mesh_;
  int received_ = 0;
  int sent_ = 0;
  int last_source_ = -1;
  int last_destination_ = -1;
  int expected_ = 0;         // receives that have been posted and not been waited for
  Link* awaited_ = nullptr;  // where they must come from, if all of them must come from one
};

// Memory for Gloo's older algorithms: bound to one partner and made once; the sender says where in it to
// write.
class BoundBuffer final : public ::gloo::transport::Buffer {
 public:
  enum class Use { kSend, kReceive };

  BoundBuffer(Mesh& mesh, Link& link, Use use, int slot, void* data, std::size_t bytes);
  ~BoundBuffer() override;

  void send(std::size_t offset, std::size_t length, std::size_t remote_offset) override;
  void waitRecv() override { mesh_.wait(received_, &link_); }
  void waitSend() override { mesh_.wait(sent_, &link_); }

 private:
  friend class Link;
  char* data() const { return static_cast<char*>(ptr_); }
  std::size_t bytes() const { return size_; }

  Mesh& mesh_;
  Link& link_;
  const Use use_;
  int received_ = 0;
  int sent_ = 0;
};

}  // namespace tandem::internal::tcp
