#include "rpc/outgoing_link.h"

#include <fmt/format.h>
#include <grpcpp/create_channel.h>
#include <grpcpp/support/channel_arguments.h>

#include <array>
#include <utility>

#include "rpc/limits.h"
#include "rpc/reaction_order.h"

namespace tandem::internal {
namespace {

grpc::ChannelArguments channel_arguments(const Identity& self, const TaskId& to) {
  grpc::ChannelArguments arguments;
  // gRPC would go through a proxy even to reach this machine.
  arguments.SetInt(GRPC_ARG_ENABLE_HTTP_PROXY, 0);
  // A new attempt is a new connection, not one that gRPC still backs off from.
  arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
  arguments.SetInt(GRPC_ARG_MIN_RECONNECT_BACKOFF_MS, kConnectPatienceMs);
  arguments.SetInt(GRPC_ARG_INITIAL_RECONNECT_BACKOFF_MS, kConnectPatienceMs);
  arguments.SetMaxReceiveMessageSize(kLargestMessage);
  if (self.security.mode == Security::Mode::kTls) {
    arguments.SetSslTargetNameOverride(certified_name(self.cluster, to));
  }
  return arguments;
}

// What gRPC's words about a connection mean to someone who has to mend it.
std::string reason_of(const grpc::Status& status, bool was_welcome) {
  struct Meaning {
    const char* words;
    const char* meaning;
  };
  constexpr std::array kMeanings{
      Meaning{"certificate verify failed", "its certificate has expired or is of another authority"},
      Meaning{"CERTIFICATE_VERIFY_FAILED", "its certificate has expired or is of another authority"},
      Meaning{"is not in peer certificate", "its certificate is of another task or another cluster"},
      Meaning{"wrong version number", "it speaks no TLS: is its --security another one?"},
      Meaning{"WRONG_VERSION_NUMBER", "it speaks no TLS: is its --security another one?"},
  };
  const std::string& text = status.error_message();
  if (text.find("Socket closed") != std::string::npos) {
    return was_welcome ? "the connection broke"
                       : "it hung up: has it the same --security, and certificates of one authority?";
  }
  for (const auto& [words, meaning] : kMeanings) {
    if (text.find(words) != std::string::npos) return meaning;
  }
  for (const char* known :
       {"Connection refused", "No route to host", "Network is unreachable", "Connection reset",
        "Connection timed out", "Name or service not known", "Domain name not found"}) {
    if (text.find(known) != std::string::npos) return known;
  }
  return text.empty() ? "the connection ended" : text.substr(0, text.find('\n'));
}

}  // namespace

OutgoingLink::OutgoingLink(const Identity& self, const TaskId& to, Events events)
    : security_(self.security),
      hello_(make_hello(self, to)),
      to_(to),
      events_(std::move(events)),
      channel_(grpc::CreateCustomChannel(self.cluster.task_address(to), self.security.channel_credentials(),
                                         channel_arguments(self, to))),
      stub_(rpc::Control::NewStub(channel_)) {}

void OutgoingLink::start() {
  stub_->async()->Link(&context_, this);
  AddHold();  // until the stream breaks: frames are sent from other threads
  read();
  rpc::Frame frame;
  frame.set_hello(hello_);
  {
    const std::lock_guard lock(mutex_);
    write(std::move(frame));
  }
  release_to_grpc(this);
  StartCall();
}

void OutgoingLink::send(rpc::Frame frame) {
  const std::lock_guard lock(mutex_);
  if (welcomed_) write(std::move(frame));
}

void OutgoingLink::cancel() {
  context_.TryCancel();
}

void OutgoingLink::read() {
  release_to_grpc(this);
  StartRead(&in_);
}

// With the lock held.
void OutgoingLink::write(rpc::Frame frame) {
  if (broken_) return;
  if (writing_) {
    next_ = std::move(frame);
    return;
  }
  out_ = std::move(frame);
  writing_ = true;
  release_to_grpc(this);
  StartWrite(&out_);
}

void OutgoingLink::OnWriteDone(bool ok) {
  const Reaction reaction(this);
  const std::lock_guard lock(mutex_);
  writing_ = false;
  if (ok && next_) write(*std::exchange(next_, std::nullopt));
}

void OutgoingLink::OnReadDone(bool ok) {
  const Reaction reaction(this);
  if (!ok) {
    {
      const std::lock_guard lock(mutex_);
      broken_ = true;
    }
    return RemoveHold();
  }
  // Whoever has not proved to know the token yet says nothing that counts, not even no.
  const bool is_challenge = in_.kind_case() == rpc::Frame::kChallenge;
  if (is_challenge == answered_) {
    fault_ = "what answers there speaks out of turn";
    cancel();
    return read();
  }
  switch (in_.kind_case()) {
    case rpc::Frame::kChallenge:
      answered_ = true;
      answer(in_.challenge());
      break;
    case rpc::Frame::kWelcome: {
      {
        const std::lock_guard lock(mutex_);
        welcomed_ = true;
      }
      events_.welcomed();
      break;
    }
    case rpc::Frame::kRefusal:
      refusal_ = in_.refusal();
      break;
    case rpc::Frame::kTable:
      if (events_.table) events_.table(in_.table());
      break;
    default:
      break;
  }
  read();
}

void OutgoingLink::answer(const rpc::Challenge& challenge) {
  if (!proves(security_, 'S', hello_, challenge.nonce(), challenge.tag())) {
    refusal_.emplace();
    refusal_->set_reason(rpc::Refusal::MISMATCH);
    refusal_->set_message(security_.mode == Security::Mode::kToken
                              ? fmt::format("{} does not know this task's token", to_.name())
                              : fmt::format("{} runs with --security token, this task does not", to_.name()));
    return cancel();
  }
  rpc::Frame frame;
  frame.mutable_proof()->set_tag(proof_tag(security_, 'C', hello_, challenge.nonce()));
  const std::lock_guard lock(mutex_);
  write(std::move(frame));
}

void OutgoingLink::OnDone(const grpc::Status& status) {
  acquire_from_grpc(this);
  // The callee may destroy this object.
  const auto ended = std::move(events_.ended);
  const auto refusal = std::move(refusal_);
  const std::string reason = refusal          ? refusal->message()
                             : fault_.empty() ? reason_of(status, welcomed_)
                                              : fault_;
  ended(refusal, reason);
}

}  // namespace tandem::internal
