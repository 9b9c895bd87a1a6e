// The part of PsConnection that workers need in every step: push and pull.
#include <fmt/format.h>

#include <algorithm>

#include "base/crc32c.h"
#include "ps/ps_connection.h"
#include "ps/wire_values.h"

namespace tandem::internal::ps {
namespace {

// Room in which an entry of a push is staged: rows, values in the shard's type, and in front of those what
// came in 16 bits.
std::size_t staged_bytes(const Push::Entry& entry, WireType type) {
  const std::size_t widened = entry.type == type ? 0 : entry.count * wire_type_bytes(type);
  return entry.payload_bytes() + widened;
}

std::span<const std::int64_t> as_rows(std::span<const std::byte> bytes) {
  return {reinterpret_cast<const std::int64_t*>(bytes.data()), bytes.size() / sizeof(std::int64_t)};
}

}  // namespace

// Push

void PsConnection::refuse_entry(Status status, const std::string& message) {
  if (message_.empty()) message_ = fmt::format("ps {}: {}", state_.options.ps, message);
  refused_[entry_] = {.shard = push_.entries[entry_].shard, .status = status};
}

bool PsConnection::begin_entry() {
  if (entry_ == push_.entries.size()) {
    stage_ = Stage::kPushReply;
    return true;
  }
  const Push::Entry& entry = push_.entries[entry_];
  filled_ = 0;
  crc_ = 0;
  const auto discard = [&] {
    ++entry_;
    skip_then(entry.payload_bytes(), Stage::kPushEntry);
    return true;
  };
  if (!is_admitted(push_.worker, push_.incarnation)) {
    refuse_entry(Status::kNotAdmitted, "this process did not say hello, or a newer one did");
    return discard();
  }
  if (const auto fault = state_.table.check(entry)) {
    refuse_entry(fault.status, fault.message);
    return discard();
  }
  if (!state_.roll.has_begun()) return park();
  switch (state_.table.begin(push_, entry)) {
    case ShardTable::Go::kWait:
      return park();
    case ShardTable::Go::kDiscard:
      return discard();
    case ShardTable::Go::kEarly:
      refuse_entry(Status::kMalformed, fmt::format("a push for step {}, which has not begun", push_.step));
      return discard();
    case ShardTable::Go::kTake:
      break;
  }
  fresh_[entry_] = true;
  const std::size_t size = staged_bytes(entry, state_.table.type(entry.shard));
  auto buffers = state_.staging.try_take(this, std::span(&size, 1));
  if (!buffers) return park();
  staged_ = std::move(buffers->front());
  stage_ = Stage::kPushPayload;
  return true;
}

bool PsConnection::read_payload() {
  const Push::Entry& entry = push_.entries[entry_];
  const std::span<std::byte> all = staged_.bytes();
  // Rows, then values; what came in 16 bits lies at the end and is widened to where it belongs.
  const std::size_t widened = all.size() - entry.payload_bytes();
  const std::size_t row_bytes = entry.row_id_bytes();
  if (filled_ < row_bytes && !fill(all.first(row_bytes), filled_, &crc_)) return false;
  std::size_t values_filled = filled_ - row_bytes;
  const bool done = fill(all.subspan(row_bytes + widened), values_filled, &crc_);
  filled_ = row_bytes + values_filled;
  if (!done) return false;
  payload_is_here();
  staged_ = {};
  ++entry_;
  stage_ = Stage::kPushEntry;
  return true;
}

void PsConnection::payload_is_here() {
  const Push::Entry& entry = push_.entries[entry_];
  const std::span<std::byte> all = staged_.bytes();
  const std::string name = state_.table.plan().shard_name(entry.shard);
  if (crc_ != entry.crc) {
    return refuse_entry(
        Status::kDamaged,
        fmt::format("the gradient of {} has the crc32c {:08x}, expected {:08x}", name, crc_, entry.crc));
  }
  const auto row_ids = as_rows(all.first(entry.row_id_bytes()));
  const auto& shard = state_.table.plan().shards()[entry.shard];
  if (const std::string fault = fault_of_rows(row_ids, shard.rows()); !fault.empty()) {
    return refuse_entry(Status::kMalformed, fmt::format("{}: {}", name, fault));
  }
  std::span<std::byte> values = all.subspan(entry.row_id_bytes());
  if (const std::size_t widened = all.size() - entry.payload_bytes(); widened > 0) {
    from_bfloat16(values.subspan(widened), values.first(widened));
    values = values.first(widened);
  }
  state_.table.add(push_, entry, row_ids, values);
  if (state_.options.staleness) state_.changed();
}

bool PsConnection::finish_push() {
  PushReplies replies{.seq = push_.seq};
  bool all_settled = true;
  for (std::size_t i = 0; i < push_.entries.size(); ++i) {
    const Push::Entry& entry = push_.entries[i];
    auto settled = refused_[i] ? refused_[i] : state_.table.settled(push_, entry);
    if (!settled) return park();
    settled->repeated = settled->repeated && !fresh_[i];
    all_settled = all_settled && settles(settled->status);
    if (settled->status != Status::kApplied && message_.empty()) {
      const std::string reason = settled->status == Status::kRejected ? state_.table.reason(entry.shard) : "";
      message_ = fmt::format("ps {}: {}: {}", state_.options.ps, state_.table.plan().shard_name(entry.shard),
                             reason.empty() ? status_name(settled->status) : reason);
    }
    replies.entries.push_back(*settled);
  }
  ++state_.pushes;
  if (!all_settled) ++state_.refused;
  if (all_settled) {
    count_staleness();
    state_.roll.step_done(static_cast<int>(push_.worker), push_.step);
    state_.catch_up();
    replies.step = push_.step + 1;
    if (state_.options.staleness == 0u) replies.step = std::max(replies.step, state_.table.whole_step());
    if (push_.closures_settled > 0) state_.table.settle_closures_below(push_.closures_settled);
    if (state_.options.staleness) state_.changed();
  }
  replies.global_step = state_.ready ? state_.global_step() : 0;
  replies.message = message_;
  reply(encode(replies));
  return true;
}

// How many updates there were since this worker pulled, its own not counted.
void PsConnection::count_staleness() {
  const std::uint64_t updates = state_.table.updates();
  const std::uint64_t between = updates > pulled_at_ + 1 ? updates - pulled_at_ - 1 : 0;
  ++state_.staleness[std::min<std::uint64_t>(between, state_.staleness.size() - 1)];
}

// Pull

bool PsConnection::begin_pull() {
  if (faults_.empty()) {
    faults_.resize(pull_.entries.size());
    const bool admitted = is_admitted(pull_.worker, pull_.incarnation);
    for (std::size_t i = 0; i < faults_.size(); ++i) {
      faults_[i] = admitted ? state_.table.check(pull_.entries[i])
                            : ShardTable::Fault{Status::kNotAdmitted,
                                                "this process did not say hello, or a newer one did"};
    }
  }
  const bool any_fault = std::ranges::any_of(faults_, [](const auto& fault) { return bool(fault); });
  if (any_fault) {
    PullReply refusal;
    for (std::size_t i = 0; i < faults_.size(); ++i) {
      refusal.entries.push_back({.shard = pull_.entries[i].shard, .status = faults_[i].status});
      if (faults_[i] && refusal.message.empty()) {
        refusal.message = fmt::format("ps {}: {}", state_.options.ps, faults_[i].message);
      }
    }
    ++state_.refused;
    faults_.clear();
    reply(encode(refusal));
    skip_then(prologue_.payload_bytes, Stage::kWrite);
    return true;
  }
  if (!state_.roll.may_start(*worker_, pull_.step)) return park();

  // Everything at once: who waits here holds nothing.
  std::vector<std::size_t> sizes{prologue_.payload_bytes};
  parts_.clear();
  for (const Pull::Entry& entry : pull_.entries) {
    PullPart& part = parts_.emplace_back();
    if (entry.kind == PayloadKind::kDense) {
      part.known = entry.known_version != 0 && entry.known_version == state_.table.version(entry.shard);
      if (!part.known) part.copy = state_.table.newest_copy(entry);
    }
    sizes.push_back(part.known || part.copy ? 0 : state_.table.copy_bytes(entry));
  }
  auto buffers = state_.staging.try_take(this, sizes);
  if (!buffers) {
    parts_.clear();
    return park();
  }
  faults_.clear();
  rows_ = std::move(buffers->front());
  for (std::size_t i = 0; i < parts_.size(); ++i) parts_[i].buffer = std::move((*buffers)[i + 1]);
  filled_ = 0;
  stage_ = Stage::kPullRows;
  return true;
}

bool PsConnection::read_rows() {
  if (!fill(rows_.bytes(), filled_)) return false;
  PullReply pulled{.global_step = state_.global_step()};
  pulled_at_ = state_.table.updates();
  std::size_t row_offset = 0;
  for (std::size_t i = 0; i < pull_.entries.size(); ++i) {
    const Pull::Entry& entry = pull_.entries[i];
    PullPart& part = parts_[i];
    PullReply::Entry out{.shard = entry.shard, .kind = entry.kind, .type = entry.type};
    if (entry.kind == PayloadKind::kRows) {
      const auto rows = rows_.bytes().subspan(row_offset, entry.payload_bytes());
      row_offset += rows.size();
      if (const auto fault = fault_of_pulled_rows(entry, rows)) {
        out = {.shard = entry.shard, .status = fault.status};
        if (pulled.message.empty()) {
          pulled.message = fmt::format("ps {}: {}: {}", state_.options.ps,
                                       state_.table.plan().shard_name(entry.shard), fault.message);
          ++state_.refused;
        }
      } else {
        part.copy = state_.table.copy_rows(entry, as_rows(rows), std::move(part.buffer));
      }
    } else if (part.known) {
      out.kind = PayloadKind::kNothing;
      out.version = entry.known_version;
    } else if (!part.copy) {
      part.copy = state_.table.copy(entry, std::move(part.buffer));
    }
    if (part.copy) {
      out.version = part.copy->version;
      out.crc = part.copy->crc;
      out.count = part.copy->buffer.bytes().size() / wire_type_bytes(entry.type);
      if (out.count > 0) out_copies_.push_back(std::move(part.copy));
    }
    pulled.entries.push_back(out);
  }
  ++state_.pulls;
  rows_ = {};
  parts_.clear();
  reply(encode(pulled));
  return true;
}

ShardTable::Fault PsConnection::fault_of_pulled_rows(const Pull::Entry& entry,
                                                     std::span<const std::byte> rows) const {
  if (crc32c(rows.data(), rows.size()) != entry.crc) {
    return {Status::kDamaged, "the rows' numbers are damaged on the way"};
  }
  std::string fault = fault_of_rows(as_rows(rows), state_.table.plan().shards()[entry.shard].rows());
  if (fault.empty()) return {};
  return {Status::kMalformed, std::move(fault)};
}

}  // namespace tandem::internal::ps
