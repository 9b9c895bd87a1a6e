#include "strategy/flat_buffers.h"

#include <fmt/format.h>
#include <torch/torch.h>

#include <algorithm>

#include "tandem/error.h"

namespace tandem::internal {
namespace {

constexpr std::int64_t kAlignment = 64;  // elements; a cache line at least, whatever the dtype

std::int64_t aligned(std::int64_t elements) {
  return (elements + kAlignment - 1) / kAlignment * kAlignment;
}

const at::Tensor& at_index(const std::vector<at::Tensor>& tensors, int index) {
  return tensors[static_cast<std::size_t>(index)];
}

}  // namespace

FlatBuffers::FlatBuffers(std::shared_ptr<Variables> variables,
                         const std::function<int(const std::string&, const at::Tensor&)>& option_group,
                         bool gradients_on_host)
    : variables_(std::move(variables)),
      places_(variables_->trainable()),
      replicas_(static_cast<std::size_t>(variables_->replicas())) {
  if (places_.empty() && variables_->tables().empty()) {
    throw InvalidArgument(
        "the model has no trainable parameters: register its layers with register_module(), or unfreeze one");
  }
  lay_out(option_group);
  for (int replica = 0; replica < replicas(); ++replica) attach(replica, gradients_on_host || central());
}

FlatBuffers::~FlatBuffers() {
  for (auto& replica : replicas_) {
    for (std::size_t i = 0; i < replica.hooks.size(); ++i) replica.leaves[i].remove_hook(replica.hooks[i]);
  }
}

void FlatBuffers::lay_out(const std::function<int(const std::string&, const at::Tensor&)>& option_group) {
  for (const std::size_t place : places_) {
    const auto& [name, tensor] = variables_->copy(0).parameters[place];
    const FlatGroup wanted{.dtype = tensor.scalar_type(), .option_group = option_group(name, tensor)};
    auto group = std::find_if(groups_.begin(), groups_.end(), [&](const FlatGroup& g) {
      return g.dtype == wanted.dtype && g.option_group == wanted.option_group;
    });
    if (group == groups_.end()) group = groups_.insert(group, wanted);
    const at::Tensor dense = tensor.is_non_overlapping_and_dense() ? tensor : tensor.contiguous();
    slots_.push_back({.name = name,
                      .group = static_cast<int>(group - groups_.begin()),
                      .begin = group->elements,
                      .end = group->elements + tensor.numel(),
                      .sizes = tensor.sizes().vec(),
                      .strides = dense.strides().vec()});
    group->elements = aligned(group->elements + tensor.numel() + 1);
  }
  for (FlatGroup& group : groups_) {
    auto storage = std::find_if(storages_.begin(), storages_.end(),
                                [&](const FlatStorage& s) { return s.dtype == group.dtype; });
    if (storage == storages_.end()) storage = storages_.insert(storage, {.dtype = group.dtype});
    group.storage = static_cast<int>(storage - storages_.begin());
    group.begin = storage->elements;
    storage->elements += group.elements;
  }
}

std::vector<at::Tensor> FlatBuffers::make_storages(const c10::Device& device) const {
  std::vector<at::Tensor> made;
  for (const FlatStorage& storage : storages_) {
    made.push_back(at::zeros({storage.elements}, at::TensorOptions().dtype(storage.dtype).device(device)));
  }
  return made;
}

std::vector<at::Tensor> FlatBuffers::cut_in_groups(const std::vector<at::Tensor>& storages) const {
  std::vector<at::Tensor> groups;
  for (const FlatGroup& group : groups_) {
    groups.push_back(at_index(storages, group.storage).slice(0, group.begin, group.begin + group.elements));
  }
  return groups;
}

void FlatBuffers::attach(int index, bool gradients_on_host) {
  const torch::NoGradGuard no_grad;
  Replica& replica = replicas_[static_cast<std::size_t>(index)];
  const auto& parameters = variables_->copy(index).parameters;
  const c10::Device device = places_.empty() ? at::kCPU : parameters[places_[0]].tensor.device();
  if (central() && index == 0) central_ = cut_in_groups(make_storages(at::kCPU));
  replica.parameters = central() && device.is_cpu() ? central_ : cut_in_groups(make_storages(device));
  replica.host_gradients = make_storages(device);
  replica.gradients = cut_in_groups(replica.host_gradients);
  if (gradients_on_host && !device.is_cpu()) {
    replica.host_gradients = make_storages(at::kCPU);
    replica.staged = cut_in_groups(replica.host_gradients);
  }
  replica.reached.assign(slots_.size(), 0);
  for (std::size_t i = 0; i < slots_.size(); ++i) {
    at::Tensor leaf = parameters[places_[i]].tensor;
    const at::Tensor home = view(at_index(replica.parameters, slots_[i].group), slots_[i]);
    home.copy_(leaf);
    leaf.set_data(home);
    replica.gradient_views.push_back(view(at_index(replica.gradients, slots_[i].group), slots_[i]));
    leaf.mutable_grad() = replica.gradient_views.back();
    std::uint8_t* reached = &replica.reached[i];
    replica.hooks.push_back(leaf.register_hook([reached](const at::Tensor& gradient) {
      if (gradient.defined()) *reached = 1;
    }));
    replica.leaves.push_back(std::move(leaf));
  }
  if (central() && index == 0 && !device.is_cpu()) {
    for (std::size_t i = 0; i < groups_.size(); ++i) central_[i].copy_(replica.parameters[i]);
  }
}

const at::Tensor& FlatBuffers::parameters(int replica, int group) const {
  return at_index(replicas_[static_cast<std::size_t>(replica)].parameters, group);
}

const at::Tensor& FlatBuffers::gradients(int replica, int group) const {
  return at_index(replicas_[static_cast<std::size_t>(replica)].gradients, group);
}

const at::Tensor& FlatBuffers::home(int replica, int group) const {
  return central() ? at_index(central_, group) : parameters(replica, group);
}

const at::Tensor& FlatBuffers::host_gradients(int replica, int group) const {
  const Replica& mine = replicas_[static_cast<std::size_t>(replica)];
  return at_index(mine.staged.empty() ? mine.gradients : mine.staged, group);
}

const at::Tensor& FlatBuffers::host_gradient_storage(int replica, int storage) const {
  return at_index(replicas_[static_cast<std::size_t>(replica)].host_gradients, storage);
}

void FlatBuffers::stage_gradients(int replica) {
  Replica& mine = replicas_[static_cast<std::size_t>(replica)];
  for (std::size_t i = 0; i < mine.staged.size(); ++i) mine.staged[i].copy_(mine.gradients[i]);
}

const at::Tensor& FlatBuffers::parameter(int replica, std::size_t slot) const {
  return replicas_[static_cast<std::size_t>(replica)].leaves[slot];
}

void FlatBuffers::begin_step(int index) {
  const torch::NoGradGuard no_grad;
  Replica& replica = replicas_[static_cast<std::size_t>(index)];
  for (std::size_t i = 0; i < slots_.size(); ++i) {
    const at::Tensor& leaf = replica.leaves[i];
    const at::Tensor& flat = at_index(replica.parameters, slots_[i].group);
    const void* home = static_cast<const char*>(flat.data_ptr()) +
                       static_cast<std::size_t>(slots_[i].begin) * flat.element_size();
    if (leaf.data_ptr() != home || leaf.scalar_type() != flat.scalar_type()) {
      throw FailedPrecondition(
          fmt::format("parameter \"{}\" of replica {} was moved away from its place (Module::to, set_data "
                      "or another compile() since): change the model before compile()",
                      slots_[i].name, index));
    }
    const at::Tensor& gradient = replica.gradient_views[i];
    if (!leaf.grad().defined() || leaf.grad().data_ptr() != gradient.data_ptr())
      leaf.mutable_grad() = gradient;
  }
  for (const at::Tensor& gradients : replica.gradients) gradients.zero_();
  std::fill(replica.reached.begin(), replica.reached.end(), 0);
}

bool FlatBuffers::was_reached(int replica, std::size_t slot) const {
  return replicas_[static_cast<std::size_t>(replica)].reached[slot] != 0;
}

bool FlatBuffers::has_gradient(std::size_t slot) const {
  return std::any_of(replicas_.begin(), replicas_.end(),
                     [&](const Replica& r) { return r.reached[slot] != 0; });
}

bool FlatBuffers::all_have_gradients() const {
  for (std::size_t i = 0; i < slots_.size(); ++i) {
    if (!has_gradient(i)) return false;
  }
  return true;
}

at::Tensor FlatBuffers::view(const at::Tensor& flat, const Slot& slot) const {
  return flat.as_strided(slot.sizes, slot.strides, flat.storage_offset() + slot.begin);
}

}  // namespace tandem::internal
