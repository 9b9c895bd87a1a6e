#include "comm/tcp/handshake.h"

#include <fmt/format.h>
#include <poll.h>

#include <algorithm>
#include <cstring>
#include <string_view>

namespace tandem::internal::tcp {
namespace {

constexpr std::string_view kMagic = "TANDEM01";
constexpr char kWelcome = 'W';

template <typename Array>
void put(Array& array, std::string_view text) {
  std::copy_n(text.begin(), std::min(text.size(), array.size()), array.begin());
}

template <typename Array>
std::string_view view(const Array& array) {
  return {array.data(), array.size()};
}

}  // namespace

Handshake Handshake::dial(Channel channel, const GroupIdentity& group, std::uint32_t from, std::uint32_t to) {
  Handshake handshake(std::move(channel), group, true);
  handshake.self_ = from;
  handshake.peer_ = to;
  Hello& hello = handshake.hello_;
  put(hello.magic, kMagic);
  put(hello.cluster_id, group.cluster_id);
  hello.generation = group.generation;
  hello.size = group.size;
  hello.from = from;
  hello.to = to;
  random_bytes(hello.nonce.data(), hello.nonce.size());
  return handshake;
}

Handshake Handshake::answer(Channel channel, const GroupIdentity& group, std::uint32_t self) {
  Handshake handshake(std::move(channel), group, false);
  handshake.self_ = self;
  return handshake;
}

bool Handshake::step() {
  while (stage_ != Stage::kDone) {
    if (!write()) return false;
    switch (stage_) {
      case Stage::kEncryption:
        if (!channel_.advance()) {
          wants_write_ = channel_.wants_write();
          return false;
        }
        if (dials_) say(hello_);
        stage_ = dials_ ? Stage::kChallenge : Stage::kHello;
        break;
      case Stage::kHello: {
        if (!read(sizeof(Hello))) return false;
        check(heard<Hello>());
        random_bytes(nonce_.data(), nonce_.size());
        say(Challenge{nonce_, tag('S')});
        stage_ = Stage::kProof;
        break;
      }
      case Stage::kChallenge: {
        if (!read(sizeof(Challenge))) return false;
        const auto challenge = heard<Challenge>();
        nonce_ = challenge.nonce;
        if (!equal_in_constant_time(challenge.tag, tag('S'))) {
          throw ChannelClosed("does not know the group's key");
        }
        say(tag('C'));
        stage_ = Stage::kWelcome;
        break;
      }
      case Stage::kProof: {
        if (!read(sizeof(HmacTag))) return false;
        if (!equal_in_constant_time(heard<HmacTag>(), tag('C'))) {
          throw ChannelClosed("does not know the group's key");
        }
        say(kWelcome);
        if (!write()) return false;  // a byte always fits after so few
        stage_ = Stage::kDone;
        break;
      }
      case Stage::kWelcome:
        if (!read(1)) return false;
        if (heard<char>() != kWelcome) throw ChannelClosed("does not speak this protocol");
        stage_ = Stage::kDone;
        break;
      case Stage::kDone:
        break;
    }
  }
  return true;
}

short Handshake::events() const {
  return wants_write_ ? POLLOUT : POLLIN;
}

bool Handshake::write() {
  while (!out_.empty()) {
    const iovec part{out_.data(), out_.size()};
    const std::size_t sent = channel_.write(&part, 1);
    if (sent == 0) {
      wants_write_ = channel_.wants_write();
      return false;
    }
    out_.erase(0, sent);
  }
  wants_write_ = false;
  return true;
}

// Reads exactly one message, not a byte of what follows it: that belongs to the link.
bool Handshake::read(std::size_t bytes) {
  while (in_.size() < bytes) {
    char buffer[sizeof(Hello)];
    const std::size_t got = channel_.read(buffer, std::min(sizeof buffer, bytes - in_.size()));
    if (got == 0) return false;
    in_.append(buffer, got);
  }
  return true;
}

template <typename Message>
void Handshake::say(const Message& message) {
  out_.append(reinterpret_cast<const char*>(&message), sizeof message);
  in_.clear();
}

template <typename Message>
Message Handshake::heard() const {
  Message message;
  std::memcpy(&message, in_.data(), sizeof message);
  return message;
}

void Handshake::check(const Hello& hello) {
  if (view(hello.magic) != kMagic) throw ChannelClosed("does not speak this protocol");
  std::array<char, 32> cluster_id = {};
  put(cluster_id, group_.cluster_id);
  if (hello.cluster_id != cluster_id) {
    throw ChannelClosed("belongs to another cluster");
  }
  if (hello.generation != group_.generation) {
    throw ChannelClosed(
        fmt::format("belongs to generation {}, this is {}", hello.generation, group_.generation));
  }
  if (hello.size != group_.size || hello.to != self_ || hello.from >= group_.size || hello.from <= self_) {
    throw ChannelClosed("dials a member that it must not dial");
  }
  hello_ = hello;
  peer_ = hello.from;
}

HmacTag Handshake::tag(char side) const {
  std::string message(1, side);
  message.append(reinterpret_cast<const char*>(&hello_), sizeof hello_);
  message.append(nonce_.data(), nonce_.size());
  return hmac_sha256(group_.key, message);
}

}  // namespace tandem::internal::tcp
