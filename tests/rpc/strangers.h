#pragma once

#include <grpcpp/create_channel.h>
#include <grpcpp/security/credentials.h>
#include <grpcpp/server.h>
#include <grpcpp/server_builder.h>

#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "rpc/control.grpc.pb.h"
#include "rpc/handshake.h"

namespace tandem::testing_support {

// A client of the control service that says what it likes, one frame at a time.
class Stranger {
 public:
  explicit Stranger(
      const std::string& address,
      const std::shared_ptr<grpc::ChannelCredentials>& credentials = grpc::InsecureChannelCredentials(),
      const std::string& expected_name = "") {
    grpc::ChannelArguments arguments;
    arguments.SetInt(GRPC_ARG_ENABLE_HTTP_PROXY, 0);
    arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
    if (!expected_name.empty()) arguments.SetSslTargetNameOverride(expected_name);
    channel_ = grpc::CreateCustomChannel(address, credentials, arguments);
    open();
  }
  // Another stream of the same connection.
  explicit Stranger(const Stranger& other) : channel_(other.channel_) { open(); }
  ~Stranger() {
    if (stream_) {
      context_.TryCancel();
      stream_->Finish();
    }
  }
  Stranger& operator=(const Stranger&) = delete;

  bool say(const rpc::Frame& frame) { return stream_->Write(frame); }
  bool say_hello(const std::string& hello) {
    rpc::Frame frame;
    frame.set_hello(hello);
    return say(frame);
  }
  bool say_proof(const std::string& tag) {
    rpc::Frame frame;
    frame.mutable_proof()->set_tag(tag);
    return say(frame);
  }
  // Empty when the stream has ended, which it does after ten seconds in any case.
  std::optional<rpc::Frame> hear() {
    rpc::Frame frame;
    return stream_->Read(&frame) ? std::optional(frame) : std::nullopt;
  }
  // The rest is not listened to.
  grpc::Status end() {
    rpc::Frame frame;
    while (stream_->Read(&frame)) {
    }
    const grpc::Status status = stream_->Finish();
    stream_.reset();
    return status;
  }

  // As a task of the cluster does it; the last frame that came.
  std::optional<rpc::Frame> shake_hands(const internal::Identity& as, const TaskId& to) {
    const std::string hello = internal::make_hello(as, to);
    if (!say_hello(hello)) return std::nullopt;
    const auto challenge = hear();
    if (!challenge || !challenge->has_challenge()) return challenge;
    say_proof(internal::proof_tag(as.security, 'C', hello, challenge->challenge().nonce()));
    return hear();
  }

 private:
  void open() {
    context_.set_deadline(std::chrono::system_clock::now() + std::chrono::seconds(10));
    stub_ = rpc::Control::NewStub(channel_);
    stream_ = stub_->Link(&context_);
  }

  std::shared_ptr<grpc::Channel> channel_;
  std::unique_ptr<rpc::Control::Stub> stub_;
  grpc::ClientContext context_;
  std::unique_ptr<grpc::ClientReaderWriter<rpc::Frame, rpc::Frame>> stream_;
};

// Answers at a task's address, but is no task: each stream is handed to the function.
class Impostor final : public rpc::Control::Service {
 public:
  using Stream = grpc::ServerReaderWriter<rpc::Frame, rpc::Frame>;

  Impostor(const std::string& address, std::function<void(Stream&)> answer) : answer_(std::move(answer)) {
    grpc::ServerBuilder builder;
    builder.AddListeningPort(address, grpc::InsecureServerCredentials());
    builder.RegisterService(this);
    server_ = builder.BuildAndStart();
  }
  ~Impostor() override { server_->Shutdown(std::chrono::system_clock::now()); }

  grpc::Status Link(grpc::ServerContext*, Stream* stream) override {
    answer_(*stream);
    return grpc::Status::OK;
  }

 private:
  std::function<void(Stream&)> answer_;
  std::unique_ptr<grpc::Server> server_;
};

}  // namespace tandem::testing_support
