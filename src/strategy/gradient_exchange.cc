#include "strategy/gradient_exchange.h"

#include <fmt/format.h>
#include <torch/torch.h>

#include <algorithm>

#include "comm/local/shared_memory.h"
#include "tandem/error.h"

namespace tandem::internal {
namespace {

constexpr const char* kName = "minimize";

// What gradients of this dtype look like between the tasks.
at::ScalarType travelling_dtype(at::ScalarType dtype, WireFormat format) {
  if (format == WireFormat::kBfloat16 && (dtype == at::kFloat || dtype == at::kDouble)) return at::kBFloat16;
  return wire_dtype(dtype);
}

// Calls fn(pointer) with the memory of a floating-point tensor.
template <typename Fn>
void with_values(const at::Tensor& tensor, Fn fn) {
  AT_DISPATCH_FLOATING_TYPES_AND2(at::kHalf, at::kBFloat16, tensor.scalar_type(), "gradients",
                                  [&] { fn(tensor.data_ptr<scalar_t>()); });
}

}  // namespace

// Runs after the gradient of one parameter has been added to its slot.
class GradientExchange::Hook final : public torch::autograd::FunctionPostHook {
 public:
  Hook(GradientExchange& exchange, int replica, std::size_t slot)
      : exchange_(exchange), replica_(replica), slot_(slot) {}

  torch::autograd::variable_list operator()(const torch::autograd::variable_list& outputs,
                                            const torch::autograd::variable_list&) override {
    exchange_.arrived(replica_, slot_);
    return outputs;
  }

 private:
  GradientExchange& exchange_;
  int replica_;
  std::size_t slot_;
};

GradientExchange::GradientExchange(FlatBuffers& buffers, SyncGroup& tasks, Meeting& meeting)
    : buffers_(buffers),
      tasks_(tasks),
      meeting_(meeting),
      packs_(plan_packs(buffers.slots(), buffers.groups(), buffers.storages(),
                        tasks.communicator().options().bytes_per_pack)),
      pack_of_(buffers.slots().size()),
      present_(buffers.slots().size(), 0),
      progress_(static_cast<std::size_t>(buffers.replicas())),
      ready_(packs_.size(), 0),
      pending_(packs_.size()) {
  for (std::size_t p = 0; p < packs_.size(); ++p) {
    for (const std::size_t slot : packs_[p].slots) pack_of_[slot] = p;
  }
  for (int s = 0; s < static_cast<int>(buffers.storages().size()); ++s) {
    const at::Tensor& gradients = buffers.host_gradient_storage(0, s);
    storages_.push_back(buffers.replicas() == 1 ? gradients : at::zeros_like(gradients));
    const at::ScalarType dtype =
        travelling_dtype(gradients.scalar_type(), tasks.communicator().options().wire_format);
    wires_.push_back(dtype == gradients.scalar_type() ? storages_.back() : gradients.to(dtype));
  }
  for (const FlatGroup& group : buffers.groups()) {
    const at::Tensor& storage = storages_[static_cast<std::size_t>(group.storage)];
    sums_.push_back(storage.slice(0, group.begin, group.begin + group.elements));
  }
  // A GPU's gradients are copied to the host after backward, in one go: nothing to overlap.
  if (packs_.size() > 1 && buffers.gradients(0, 0).is_cpu()) install_hooks();
}

GradientExchange::~GradientExchange() {
  for (const HookPlace& hook : hooks_) hook.accumulator->del_post_hook(hook.key);
}

void GradientExchange::install_hooks() {
  for (int replica = 0; replica < buffers_.replicas(); ++replica) {
    for (std::size_t slot = 0; slot < buffers_.slots().size(); ++slot) {
      auto accumulator = torch::autograd::impl::grad_accumulator(buffers_.parameter(replica, slot));
      const std::uintptr_t key = accumulator->add_post_hook(std::make_unique<Hook>(*this, replica, slot));
      hooks_.push_back({std::move(accumulator), key});
    }
  }
}

void GradientExchange::begin_step(int replica) {
  if (packs_.size() == 1) return;
  Progress& mine = progress_[static_cast<std::size_t>(replica)];
  mine.in_backward = true;
  mine.arrived.assign(pack_of_.size(), 0);
  mine.missing.clear();
  for (const Pack& pack : packs_) mine.missing.push_back(pack.slots.size());
}

void GradientExchange::arrived(int replica, std::size_t slot) {
  Progress& mine = progress_[static_cast<std::size_t>(replica)];
  if (!mine.in_backward) return;
  if (mine.arrived[slot]) {
    throw FailedPrecondition(
        fmt::format("the gradient of \"{}\" came twice in one backward pass (a checkpointed part of the "
                    "model?) and may have left already: set bytes_per_pack above the size of the model",
                    buffers_.slots()[slot].name));
  }
  mine.arrived[slot] = 1;
  if (--mine.missing[pack_of_[slot]] == 0) complete(pack_of_[slot]);
}

// One more replica has the pack. Whoever finds the next one complete sends it and those after it; others who
// come meanwhile leave it to that thread.
void GradientExchange::complete(std::size_t pack) {
  std::unique_lock lock(mutex_);
  ++ready_[pack];
  if (launching_) return;
  launching_ = true;
  while (next_ < packs_.size() && ready_[next_] == buffers_.replicas()) {
    const std::size_t leaving = next_++;
    lock.unlock();
    launch(leaving);
    lock.lock();
  }
  launching_ = false;
}

at::Tensor GradientExchange::range(const std::vector<at::Tensor>& storages, const Pack& pack) const {
  return storages[static_cast<std::size_t>(pack.storage)].slice(0, pack.begin, pack.end);
}

void GradientExchange::mark_slots(int replica, const Pack& pack) {
  with_values(buffers_.host_gradient_storage(replica, pack.storage), [&](auto* values) {
    for (const std::size_t slot : pack.slots) {
      const Slot& place = buffers_.slots()[slot];
      const FlatGroup& group = buffers_.groups()[static_cast<std::size_t>(place.group)];
      values[group.begin + place.end] = buffers_.was_reached(replica, slot) ? 1 : 0;
    }
  });
}

void GradientExchange::launch(std::size_t index) {
  const torch::NoGradGuard no_grad;
  const Pack& pack = packs_[index];
  std::vector<at::Tensor> sources;
  for (int replica = 0; replica < buffers_.replicas(); ++replica) {
    mark_slots(replica, pack);
    sources.push_back(buffers_.host_gradient_storage(replica, pack.storage));
  }
  if (sources.size() > 1) {
    sum_range(sources, {storages_[static_cast<std::size_t>(pack.storage)]}, pack.begin, pack.end);
  }
  const at::Tensor wire = range(wires_, pack);
  if (wire.scalar_type() != sources[0].scalar_type()) wire.copy_(range(storages_, pack));
  pending_[index] = tasks_.all_reduce_async(fmt::format("gradients {}", index), wire);
}

void GradientExchange::finish(int replica) {
  const torch::NoGradGuard no_grad;
  buffers_.stage_gradients(replica);
  packs_.size() == 1 ? finish_one_pack(replica) : finish_packs(replica);
}

void GradientExchange::finish_one_pack(int replica) {
  const Pack& pack = packs_[0];
  mark_slots(replica, pack);
  meeting_.arrive(replica, kName);  // every replica's gradients are complete
  if (buffers_.replicas() > 1) {
    std::vector<at::Tensor> sources;
    for (int r = 0; r < buffers_.replicas(); ++r) sources.push_back(buffers_.host_gradient_storage(r, 0));
    const auto [begin, end] = share_of(pack.end, replica, buffers_.replicas());
    sum_range(sources, {storages_[0]}, begin, end);
    meeting_.arrive(replica, kName);  // the sum over this task's replicas stands
  }
  if (replica == 0) {
    if (wires_[0].scalar_type() != storages_[0].scalar_type()) wires_[0].copy_(storages_[0]);
    tasks_.all_reduce("gradients", wires_[0]);
    take_result();
  }
  meeting_.arrive(replica, kName);  // the sum over all tasks stands
}

void GradientExchange::finish_packs(int replica) {
  Progress& mine = progress_[static_cast<std::size_t>(replica)];
  mine.in_backward = false;
  for (std::size_t pack = 0; pack < packs_.size(); ++pack) {
    if (mine.missing[pack] > 0) complete(pack);
  }
  meeting_.arrive(replica, kName);  // all packs have left
  if (replica == 0) {
    for (const Pending& pending : pending_) tasks_.wait(pending);
    std::fill(ready_.begin(), ready_.end(), 0);
    next_ = 0;
    take_result();
  }
  meeting_.arrive(replica, kName);  // the sum over all tasks stands
}

void GradientExchange::take_result() {
  for (std::size_t s = 0; s < storages_.size(); ++s) {
    if (wires_[s].scalar_type() != storages_[s].scalar_type()) storages_[s].copy_(wires_[s]);
    with_values(storages_[s], [&](auto* values) {
      for (std::size_t slot = 0; slot < present_.size(); ++slot) {
        const Slot& place = buffers_.slots()[slot];
        const FlatGroup& group = buffers_.groups()[static_cast<std::size_t>(place.group)];
        if (group.storage != static_cast<int>(s)) continue;
        present_[slot] = values[group.begin + place.end] != 0;
        values[group.begin + place.end] = 0;
      }
    });
  }
  tasks_.gradients_met();
  all_present_ = std::ranges::all_of(present_, [](std::uint8_t present) { return present != 0; });
}

}  // namespace tandem::internal
