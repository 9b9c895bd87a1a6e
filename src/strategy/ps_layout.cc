#include "strategy/ps_layout.h"

#include <fmt/format.h>
#include <torch/torch.h>

#include <algorithm>
#include <cstring>

#include "checkpoint/tensors.h"
#include "strategy/updater.h"
#include "tandem/error.h"

namespace tandem::internal {
namespace {

std::vector<ps::PlanVariable> variables_of(const FlatBuffers& buffers,
                                           const std::vector<ps::PlanVariable>& tables) {
  std::vector<ps::PlanVariable> variables;
  for (const Slot& slot : buffers.slots()) {
    const FlatGroup& group = buffers.groups()[static_cast<std::size_t>(slot.group)];
    variables.push_back({.name = slot.name,
                         .dtype = dtype_name(slot.name, group.dtype),
                         .shape = slot.sizes,
                         .option_group = group.option_group});
  }
  variables.insert(variables.end(), tables.begin(), tables.end());
  return variables;
}

// Whether row r is elements r * n to (r + 1) * n of the slot.
bool rows_follow_each_other(const Slot& slot) {
  return slot.strides.empty() || std::ranges::max(slot.strides) == slot.strides.front();
}

std::vector<std::byte> bytes_of(const at::Tensor& tensor) {
  std::vector<std::byte> bytes(tensor.nbytes());
  if (!bytes.empty()) std::memcpy(bytes.data(), tensor.data_ptr(), bytes.size());
  return bytes;
}

}  // namespace

PsLayout::PsLayout(const FlatBuffers& buffers, const std::vector<ps::PlanVariable>& tables,
                   const ps::PlanOptions& options)
    : buffers_(buffers), plan_(variables_of(buffers, tables), options) {
  for (const ps::Shard& shard : plan_.shards()) {
    if (static_cast<std::size_t>(shard.variable) >= buffers_.slots().size()) break;
    ++num_slot_shards_;
    const Slot& slot = buffers_.slots()[static_cast<std::size_t>(shard.variable)];
    if (shard.parts == 1 || rows_follow_each_other(slot)) continue;
    throw InvalidArgument(fmt::format(
        "variable \"{}\" cannot be cut in {} parts: its rows do not lie one behind the other in memory "
        "(it was transposed); call contiguous() on it in the model",
        slot.name, shard.parts));
  }
}

std::span<const ps::Shard> PsLayout::shards_of_table(std::size_t table) const {
  return plan_.shards_of(buffers_.slots().size() + table);
}

std::size_t PsLayout::first_shard_of_table(std::size_t table) const {
  return static_cast<std::size_t>(shards_of_table(table).data() - plan_.shards().data());
}

std::int64_t PsLayout::row_elements(std::size_t slot) const {
  const Slot& there = buffers_.slots()[slot];
  const std::int64_t rows = plan_.variables()[slot].rows();
  return rows == 0 ? 0 : (there.end - there.begin) / rows;
}

std::span<std::byte> PsLayout::bytes(const std::vector<at::Tensor>& by_group, std::size_t shard) const {
  const ps::Shard& part = plan_.shards()[shard];
  const Slot& slot = buffers_.slots()[slot_of(shard)];
  const at::Tensor& flat = by_group[static_cast<std::size_t>(slot.group)];
  const std::int64_t begin = slot.begin + part.row_begin * row_elements(slot_of(shard));
  auto* data =
      static_cast<std::byte*>(flat.data_ptr()) + static_cast<std::size_t>(begin) * flat.element_size();
  return {data, static_cast<std::size_t>(part.bytes)};
}

std::map<std::string, at::Tensor> PsLayout::state_of(std::size_t slot,
                                                     std::span<const ps::ShardImage> by_shard) const {
  const Slot& there = buffers_.slots()[slot];
  const at::ScalarType dtype = buffers_.groups()[static_cast<std::size_t>(there.group)].dtype;
  std::map<std::string, at::Tensor> state;
  std::map<std::string, at::Tensor> lines;  // in the order in which the values lie
  for (std::size_t shard = 0; shard < by_shard.size(); ++shard) {
    if (slot_of(shard) != slot) continue;
    const std::int64_t begin = plan_.shards()[shard].row_begin * row_elements(slot);
    for (const ps::StateImage& image : by_shard[shard].state) {
      if (image.shape.empty() && image.dtype == "I64") {
        std::int64_t value = 0;
        std::memcpy(&value, image.bytes.data(), std::min(image.bytes.size(), sizeof value));
        state[image.name] = at::scalar_tensor(value, at::kLong);
        continue;
      }
      auto [line, is_new] = lines.try_emplace(image.name);
      if (is_new) line->second = at::zeros({there.end - there.begin}, dtype);
      const auto count = static_cast<std::int64_t>(image.bytes.size() / line->second.element_size());
      const at::Tensor part = line->second.slice(0, begin, begin + count);
      if (count > 0) std::memcpy(part.data_ptr(), image.bytes.data(), image.bytes.size());
    }
  }
  for (const auto& [name, line] : lines) {
    state[name] = line.as_strided(there.sizes, there.strides).clone(at::MemoryFormat::Contiguous);
  }
  return state;
}

void PsLayout::set_state(std::size_t slot, const std::map<std::string, at::Tensor>& state,
                         std::span<ps::ShardImage> by_shard) const {
  const Slot& there = buffers_.slots()[slot];
  const at::ScalarType dtype = buffers_.groups()[static_cast<std::size_t>(there.group)].dtype;
  const std::string dtype_text = dtype_name(there.name, dtype);
  for (std::size_t shard = 0; shard < by_shard.size(); ++shard) {
    if (slot_of(shard) != slot) continue;
    const std::int64_t begin = plan_.shards()[shard].row_begin * row_elements(slot);
    const std::int64_t end = plan_.shards()[shard].row_end * row_elements(slot);
    for (const auto& [name, tensor] : state) {
      if (is_counter(tensor)) {
        by_shard[shard].state.push_back({name, "I64", {}, bytes_of(tensor.contiguous())});
        continue;
      }
      const at::Tensor stored =
          at::empty_strided(there.sizes, there.strides, at::TensorOptions().dtype(dtype));
      stored.copy_(tensor);
      const at::Tensor line = stored.as_strided({there.end - there.begin}, {1});
      by_shard[shard].state.push_back(
          {name, dtype_text, plan_.shard_shape(shard), bytes_of(line.slice(0, begin, end))});
    }
  }
}

}  // namespace tandem::internal
