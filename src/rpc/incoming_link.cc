#include "rpc/incoming_link.h"

#include <utility>
#include <vector>

#include "rpc/reaction_order.h"

namespace tandem::internal {
namespace {

rpc::Refusal mismatch(const char* message) {
  rpc::Refusal refusal;
  refusal.set_reason(rpc::Refusal::MISMATCH);
  refusal.set_message(message);
  return refusal;
}

rpc::Refusal wrong_proof(const Security& security) {
  return mismatch(security.mode == Security::Mode::kToken
                      ? "this task runs with --security token, and the token is wrong or missing"
                      : "this task runs without a token");
}

std::vector<std::string> certified_uris(const grpc::CallbackServerContext& context) {
  std::vector<std::string> uris;
  for (const auto& uri : context.auth_context()->FindPropertyValues(GRPC_PEER_URI_PROPERTY_NAME)) {
    uris.emplace_back(uri.data(), uri.size());
  }
  return uris;
}

}  // namespace

std::shared_ptr<IncomingLink> IncomingLink::open(const Identity& self, Events events,
                                                 grpc::CallbackServerContext& context) {
  std::shared_ptr<IncomingLink> link(new IncomingLink(self, std::move(events), context));
  link->alive_ = link;
  link->read();
  return link;
}

IncomingLink::IncomingLink(const Identity& self, Events events, grpc::CallbackServerContext& context)
    : self_(self), events_(std::move(events)), context_(context) {}

bool IncomingLink::half_open() const {
  const std::lock_guard lock(mutex_);
  return !admitted() && !finished_;
}

void IncomingLink::send(rpc::Frame frame) {
  const std::lock_guard lock(mutex_);
  write(std::move(frame));
}

void IncomingLink::close(const std::string& reason) {
  const std::lock_guard lock(mutex_);
  finish(grpc::Status(grpc::StatusCode::UNAVAILABLE, reason));
}

void IncomingLink::read() {
  release_to_grpc(this);
  StartRead(&in_);
}

// With the lock held, as the next.
void IncomingLink::write(rpc::Frame frame) {
  if (finished_) return;
  if (writing_) {
    next_ = std::move(frame);
    return;
  }
  out_ = std::move(frame);
  writing_ = true;
  release_to_grpc(this);
  StartWrite(&out_);
}

void IncomingLink::finish(const grpc::Status& status) {
  if (std::exchange(finished_, true)) return;
  release_to_grpc(this);
  Finish(status);
}

void IncomingLink::OnWriteDone(bool ok) {
  const Reaction reaction(this);
  const std::lock_guard lock(mutex_);
  writing_ = false;
  if (ok && next_) return write(*std::exchange(next_, std::nullopt));
  if (!ok || finish_after_write_) finish(grpc::Status::OK);
}

void IncomingLink::OnReadDone(bool ok) {
  const Reaction reaction(this);
  bool go_on = ok;
  if (ok) {
    switch (in_.kind_case()) {
      case rpc::Frame::kHello:
        go_on = nonce_.empty() && take_hello(in_.hello());
        break;
      case rpc::Frame::kProof:
        go_on = !nonce_.empty() && !admitted() && take_proof(in_.proof());
        break;
      case rpc::Frame::kBeat:
        go_on = admitted() && task_.has_value();
        if (go_on) events_.beat(*this, in_.beat());
        break;
      default:
        go_on = false;
    }
  }
  if (go_on) return read();
  const std::lock_guard lock(mutex_);
  if (!finish_after_write_)
    finish(ok ? grpc::Status(grpc::StatusCode::INVALID_ARGUMENT, "out of turn") : grpc::Status::OK);
}

bool IncomingLink::take_hello(const std::string& hello) {
  hello_ = hello;
  nonce_ = random_nonce();
  rpc::Frame frame;
  frame.mutable_challenge()->set_nonce(nonce_);
  frame.mutable_challenge()->set_tag(proof_tag(self_.security, 'S', hello_, nonce_));
  send(std::move(frame));
  return true;
}

bool IncomingLink::take_proof(const rpc::Proof& proof) {
  if (!proves(self_.security, 'C', hello_, nonce_, proof.tag())) {
    refuse(wrong_proof(self_.security));
    return false;
  }
  rpc::Hello hello;
  if (!hello.ParseFromString(hello_)) {
    refuse(mismatch("the hello cannot be read: use one build of tandem"));
    return false;
  }
  if (const auto refusal = judge(self_, hello, certified_uris(context_))) {
    refuse(*refusal);
    return false;
  }
  if (hello.has_from()) {
    task_ = TaskId{hello.from().type(), hello.from().index()};
    offer_ = std::make_shared<const Offer>(offer_in(hello));
  }
  incarnation_ = incarnation_of(hello.incarnation());
  if (const auto refusal = events_.admit(*this)) {
    refuse(*refusal);
    return false;
  }
  admitted_.store(true, std::memory_order_release);
  rpc::Frame frame;
  frame.mutable_welcome()->set_incarnation(bytes_of(self_.incarnation));
  send(std::move(frame));
  return true;
}

void IncomingLink::refuse(const rpc::Refusal& refusal) {
  events_.refused(refusal.message(), context_.peer());
  rpc::Frame frame;
  *frame.mutable_refusal() = refusal;
  const std::lock_guard lock(mutex_);
  write(std::move(frame));
  finish_after_write_ = true;
}

void IncomingLink::OnDone() {
  acquire_from_grpc(this);
  events_.ended(*this);
  const auto last = std::move(alive_);  // destroys this object, unless someone else still looks at it
}

}  // namespace tandem::internal
