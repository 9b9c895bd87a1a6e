// The part of ShardTable that takes a shard as a whole, with its state: for checkpoints and snapshots.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <iterator>
#include <vector>

#include "ps/limits.h"
#include "ps/shard_place.h"
#include "ps/wire_values.h"

namespace tandem::internal::ps {

ShardTable::Fault ShardTable::check(std::span<const ShardTensor> tensors) const {
  std::vector<std::size_t> due;
  std::ranges::copy_if(ids_, std::back_inserter(due), [&](std::size_t id) { return !plan_->is_table(id); });
  auto id = due.begin();
  std::uint64_t state_bytes = 0;
  for (const ShardTensor& tensor : tensors) {
    if (!tensor.name.empty()) {
      state_bytes += tensor.payload_bytes();
      if (state_bytes <= most_state_bytes(plan_->shards()[tensor.shard].bytes)) continue;
      return {Status::kMalformed,
              fmt::format("{} comes with {} bytes of state and more, for {} of values",
                          plan_->shard_name(tensor.shard), state_bytes, plan_->shards()[tensor.shard].bytes)};
    }
    state_bytes = 0;
    if (id == due.end() || *id++ != tensor.shard) {
      return {Status::kMalformed, fmt::format("the values are of other shards than those of ps {}", ps_)};
    }
    const auto& variable =
        plan_->variables()[static_cast<std::size_t>(plan_->shards()[tensor.shard].variable)];
    if (tensor.dtype != variable.dtype || tensor.shape != plan_->shard_shape(tensor.shard)) {
      return {Status::kMalformed,
              fmt::format("{} is {} [{}]: values of {} [{}] were sent", plan_->shard_name(tensor.shard),
                          variable.dtype, fmt::join(plan_->shard_shape(tensor.shard), ", "), tensor.dtype,
                          fmt::join(tensor.shape, ", "))};
    }
  }
  if (id == due.end()) return {};
  return {Status::kMalformed, fmt::format("the values of {} are missing", plan_->shard_name(*id))};
}

ShardTable::Fault ShardTable::assign(std::size_t shard, std::span<const std::byte> values,
                                     std::span<const StateTensor> state,
                                     std::optional<std::uint64_t> updates) {
  Place& place = at(shard);
  const std::lock_guard lock(place.mutex);
  try {
    store_.restore_state(shard, state);
  } catch (const std::exception& error) {
    return {Status::kMalformed, fmt::format("{}: {}", plan_->shard_name(shard), error.what())};
  }
  std::ranges::copy(values, store_.values(shard).begin());
  ++place.version;
  for (auto& copy : place.copies) copy.reset();
  if (updates) place.updates = *updates;
  return {};
}

void ShardTable::set_updates_of_tables(std::uint64_t updates) {
  for (const std::size_t id : ids_) {
    if (!plan_->is_table(id)) continue;
    Place& place = at(id);
    const std::lock_guard lock(place.mutex);
    place.updates = updates;
  }
}

std::size_t ShardTable::bytes_with_state(std::size_t shard) {
  Place& place = at(shard);
  const std::lock_guard lock(place.mutex);
  std::size_t bytes = place.shard->bytes;
  for (const StateTensor& tensor : store_.state(shard)) bytes += tensor.bytes.size();
  return bytes;
}

std::shared_ptr<const ShardCopy> ShardTable::copy_with_state(std::size_t shard, Staging::Buffer& buffer,
                                                             std::vector<ShardTensor>& tensors) {
  Place& place = at(shard);
  const std::lock_guard lock(place.mutex);
  const auto& variable = plan_->variables()[static_cast<std::size_t>(place.shard->variable)];
  std::vector<StateTensor> all = store_.state(shard);
  std::ranges::sort(all, {}, &StateTensor::name);
  all.insert(all.begin(), {{}, variable.dtype, plan_->shard_shape(shard), store_.values(shard)});
  std::size_t bytes = 0;
  for (const StateTensor& tensor : all) bytes += tensor.bytes.size();
  if (bytes != buffer.bytes().size()) return nullptr;
  const auto copy = std::make_shared<ShardCopy>();
  copy->version = place.version;
  copy->buffer = std::move(buffer);
  std::byte* to = copy->buffer.bytes().data();
  for (StateTensor& tensor : all) {
    const std::uint32_t crc = copy_with_crc(tensor.bytes, to);
    to += tensor.bytes.size();
    tensors.push_back({.shard = static_cast<std::uint32_t>(shard),
                       .name = std::move(tensor.name),
                       .dtype = std::move(tensor.dtype),
                       .shape = std::move(tensor.shape),
                       .crc = crc});
  }
  return copy;
}

void ShardTable::save(std::size_t shard, const std::function<void(const Saved&)>& use) {
  Place& place = at(shard);
  const std::lock_guard lock(place.mutex);
  use({.version = place.version,
       .updates = place.updates,
       .step = place.whole.step(),
       .ledger = place.ledger.to_bytes(),
       .marks = place.ledger.marks(),
       .values = store_.values(shard),
       .state = store_.state(shard)});
}

void ShardTable::set_durable(std::size_t shard, const std::vector<PushMark>& marks) {
  Place& place = at(shard);
  const std::lock_guard lock(place.mutex);
  place.ledger.set_durable(marks);
}

void ShardTable::restore(std::size_t shard, const Saved& saved) {
  Place& place = at(shard);
  const std::lock_guard lock(place.mutex);
  place.ledger = PushLedger::from_bytes(saved.ledger);
  place.version = saved.version;
  place.updates = saved.updates;
  place.whole = WholeStep(saved.step, options_.aggregate);
  store_.restore_state(shard, saved.state);
}

}  // namespace tandem::internal::ps
