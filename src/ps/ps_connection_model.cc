// The part of PsConnection that the chief needs: the model as a whole, given, read and given anew.
#include <fmt/format.h>

#include <algorithm>

#include "base/crc32c.h"
#include "base/log.h"
#include "ps/ps_connection.h"
#include "tandem/error.h"

namespace tandem::internal::ps {

bool PsConnection::read_texts() {
  const std::size_t whole = initialise_.text_bytes();
  while (filled_ < whole) {
    // Room for what has come, not for what was promised.
    texts_.resize(std::min(whole, filled_ + kReadBlock));
    if (!fill(std::as_writable_bytes(std::span(texts_)), filled_)) return false;
  }
  on_initialise();
  return true;
}

void PsConnection::begin_tensors(std::vector<ShardTensor> tensors, std::optional<std::uint64_t> updates) {
  intake_.begin(std::move(tensors));
  updates_ = updates;
  filled_ = 0;
  crc_ = 0;
  stage_ = Stage::kTensors;
}

void PsConnection::refuse_tensors(const Answer& message) {
  if (message.status != Status::kApplied && message.status != Status::kNotReady) ++state_.refused;
  {
    const std::lock_guard lock(state_.initialising);
    if (state_.initialiser == this) state_.initialiser = nullptr;
  }
  answer(message);
  skip_then(intake_.rest(), Stage::kWrite);
  intake_.begin({});
}

// What to answer to Initialise without its tensors, if it is not to be taken. Else the table is made.
std::optional<Answer> PsConnection::refusal_of_model() {
  const std::string_view plan_text = std::string_view(texts_).substr(0, initialise_.plan_bytes);
  const std::string optimizer = texts_.substr(initialise_.plan_bytes);
  if (crc32c(texts_.data(), texts_.size()) != initialise_.texts_crc) {
    return Answer{.status = Status::kDamaged, .message = "the plan is damaged on the way"};
  }
  const auto refuse = [](Status status, std::string text) {
    return Answer{.status = status, .message = std::move(text)};
  };
  const int ps = state_.options.ps;
  const PlacementPlan plan = PlacementPlan::from_json(plan_text);
  const std::lock_guard lock(state_.initialising);
  if (state_.ready) {
    if (plan.digest() != state_.table.digest()) {
      return refuse(Status::kOtherModel,
                    plan_difference(plan.canonical(), who(), state_.table.plan().canonical(),
                                    fmt::format("ps {}", ps)));
    }
    if (optimizer != state_.table.optimizer()) {
      return refuse(Status::kOtherModel,
                    fmt::format("ps {} was initialised with the optimizer \"{}\", {} has \"{}\"", ps,
                                state_.table.optimizer().substr(0, 200), who(), optimizer.substr(0, 200)));
    }
    // The answer to its first try may have been lost.
    return Answer{.before = state_.initialised_by != initialise_.incarnation};
  }
  if (state_.initialiser || state_.filled) {
    return refuse(Status::kNotReady, "another chief initialises it just now");
  }
  if (ps >= plan.num_ps()) {
    return refuse(Status::kOtherModel, fmt::format("this is ps {}: the plan has {}", ps, plan.num_ps()));
  }
  state_.table.create(plan, ps, optimizer);
  if (const auto fault = state_.table.check(initialise_.entries)) return refuse(fault.status, fault.message);
  state_.initialiser = this;
  state_.set_budget();
  return std::nullopt;
}

void PsConnection::on_initialise() {
  std::optional<Answer> refusal;
  try {
    refusal = refusal_of_model();
  } catch (const std::exception& error) {
    refusal = Answer{.status = Status::kMalformed, .message = error.what()};
  }
  is_assign_ = false;
  begin_tensors(std::move(initialise_.entries), initialise_.global_step);
  if (refusal) refuse_tensors(*refusal);
}

void PsConnection::on_assign(Assign assign) {
  const bool admitted = is_admitted(assign.worker, assign.incarnation);
  const auto fault = admitted ? state_.table.check(assign.entries)
                              : ShardTable::Fault{Status::kNotAdmitted,
                                                  "this process did not say hello, or a newer one did"};
  is_assign_ = true;
  begin_tensors(std::move(assign.entries),
                assign.has_global_step ? std::optional(assign.global_step) : std::nullopt);
  if (fault) refuse_tensors({.status = fault.status, .message = fault.message});
}

bool PsConnection::read_tensors() {
  while (!intake_.is_done()) {
    if (!intake_.has_room()) {
      const std::size_t size = intake_.room_needed();
      auto buffers = state_.staging.try_take(this, std::span(&size, 1));
      if (!buffers) return park();
      intake_.set_room(std::move(buffers->front()));
    }
    if (!fill(intake_.memory(), filled_, &crc_)) return false;
    const ShardTensor& tensor = intake_.tensor();
    const bool damaged = crc_ != tensor.crc;
    const bool whole = intake_.advance();
    filled_ = 0;
    crc_ = 0;
    if (damaged) {
      refuse_tensors({.status = Status::kDamaged,
                      .message = fmt::format("{} of {} is damaged on the way",
                                             tensor.name.empty() ? "the value" : tensor.name,
                                             state_.table.plan().shard_name(tensor.shard))});
      return true;
    }
    if (!whole) continue;
    const auto fault = state_.table.assign(intake_.shard(), intake_.values(), intake_.state(), updates_);
    if (fault) {
      refuse_tensors({.status = fault.status, .message = fault.message});
      return true;
    }
    intake_.next_shard();
  }
  if (updates_) state_.table.set_updates_of_tables(*updates_);
  is_assign_ ? is_assigned() : is_initialised();
  return true;
}

void PsConnection::is_initialised() {
  {
    const std::lock_guard lock(state_.initialising);
    state_.initialiser = nullptr;
    state_.initialised_by = initialise_.incarnation;
  }
  log_info("ps {}: {} shards, {:.1f} MB", state_.options.ps, state_.table.ids().size(),
           static_cast<double>(state_.table.plan().bytes_on(state_.options.ps)) / 1e6);
  if (state_.options.snapshot_folder.empty()) {
    state_.set_ready();
    state_.changed();
  } else {
    state_.filled = true;
  }
  stage_ = Stage::kFirstSnapshot;
}

bool PsConnection::await_ready() {
  if (!state_.ready) return park();
  answer({});
  return true;
}

void PsConnection::is_assigned() {
  log_info("ps {}: {} gave it other values and state{}", state_.options.ps, who(),
           updates_ ? fmt::format(", of global step {}", *updates_) : "");
  assignment_ = ++state_.assignments;
  stage_ = Stage::kAssigned;
}

// Until a ps that dies now would come back with it.
bool PsConnection::await_saved() {
  if (!state_.options.snapshot_folder.empty() && state_.assignments_saved < assignment_) return park();
  answer({});
  return true;
}

void PsConnection::on_read(const Read& read) {
  const auto refuse = [&](Status status, std::string text) {
    ++state_.refused;
    reply(encode(ReadReply{.status = status, .message = fmt::format("ps {}: {}", state_.options.ps, text)}));
  };
  if (!is_admitted(read.worker, read.incarnation)) {
    return refuse(Status::kNotAdmitted, "this process did not say hello, or a newer one did");
  }
  if (!state_.table.holds(read.shard)) {
    return refuse(Status::kUnknownShard, fmt::format("shard {} is not here", read.shard));
  }
  read_ = read;
  stage_ = Stage::kRead;
}

bool PsConnection::answer_read() {
  const std::size_t size = state_.table.bytes_with_state(read_.shard);
  auto buffers = state_.staging.try_take(this, std::span(&size, 1));
  if (!buffers) return park();
  ReadReply out;
  auto copy = state_.table.copy_with_state(read_.shard, buffers->front(), out.entries);
  // Its state has come into being meanwhile: that happens once.
  if (!copy) return true;
  out.version = copy->version;
  if (size > 0) out_copies_.push_back(std::move(copy));
  reply(encode(out));
  return true;
}

}  // namespace tandem::internal::ps
