#include "strategy/torch_shard_store.h"

#include <fmt/format.h>
#include <torch/torch.h>

#include <map>

#include "checkpoint/tensors.h"
#include "strategy/first_values.h"
#include "strategy/optimizer_description.h"
#include "strategy/optimizer_slots.h"
#include "tandem/error.h"

namespace tandem::internal {
namespace {

void set_rate(torch::optim::Optimizer& optimizer, double rate) {
  for (auto& group : optimizer.param_groups()) group.options().set_lr(rate);
}

at::Tensor rows_of(const at::Tensor& tensor, const at::Tensor& rows) {
  return tensor.index_select(0, rows);
}

}  // namespace

struct TorchShardStore::Held {
  std::string name;
  at::Tensor values;
  std::unique_ptr<torch::optim::Optimizer> optimizer;
  // Over some rows of another size each time; only its options are of use.
  std::function<std::unique_ptr<torch::optim::Optimizer>(const at::Tensor& rows)> of_rows;
  std::map<std::string, std::int64_t> counters;  // what state() has pointed at
};

TorchShardStore::TorchShardStore() = default;
TorchShardStore::~TorchShardStore() = default;

void TorchShardStore::create(const ps::PlacementPlan& plan, int ps, const std::string& optimizer) {
  std::vector<std::unique_ptr<Held>> shards(plan.shards().size());
  for (const std::size_t id : plan.shards_on(ps)) {
    const ps::PlanVariable& variable = plan.variable_of(id);
    const std::string name = plan.shard_name(id);
    const at::ScalarType dtype = dtype_from_name(name, variable.dtype);
    if (!at::isFloatingType(dtype)) {
      throw InvalidArgument(
          fmt::format("variable \"{}\" is {}: expected floating-point values, which an optimizer can change",
                      name, variable.dtype));
    }
    auto mine = std::make_unique<Held>();
    mine->name = name;
    mine->values = at::zeros(plan.shard_shape(id), dtype);
    if (variable.is_table()) {
      fill_with_first_values(mine->values, plan.shards()[id].row_begin, *variable.first_values);
    }
    mine->of_rows = [optimizer, group = variable.option_group](const at::Tensor& rows) {
      return optimizer_from_description(optimizer, group, {rows});
    };
    mine->optimizer = mine->of_rows(mine->values);
    shards[id] = std::move(mine);
  }
  shards_ = std::move(shards);
}

TorchShardStore::Held& TorchShardStore::held(std::size_t shard) {
  TORCH_INTERNAL_ASSERT(shard < shards_.size() && shards_[shard]);
  return *shards_[shard];
}

std::span<std::byte> TorchShardStore::values(std::size_t shard) {
  return writable_bytes(held(shard).values);
}

void TorchShardStore::apply(std::size_t shard, const ps::Update& update) {
  const torch::NoGradGuard no_grad;
  Held& mine = held(shard);
  std::vector<std::int64_t> sizes = mine.values.sizes().vec();
  if (update.kind == ps::PayloadKind::kRows) sizes.front() = static_cast<std::int64_t>(update.row_ids.size());
  // Only read, and gone from the optimizer before this returns.
  const at::Tensor gradient =
      at::from_blob(const_cast<std::byte*>(update.values.data()), sizes, mine.values.options());
  set_rate(*mine.optimizer, update.learning_rate);
  if (update.kind == ps::PayloadKind::kRows) {
    apply_rows(mine, gradient, update.row_ids);
  } else {
    apply_dense(mine, gradient);
  }
}

void TorchShardStore::apply_dense(Held& mine, const at::Tensor& gradient) {
  mine.values.mutable_grad() = gradient;
  mine.optimizer->step();
  mine.values.mutable_grad() = at::Tensor();
}

void TorchShardStore::apply_rows(Held& mine, const at::Tensor& gradient, std::span<const std::int64_t> ids) {
  if (ids.empty()) return;
  const at::Tensor rows = at::tensor(at::ArrayRef<std::int64_t>(ids.data(), ids.size()), at::kLong);
  const at::Tensor part = rows_of(mine.values, rows);
  const auto optimizer = mine.of_rows(part);
  set_rate(*optimizer, mine.optimizer->param_groups().front().options().get_lr());
  OptimizerSlots whole = get_slots(*mine.optimizer, mine.values);
  if (!whole.empty()) {
    OptimizerSlots slots{.tensors = {}, .counters = whole.counters};
    for (const auto& [name, tensor] : whole.tensors) slots.tensors[name] = rows_of(tensor, rows);
    set_slots(*optimizer, part, slots);
  }
  part.mutable_grad() = gradient;
  optimizer->step();
  mine.values.index_copy_(0, rows, part);
  const OptimizerSlots after = get_slots(*optimizer, part);
  if (after.empty()) return;
  whole.counters = after.counters;
  for (const auto& [name, tensor] : after.tensors) {
    auto [slot, is_new] = whole.tensors.try_emplace(name);
    if (is_new) slot->second = at::zeros_like(mine.values);
    slot->second.index_copy_(0, rows, tensor);
  }
  set_slots(*mine.optimizer, mine.values, whole);
}

std::vector<ps::StateTensor> TorchShardStore::state(std::size_t shard) {
  Held& mine = held(shard);
  const OptimizerSlots slots = get_slots(*mine.optimizer, mine.values);
  std::vector<ps::StateTensor> state;
  for (const auto& [name, tensor] : slots.tensors) {
    state.push_back(
        {name, dtype_name(mine.name, tensor.scalar_type()), tensor.sizes().vec(), writable_bytes(tensor)});
  }
  mine.counters = slots.counters;
  for (const auto& [name, value] : mine.counters) {
    state.push_back({name, "I64", {}, std::as_bytes(std::span(&value, 1))});
  }
  return state;
}

void TorchShardStore::restore_state(std::size_t shard, std::span<const ps::StateTensor> state) {
  Held& mine = held(shard);
  OptimizerSlots slots;
  for (const ps::StateTensor& saved : state) {
    const at::Tensor tensor = at::empty(saved.shape, dtype_from_name(saved.name, saved.dtype));
    if (tensor.nbytes() != saved.bytes.size()) {
      throw DataLoss(fmt::format("\"{}\" of shard \"{}\" has {} bytes: expected {}", saved.name, mine.name,
                                 saved.bytes.size(), tensor.nbytes()));
    }
    if (!saved.bytes.empty()) std::memcpy(tensor.data_ptr(), saved.bytes.data(), saved.bytes.size());
    if (saved.shape.empty() && saved.dtype == "I64") {
      slots.counters[saved.name] = tensor.item<std::int64_t>();
    } else if (tensor.sizes() == mine.values.sizes() && tensor.scalar_type() == mine.values.scalar_type()) {
      slots.tensors[saved.name] = tensor;
    } else {
      throw DataLoss(fmt::format("\"{}\" of shard \"{}\" does not have the shape of its variable", saved.name,
                                 mine.name));
    }
  }
  set_slots(*mine.optimizer, mine.values, slots);
}

}  // namespace tandem::internal
