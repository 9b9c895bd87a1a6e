#pragma once

#include <atomic>
#include <chrono>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/bell.h"
#include "comm/tcp/handshake.h"
#include "ps/ps_client.h"
#include "ps/wire.h"

namespace tandem::internal::ps {

// A worker's connection to one ps, and what is done over it before requests flow: dialling, and messages one
// at a time. These wait, each with a deadline of its own. One thread; throws tcp::ChannelClosed when the ps
// is not there, goes away, or does not answer in time, and Stopped once `stopping` is set and the bell rung.
class PsLine {
 public:
  using Clock = std::chrono::steady_clock;
  struct Stopped {};

  PsLine(const PsClientOptions& options, int ps, Bell& bell, const std::atomic<bool>& stopping)
      : options_(options), ps_(ps), bell_(bell), stopping_(stopping) {}

  void connect(const PsEndpoint& endpoint);
  void close() { channel_ = {}; }
  bool is_open() const { return static_cast<bool>(channel_); }
  // Once requests flow.
  tcp::Channel& channel() { return channel_; }

  void write_all(std::span<const iovec> parts);
  // Prologue and header of a message that has no payload.
  std::vector<std::byte> read_message(Prologue& prologue);

  void pause(std::chrono::milliseconds time);

 private:
  void wait_for(int descriptor, short events, std::chrono::milliseconds patience);
  void read_all(std::span<std::byte> bytes);

  const PsClientOptions& options_;
  const int ps_;
  Bell& bell_;
  const std::atomic<bool>& stopping_;
  tcp::GroupIdentity identity_;  // with the key of where it is connected to
  std::optional<tcp::Encryption> encryption_;
  tcp::Channel channel_;
};

}  // namespace tandem::internal::ps
