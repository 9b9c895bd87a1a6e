#pragma once

#include <grpcpp/channel.h>
#include <grpcpp/client_context.h>
#include <grpcpp/support/client_callback.h>

#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>

#include "rpc/control.grpc.pb.h"
#include "rpc/handshake.h"

namespace tandem::internal {

// A stream to another task, from its dialling to its end. The callbacks come on gRPC's threads; `ended` is
// the last of them, after which the object may be destroyed (and not before).
class OutgoingLink final : public grpc::ClientBidiReactor<rpc::Frame, rpc::Frame> {
 public:
  struct Events {
    std::function<void()> welcomed = {};
    std::function<void(const rpc::Table&)> table = {};
    // The other side's refusal if there was one, and the reason in words.
    std::function<void(const std::optional<rpc::Refusal>& refusal, const std::string& reason)> ended = {};
  };

  OutgoingLink(const Identity& self, const TaskId& to, Events events);

  // Once; `self` need not live longer than the constructor.
  void start();
  // The newest frame goes out as soon as the one before it has; one that was still waiting is dropped.
  // Nothing happens before the welcome or after the end.
  void send(rpc::Frame frame);
  // `ended` follows.
  void cancel();

  void OnReadDone(bool ok) override;
  void OnWriteDone(bool ok) override;
  void OnDone(const grpc::Status& status) override;

 private:
  void read();
  void write(rpc::Frame frame);
  void answer(const rpc::Challenge& challenge);

  const Security security_;
  const std::string hello_;
  const TaskId to_;
  Events events_;
  std::shared_ptr<grpc::Channel> channel_;
  std::unique_ptr<rpc::Control::Stub> stub_;
  grpc::ClientContext context_;

  std::mutex mutex_;
  bool welcomed_ = false;
  bool broken_ = false;
  bool writing_ = false;
  rpc::Frame in_;
  rpc::Frame out_;
  std::optional<rpc::Frame> next_;
  // Of the reading side alone.
  bool answered_ = false;
  std::optional<rpc::Refusal> refusal_;
  std::string fault_;
};

}  // namespace tandem::internal
