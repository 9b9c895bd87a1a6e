#pragma once

#include <gloo/transport/pair.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "comm/tcp/channel.h"
#include "comm/tcp/frame.h"

namespace tandem::internal::tcp {

class BoundBuffer;
class Mesh;
class PostedBuffer;

// A receive that waits for its frame. One that may come from several members is posted at each of them; the
// first frame takes it.
struct PostedReceive {
  PostedBuffer* buffer = nullptr;
  char* data = nullptr;
  std::size_t bytes = 0;
  bool only_here = true;  // posted at no other member
  bool taken = false;
};

// The connection to one other member: frames out, frames in. Everything happens on the thread that runs the
// operation; nothing blocks.
//
// A frame of an operation that this member has not begun yet, or whose receive is not posted yet, is left
// where it is, and everything behind it: TCP then holds the sender back. So a peer can make this process
// neither write where it does not expect it nor allocate.
class Link final : public ::gloo::transport::Pair {
 public:
  Link(Mesh& mesh, int peer, Channel channel);
  ~Link() override;

  int peer() const { return peer_; }
  int descriptor() const { return channel_.descriptor(); }

  // `done` is raised by one when everything has been handed to the kernel; `payload` must stay until then.
  void send(FrameHeader header, const void* payload, std::size_t bytes, int* done);
  void post(std::uint64_t slot, const std::shared_ptr<PostedReceive>& receive);
  void add(std::uint64_t slot, BoundBuffer* buffer);
  void remove(std::uint64_t slot, BoundBuffer* buffer);

  // Moves what can be moved now. Throw Unavailable if the connection broke, FailedPrecondition for a frame
  // that does not belong here, and what the other side sent as its reason to abort.
  void write_some();
  void read_some();

  bool has_unsent() const { return !outgoing_.empty(); }
  // Whether a held frame may go on, or bytes wait that poll() does not tell of.
  bool has_unread() const;
  bool can_read() const { return !ended_ && !held_; }
  // A new operation has begun: the frame that is held may be part of it.
  void release() { held_ = false; }
  bool has_receives() const;
  // Throws if a receive that is posted here alone can no longer be met.
  void check_receives() const;
  // Throws if the other side can no longer send what this operation waits for.
  void check_can_come() const;

  // Best effort, without waiting: tells the other side that this one gives up, or has finished.
  void give_up(const FrameHeader& header, const std::string& reason);
  void say_goodbye(const FrameHeader& header);
  bool ended() const { return ended_; }
  // Reads and drops what is left until the other side ends. True once it has.
  bool drain();

  // gloo's interface.
  const ::gloo::transport::Address& address() const override;
  void connect(const std::vector<char>& bytes) override;
  void close() override {}
  void setSync(bool, bool) override {}
  std::unique_ptr<::gloo::transport::Buffer> createSendBuffer(int slot, void* ptr, std::size_t size) override;
  std::unique_ptr<::gloo::transport::Buffer> createRecvBuffer(int slot, void* ptr, std::size_t size) override;
  void send(::gloo::transport::UnboundBuffer* buffer, std::uint64_t tag, std::size_t offset,
            std::size_t nbytes) override;
  void recv(::gloo::transport::UnboundBuffer* buffer, std::uint64_t tag, std::size_t offset,
            std::size_t nbytes) override;

 private:
  struct Outgoing {
    FrameHeader header;
    const char* payload;
    std::size_t bytes;
    std::size_t sent = 0;  // of header and payload
    int* done;
  };

  bool write_front(Outgoing& frame);
  std::size_t read(void* data, std::size_t bytes);
  bool read_header();
  // Where the payload of the current frame goes; false: it must wait.
  bool accept();
  void finish_frame();
  [[noreturn]] void refuse(const std::string& why) const;
  [[noreturn]] void broken(const std::string& how) const;

  Mesh& mesh_;
  const int peer_;
  Channel channel_;
  std::deque<Outgoing> outgoing_;

  // What has been read ahead: small frames come in one piece.
  std::vector<char> ahead_;
  std::size_t ahead_begin_ = 0;
  std::size_t ahead_end_ = 0;

  // The frame that is being read.
  FrameHeader header_ = {};
  std::size_t header_bytes_ = 0;
  bool held_ = false;
  bool accepted_ = false;  // its payload has a place to go
  char* target_ = nullptr;
  std::size_t left_ = 0;
  int* received_ = nullptr;
  int* source_ = nullptr;  // where to note who sent it
  std::string reason_ = {};
  bool ended_ = false;  // the other side said goodbye

  std::map<std::uint64_t, std::deque<std::shared_ptr<PostedReceive>>> posted_;
  std::map<std::uint64_t, BoundBuffer*> bound_;
};

}  // namespace tandem::internal::tcp
