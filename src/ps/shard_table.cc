#include "ps/shard_table.h"

#include <fmt/format.h>

#include <algorithm>
#include <cassert>

#include "base/crc32c.h"
#include "ps/shard_place.h"
#include "ps/wire_values.h"
#include "tandem/error.h"

namespace tandem::internal::ps {
namespace {

PushId id_of(const Push& push) {
  return {.worker = static_cast<int>(push.worker),
          .incarnation = push.incarnation,
          .seq = push.seq,
          .closure = push.closure,
          .closure_push = push.closure_push};
}

}  // namespace

ShardTable::ShardTable(ShardStore& store, const ShardTableOptions& options,
                       std::function<std::vector<int>(std::uint64_t step)> busy)
    : store_(store), options_(options), busy_(std::move(busy)) {}

ShardTable::~ShardTable() = default;

void ShardTable::create(const PlacementPlan& plan, int ps, const std::string& optimizer) {
  std::vector<std::unique_ptr<Place>> places(plan.shards().size());
  for (const std::size_t id : plan.shards_on(ps)) {
    const Shard& shard = plan.shards()[id];
    const PlanVariable& variable = plan.variables()[static_cast<std::size_t>(shard.variable)];
    const auto type = wire_type_of(variable.dtype);
    if (!type) {
      throw InvalidArgument(fmt::format("variable {} is {}: parameter servers hold F32, F64 and BF16",
                                        variable.name, variable.dtype));
    }
    places[id] = std::make_unique<Place>();
    places[id]->id = id;
    places[id]->type = *type;
    places[id]->whole = WholeStep(0, options_.aggregate);
    places[id]->version = variable.is_table() ? 1 : 0;  // it begins with values; others get theirs
    places[id]->row_bytes = shard.rows() > 0 ? shard.bytes / static_cast<std::uint64_t>(shard.rows()) : 0;
  }
  store_.create(plan, ps, optimizer);
  plan_ = plan;
  digest_ = plan.digest();
  optimizer_ = optimizer;
  ps_ = ps;
  ids_ = plan.shards_on(ps);
  places_ = std::move(places);
  for (const std::size_t id : ids_) places_[id]->shard = &plan_->shards()[id];
}

ShardTable::Place* ShardTable::find(std::size_t shard) const {
  return shard < places_.size() ? places_[shard].get() : nullptr;
}

ShardTable::Place& ShardTable::at(std::size_t shard) const {
  assert(find(shard));
  return *places_[shard];
}

WireType ShardTable::type(std::size_t shard) const {
  return at(shard).type;
}

std::vector<HelloReply::Entry> ShardTable::admit(int worker, Incarnation incarnation,
                                                 std::uint64_t oldest_seq) {
  std::vector<HelloReply::Entry> entries;
  for (const std::size_t id : ids_) {
    Place& place = at(id);
    const std::lock_guard lock(place.mutex);
    const PushLedger::Admission admission = place.ledger.admit(worker, incarnation, oldest_seq);
    if (!admission.admitted) return {};
    entries.push_back({.shard = static_cast<std::uint32_t>(id),
                       .version = place.version,
                       .last_seq = admission.last_seq,
                       .lost = admission.lost});
  }
  return entries;
}

ShardTable::Fault ShardTable::check(const Push::Entry& entry) const {
  const Place* place = find(entry.shard);
  if (!place) {
    return {Status::kUnknownShard, fmt::format("shard {} is not on ps {}", entry.shard, ps_)};
  }
  if (entry.kind == PayloadKind::kNothing) return {};
  const std::string name = plan_->shard_name(entry.shard);
  const bool halved = place->type == WireType::kFloat32 && entry.type == WireType::kBfloat16;
  if (entry.type != place->type && !halved) {
    return {Status::kMalformed, fmt::format("{} is {}: a push of {} was sent", name,
                                            wire_type_name(place->type), wire_type_name(entry.type))};
  }
  const std::uint64_t row_values = place->row_bytes / wire_type_bytes(place->type);
  const std::uint64_t expected = entry.kind == PayloadKind::kDense
                                     ? place->shard->bytes / wire_type_bytes(place->type)
                                     : row_values * entry.rows;
  if (entry.count != expected) {
    return {Status::kMalformed,
            fmt::format("{} takes {} values{}: a push of {} was sent", name, expected,
                        entry.kind == PayloadKind::kRows ? fmt::format(" in {} rows", entry.rows) : "",
                        entry.count)};
  }
  if (entry.kind == PayloadKind::kRows && entry.rows > static_cast<std::uint64_t>(place->shard->rows())) {
    return {Status::kMalformed,
            fmt::format("{} has {} rows: a push of {} was sent", name, place->shard->rows(), entry.rows)};
  }
  return {};
}

ShardTable::Fault ShardTable::check(const Pull::Entry& entry) const {
  const Place* place = find(entry.shard);
  if (!place) {
    return {Status::kUnknownShard, fmt::format("shard {} is not on ps {}", entry.shard, ps_)};
  }
  const bool halved = place->type == WireType::kFloat32 && entry.type == WireType::kBfloat16;
  if (entry.type != place->type && !halved) {
    return {Status::kMalformed,
            fmt::format("{} is {}: a pull of {} was asked for", plan_->shard_name(entry.shard),
                        wire_type_name(place->type), wire_type_name(entry.type))};
  }
  if (entry.kind == PayloadKind::kRows && entry.rows > static_cast<std::uint64_t>(place->shard->rows())) {
    return {Status::kMalformed,
            fmt::format("{} has {} rows: a pull of {} was asked for", plan_->shard_name(entry.shard),
                        place->shard->rows(), entry.rows)};
  }
  return {};
}

// Whether every live worker before this one has been added. Where not all of them count, which ones do is a
// matter of chance, and so is the order.
bool ShardTable::is_due(const Place& place, int worker) const {
  if (options_.aggregate) return true;
  for (const int other : busy_(place.whole.step())) {
    if (other >= worker) break;
    if (!place.held.contains(other)) return false;
  }
  return true;
}

ShardTable::Go ShardTable::begin(const Push& push, const Push::Entry& entry) {
  Place& place = at(entry.shard);
  const PushId id = id_of(push);
  const std::lock_guard lock(place.mutex);
  const PushLedger::Decision decision = place.ledger.decide(id);
  if (decision.verdict == PushLedger::Verdict::kSkip) {
    place.ledger.record(id, {.status = Status::kSuppressed, .version = place.version});
    return Go::kDiscard;
  }
  if (decision.verdict != PushLedger::Verdict::kApply) return Go::kDiscard;
  if (!options_.whole_steps) return Go::kTake;

  if (push.step < place.whole.step()) {
    place.ledger.record(id, {.status = Status::kLate, .version = place.version});
    return Go::kDiscard;
  }
  if (push.step > place.whole.step()) {
    // The ps has forgotten steps that the workers have not.
    if (!place.held.empty()) return Go::kEarly;
    place.whole = WholeStep(push.step, options_.aggregate);
  }
  if (const auto held = place.held.find(id.worker); held != place.held.end()) {
    if (held->second.id.incarnation == id.incarnation && held->second.id.seq == id.seq) return Go::kDiscard;
    // An earlier process of this worker has had its say in this step.
    place.ledger.record(id, {.status = Status::kLate, .version = place.version});
    return Go::kDiscard;
  }
  return is_due(place, id.worker) ? Go::kTake : Go::kWait;
}

void ShardTable::add(const Push& push, const Push::Entry& entry, std::span<const std::int64_t> row_ids,
                     std::span<const std::byte> values) {
  Place& place = at(entry.shard);
  const std::lock_guard lock(place.mutex);
  // It may have come over another connection meanwhile.
  if (place.ledger.decide(id_of(push)).verdict != PushLedger::Verdict::kApply) return;
  if (options_.whole_steps) {
    hold(place, push, entry, row_ids, values);
    settle_if_whole(place);
  } else {
    apply(place, push, entry, row_ids, values);
  }
}

void ShardTable::apply(Place& place, const Push& push, const Push::Entry& entry,
                       std::span<const std::int64_t> row_ids, std::span<const std::byte> values) {
  const PushId id = id_of(push);
  if (entry.kind == PayloadKind::kNothing) {
    ++place.updates;
    place.ledger.record(id, {.status = Status::kApplied, .version = place.version});
    return;
  }
  if (options_.reject_not_finite && !all_finite(place.type, values)) {
    place.reason =
        fmt::format("the gradient of {} has values that are not finite", plan_->shard_name(place.id));
    place.ledger.record(id, {.status = Status::kRejected, .version = place.version});
    return;
  }
  try {
    store_.apply(place.id, {.kind = entry.kind,
                            .row_ids = row_ids,
                            .values = values,
                            .learning_rate = push.learning_rate,
                            .step = push.step});
  } catch (const std::exception& error) {
    place.reason = fmt::format("{}: {}", plan_->shard_name(place.id), error.what());
    place.ledger.record(id, {.status = Status::kRejected, .version = place.version});
    return;
  }
  ++place.version;
  ++place.updates;
  for (auto& copy : place.copies) copy.reset();
  place.ledger.record(id, {.status = Status::kApplied, .version = place.version});
}

void ShardTable::hold(Place& place, const Push& push, const Push::Entry& entry,
                      std::span<const std::int64_t> row_ids, std::span<const std::byte> values) {
  const int worker = static_cast<int>(push.worker);
  if (place.held.contains(worker)) return;
  if (place.whole.offer(worker, push.step) != WholeStep::Offer::kHeld) {
    // The step became whole while this one was on its way.
    place.ledger.record(id_of(push), {.status = Status::kLate, .version = place.version});
    return;
  }
  Held held{.id = id_of(push)};
  if (options_.reject_not_finite && entry.kind != PayloadKind::kNothing && !all_finite(place.type, values)) {
    held.status = Status::kRejected;
    place.reason =
        fmt::format("the gradient of {} has values that are not finite", plan_->shard_name(place.id));
  } else {
    if (place.sum.kind == PayloadKind::kNothing) place.sum.learning_rate = push.learning_rate;
    place.sum.add({.type = place.type, .bytes = place.shard->bytes, .row_bytes = place.row_bytes}, entry.kind,
                  row_ids, values);
  }
  place.held.emplace(worker, held);
}

bool ShardTable::settle_if_whole(Place& place) {
  if (!options_.whole_steps) return false;
  if (!place.whole.whole(busy_(place.whole.step()))) return false;
  std::string failure;
  if (place.sum.kind != PayloadKind::kNothing) {
    try {
      store_.apply(place.id, {.kind = place.sum.kind,
                              .row_ids = place.sum.rows,
                              .values = place.sum.values,
                              .learning_rate = place.sum.learning_rate,
                              .step = place.whole.step()});
      ++place.version;
      for (auto& copy : place.copies) copy.reset();
    } catch (const std::exception& error) {
      failure = fmt::format("{}: {}", plan_->shard_name(place.id), error.what());
      place.reason = failure;
    }
  }
  if (failure.empty()) ++place.updates;
  for (const auto& [worker, held] : place.held) {
    // A newer process of that worker may have come since: then nobody is left to be told.
    if (place.ledger.decide(held.id).verdict != PushLedger::Verdict::kApply) continue;
    place.ledger.record(
        held.id, {.status = failure.empty() ? held.status : Status::kRejected, .version = place.version});
  }
  place.held.clear();
  place.sum.clear();
  place.whole.advance();
  return true;
}

bool ShardTable::settle_whole_steps() {
  bool any = false;
  for (const std::size_t id : ids_) {
    Place& place = at(id);
    const std::lock_guard lock(place.mutex);
    any |= settle_if_whole(place);
  }
  return any;
}

std::uint64_t ShardTable::whole_step() const {
  std::optional<std::uint64_t> least;
  for (const std::size_t id : ids_) {
    const Place& place = at(id);
    const std::lock_guard lock(at(id).mutex);
    least = std::min(least.value_or(place.whole.step()), place.whole.step());
  }
  return least.value_or(0);
}

std::optional<PushReplies::Entry> ShardTable::settled(const Push& push, const Push::Entry& entry) {
  Place& place = at(entry.shard);
  const std::lock_guard lock(place.mutex);
  const PushLedger::Decision decision = place.ledger.decide(id_of(push));
  if (decision.verdict == PushLedger::Verdict::kApply || decision.verdict == PushLedger::Verdict::kSkip) {
    return std::nullopt;
  }
  return PushReplies::Entry{
      .shard = entry.shard,
      .status = decision.reply.status,
      .repeated = decision.verdict == PushLedger::Verdict::kRepeat,
      .version = decision.reply.version,
      .last_seq = decision.last_seq,
      .durable_seq = std::min(place.ledger.durable_seq(static_cast<int>(push.worker)), decision.last_seq)};
}

std::string ShardTable::reason(std::size_t shard) {
  Place& place = at(shard);
  const std::lock_guard lock(place.mutex);
  return std::exchange(place.reason, {});
}

void ShardTable::settle_closures_below(std::uint64_t id) {
  for (const std::size_t shard : ids_) {
    Place& place = at(shard);
    const std::lock_guard lock(place.mutex);
    place.ledger.settle_closures_below(id);
  }
}

std::shared_ptr<const ShardCopy> ShardTable::newest_copy(const Pull::Entry& entry) {
  Place& place = at(entry.shard);
  const std::lock_guard lock(place.mutex);
  return place.copies[static_cast<std::size_t>(entry.type)].lock();
}

std::size_t ShardTable::copy_bytes(const Pull::Entry& entry) const {
  const Place& place = at(entry.shard);
  if (entry.kind == PayloadKind::kDense) return place.wire_bytes(entry.type);
  return entry.rows * (place.row_bytes / wire_type_bytes(place.type)) * wire_type_bytes(entry.type);
}

std::shared_ptr<const ShardCopy> ShardTable::copy(const Pull::Entry& entry, Staging::Buffer buffer) {
  Place& place = at(entry.shard);
  const std::lock_guard lock(place.mutex);
  const auto copy = std::make_shared<ShardCopy>();
  copy->version = place.version;
  copy->type = entry.type;
  copy->buffer = std::move(buffer);
  const std::span<const std::byte> values = store_.values(place.id);
  if (entry.type == place.type) {
    copy->crc = copy_with_crc(values, copy->buffer.bytes().data());
  } else {
    to_bfloat16(values, copy->buffer.bytes());
    copy->crc = crc32c(copy->buffer.bytes().data(), copy->buffer.bytes().size());
  }
  place.copies[static_cast<std::size_t>(entry.type)] = copy;
  return copy;
}

std::shared_ptr<const ShardCopy> ShardTable::copy_rows(const Pull::Entry& entry,
                                                       std::span<const std::int64_t> row_ids,
                                                       Staging::Buffer buffer) {
  Place& place = at(entry.shard);
  const auto copy = std::make_shared<ShardCopy>();
  copy->type = entry.type;
  copy->buffer = std::move(buffer);
  const std::span<std::byte> to = copy->buffer.bytes();
  const std::size_t to_row = to.size() / row_ids.size();
  {
    const std::lock_guard lock(place.mutex);
    copy->version = place.version;
    const std::span<const std::byte> values = store_.values(place.id);
    for (std::size_t i = 0; i < row_ids.size(); ++i) {
      const auto from =
          values.subspan(static_cast<std::size_t>(row_ids[i]) * place.row_bytes, place.row_bytes);
      if (entry.type == place.type) {
        std::ranges::copy(from, to.begin() + static_cast<std::ptrdiff_t>(i * to_row));
      } else {
        to_bfloat16(from, to.subspan(i * to_row, to_row));
      }
    }
  }
  copy->crc = crc32c(to.data(), to.size());
  return copy;
}

std::uint64_t ShardTable::version(std::size_t shard) const {
  Place& place = at(shard);
  const std::lock_guard lock(place.mutex);
  return place.version;
}

std::uint64_t ShardTable::updates() const {
  if (ids_.empty()) return 0;
  Place& place = at(ids_.front());
  const std::lock_guard lock(place.mutex);
  return place.updates;
}

}  // namespace tandem::internal::ps
