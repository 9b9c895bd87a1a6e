#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "base/hmac.h"
#include "comm/tcp/channel.h"

namespace tandem::internal::tcp {

// What every member of a group must agree on.
struct GroupIdentity {
  std::string cluster_id = {};  // 32 hexadecimal digits
  std::uint64_t generation = 0;
  std::string key = {};
  std::uint32_t size = 0;
};

// How two processes find out that they belong to one group: each proves that it knows the key, over what both
// have said.
//
//   dialler: HELLO {magic, cluster, generation, size, from, to, nonce}
//   other:   CHALLENGE {nonce, HMAC(key, "S" | hello | nonce)}
//   dialler: PROOF {HMAC(key, "C" | hello | nonce)}
//   other:   WELCOME
//
// All messages have a fixed size, so nothing a stranger sends is ever taken for a length. Never blocks:
// step() does what can be done now.
class Handshake {
 public:
  // The side that dials member `to`.
  static Handshake dial(Channel channel, const GroupIdentity& group, std::uint32_t from, std::uint32_t to);
  // The side that was dialled.
  static Handshake answer(Channel channel, const GroupIdentity& group, std::uint32_t self);

  // True when the handshake is done. Throws ChannelClosed if the other side goes away or does not belong to
  // the group.
  bool step();

  int descriptor() const { return channel_.descriptor(); }
  // What poll() should wait for.
  short events() const;

  // After step() returned true: who it is, and the channel to it.
  std::uint32_t peer() const { return peer_; }
  Channel take() { return std::move(channel_); }

 private:
  enum class Stage { kEncryption, kHello, kChallenge, kProof, kWelcome, kDone };

  struct Hello {
    std::array<char, 8> magic;
    std::array<char, 32> cluster_id;
    std::uint64_t generation;
    std::uint32_t size;
    std::uint32_t from;
    std::uint32_t to;
    std::uint32_t reserved;
    std::array<char, 32> nonce;
  };
  struct Challenge {
    std::array<char, 32> nonce;
    HmacTag tag;
  };

  Handshake(Channel channel, const GroupIdentity& group, bool dials)
      : channel_(std::move(channel)), group_(group), dials_(dials) {}

  bool write();
  bool read(std::size_t bytes);
  template <typename Message>
  void say(const Message& message);
  template <typename Message>
  Message heard() const;
  void check(const Hello& hello);
  HmacTag tag(char side) const;

  Channel channel_;
  const GroupIdentity& group_;
  bool dials_;
  std::uint32_t self_ = 0;
  std::uint32_t peer_ = 0;
  Stage stage_ = Stage::kEncryption;
  Hello hello_ = {};
  std::array<char, 32> nonce_ = {};  // of the challenge
  std::string in_ = {};
  std::string out_ = {};
  bool wants_write_ = false;
};

}  // namespace tandem::internal::tcp
