#pragma once

#include <grpcpp/support/server_callback.h>

#include <atomic>
#include <chrono>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>

#include "rpc/control.grpc.pb.h"
#include "rpc/handshake.h"

namespace tandem::internal {

// A stream from another task or an observer. Nothing it sends reaches anyone before it has proved who it is.
class IncomingLink final : public grpc::ServerBidiReactor<rpc::Frame, rpc::Frame> {
 public:
  // Called on gRPC's threads.
  struct Events {
    // Whether it may come in, having proved itself.
    std::function<std::optional<rpc::Refusal>(IncomingLink& link)> admit = {};
    std::function<void(IncomingLink& link, const rpc::Beat& beat)> beat = {};
    // Why it may not, and its network address.
    std::function<void(const std::string& reason, const std::string& peer)> refused = {};
    // The last one.
    std::function<void(IncomingLink& link)> ended = {};
  };

  // Keeps itself alive until the stream has ended.
  static std::shared_ptr<IncomingLink> open(const Identity& self, Events events,
                                            grpc::CallbackServerContext& context);

  // Valid once it was admitted.
  const std::optional<TaskId>& task() const { return task_; }  // empty: an observer
  const Incarnation& incarnation() const { return incarnation_; }
  const std::shared_ptr<const Offer>& offer() const { return offer_; }  // none: an observer
  bool admitted() const { return admitted_.load(std::memory_order_acquire); }
  // Neither admitted nor closed.
  bool half_open() const;
  std::chrono::steady_clock::time_point opened_at() const { return opened_at_; }

  // As OutgoingLink::send().
  void send(rpc::Frame frame);
  void close(const std::string& reason);

  void OnReadDone(bool ok) override;
  void OnWriteDone(bool ok) override;
  void OnDone() override;

 private:
  IncomingLink(const Identity& self, Events events, grpc::CallbackServerContext& context);

  bool take_hello(const std::string& hello);
  bool take_proof(const rpc::Proof& proof);
  void refuse(const rpc::Refusal& refusal);
  void read();
  void write(rpc::Frame frame);
  void finish(const grpc::Status& status);

  const Identity& self_;
  const Events events_;
  grpc::CallbackServerContext& context_;
  const std::chrono::steady_clock::time_point opened_at_ = std::chrono::steady_clock::now();
  std::shared_ptr<IncomingLink> alive_;

  // Of the reading side alone, until admitted.
  std::string hello_;
  std::string nonce_;
  std::optional<TaskId> task_;
  Incarnation incarnation_;
  std::shared_ptr<const Offer> offer_;
  std::atomic<bool> admitted_{false};

  mutable std::mutex mutex_;
  bool finished_ = false;
  bool writing_ = false;
  bool finish_after_write_ = false;
  rpc::Frame in_;
  rpc::Frame out_;
  std::optional<rpc::Frame> next_;
};

}  // namespace tandem::internal
