// Any bytes as what comes over a data connection: to the handshake of a stranger, or from a member that knows
// the key. No stranger gets in; a member writes only where a receive is posted, and what does not fit ends
// the operation with an error.
//
// The first byte says which: odd, a stranger; even, a member in the middle of a sum of 64 floats.
#include <fcntl.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstring>
#include <string>
#include <vector>

#include "comm/tcp/buffers.h"
#include "comm/tcp/handshake.h"
#include "comm/tcp/mesh.h"
#include "fuzz/require.h"
#include "tandem/error.h"

namespace {

using namespace tandem;
using namespace tandem::internal;
using fuzz::require;

constexpr std::size_t kMost = 32 << 10;  // fits into a socket
constexpr std::size_t kGuard = 256;
constexpr std::size_t kPosted = 256;
constexpr std::size_t kBound = 128;
constexpr char kUntouched = 0x5a;

// A connection at whose other end these bytes were written, and which then ended.
tcp::Channel channel_with(const std::uint8_t* data, std::size_t size) {
  std::array<int, 2> ends{};
  if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends.data()) != 0) std::abort();
  const FileDescriptor writer(ends[1]);
  FileDescriptor reader(ends[0]);
  require(send(writer.get(), data, size, MSG_NOSIGNAL) == static_cast<ssize_t>(size), "the bytes fit");
  shutdown(writer.get(), SHUT_WR);
  return tcp::Channel(std::move(reader), nullptr, true);
}

void stranger(const std::uint8_t* data, std::size_t size) {
  const tcp::GroupIdentity group{std::string(32, 'c'), 1, std::string(32, 'k'), 2};
  auto handshake = tcp::Handshake::answer(channel_with(data, size), group, 0);
  try {
    require(!handshake.step(), "a stranger is not let in");
  } catch (const tcp::ChannelClosed&) {
  }
}

// Memory with guards around it that nobody may touch.
class Guarded {
 public:
  explicit Guarded(std::size_t bytes) : whole_(bytes + 2 * kGuard, kUntouched) {}
  void* data() { return whole_.data() + kGuard; }
  void check() const {
    const auto untouched = [](char byte) { return byte == kUntouched; };
    require(std::all_of(whole_.begin(), whole_.begin() + kGuard, untouched) &&
                std::all_of(whole_.end() - kGuard, whole_.end(), untouched),
            "nothing is written beside the buffer");
  }

 private:
  std::vector<char> whole_;
};

void member(const std::uint8_t* data, std::size_t size) {
  std::vector<tcp::Channel> channels(2);
  channels[1] = channel_with(data, size);
  tcp::Mesh mesh(0, {"worker:0", "worker:1"}, std::move(channels));
  Guarded posted(kPosted), bound(kBound);
  mesh.begin({.kind = OperationKind::kAllReduce,
              .name = "fuzz",
              .data = {posted.data(), 64, ElementType::kFloat32},
              .algorithm = AllReduceAlgorithm::kRing,
              .deadline = Operation::Clock::now() + std::chrono::milliseconds(50)});
  const auto receive = mesh.link(1).createRecvBuffer(3, bound.data(), kBound);
  const auto buffer = mesh.createUnboundBuffer(posted.data(), kPosted);
  for (int i = 0; i < 4; ++i) buffer->recv(1, 7, 0, kPosted);
  try {
    for (int i = 0; i < 4; ++i) buffer->waitRecv();
  } catch (const Error& error) {
    require(std::strchr(error.what(), '\n') == nullptr, "what is wrong is said in one line");
    mesh.give_up(error.code(), error.what());
  }
  posted.check();
  bound.check();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size < 1) return 0;
  const std::size_t bytes = std::min(size - 1, kMost);
  (data[0] % 2 == 1 ? stranger : member)(data + 1, bytes);
  return 0;
}
