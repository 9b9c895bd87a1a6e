#include "strategy/variables.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <torch/torch.h>

#include <algorithm>
#include <map>

#include "strategy/model_agreement.h"
#include "strategy/sync_group.h"
#include "strategy/tensor_bytes.h"
#include "tandem/error.h"

namespace tandem::internal {
namespace {

std::string describe(const at::Tensor& tensor) {
  return fmt::format("{} [{}]", c10::toString(tensor.scalar_type()), fmt::join(tensor.sizes(), ", "));
}

void check_alike(const char* kind, const std::vector<NamedTensor>& first,
                 const std::vector<NamedTensor>& other, std::size_t replica) {
  const auto refuse = [&](const std::string& difference) {
    return InvalidArgument(
        fmt::format("the model factory made different models for replica 0 and replica {}: {}; it must "
                    "build the same model each time it is called",
                    replica, difference));
  };
  if (first.size() != other.size()) {
    throw refuse(fmt::format("{} {}s against {}", first.size(), kind, other.size()));
  }
  for (std::size_t i = 0; i < first.size(); ++i) {
    const auto& [name, tensor] = first[i];
    const auto& [other_name, other_tensor] = other[i];
    if (name != other_name) throw refuse(fmt::format("{} \"{}\" against \"{}\"", kind, name, other_name));
    if (tensor.sizes() != other_tensor.sizes() || tensor.scalar_type() != other_tensor.scalar_type() ||
        tensor.requires_grad() != other_tensor.requires_grad()) {
      throw refuse(fmt::format("{} \"{}\" is {}{} against {}{}", kind, name, describe(tensor),
                               tensor.requires_grad() ? "" : " (frozen)", describe(other_tensor),
                               other_tensor.requires_grad() ? "" : " (frozen)"));
    }
    if (tensor.numel() > 0 && tensor.data_ptr() == other_tensor.data_ptr()) {
      throw InvalidArgument(
          fmt::format("the model factory gave replica 0 and replica {} the same {} \"{}\": it must build a "
                      "new model each time it is called",
                      replica, kind, name));
    }
  }
}

void check_tables_alike(const std::vector<std::shared_ptr<RemoteTable>>& first,
                        const std::vector<std::shared_ptr<RemoteTable>>& other, std::size_t replica) {
  const auto same = [](const auto& a, const auto& b) {
    return a != b && a->name == b->name && a->rows == b->rows && a->columns == b->columns &&
           a->stddev == b->stddev;
  };
  if (std::ranges::equal(first, other, same)) return;
  throw InvalidArgument(fmt::format(
      "the model factory made other tables for replica {} than for replica 0, or the same ones: it "
      "must build a new model, and the same, each time it is called",
      replica));
}

// For each parameter the place of the first one that is the same tensor: its own, unless weights are tied.
std::vector<std::size_t> first_names(const std::vector<NamedTensor>& parameters) {
  std::map<const void*, std::size_t> seen;
  std::vector<std::size_t> firsts;
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    const at::Tensor& tensor = parameters[i].tensor;
    const auto [found, is_new] =
        seen.emplace(tensor.numel() ? tensor.data_ptr() : tensor.unsafeGetTensorImpl(), i);
    const auto& first = parameters[found->second];
    if (!is_new && !first.tensor.is_same(tensor)) {
      throw InvalidArgument(
          fmt::format("parameters \"{}\" and \"{}\" share memory but are different tensors: to tie weights, "
                      "register one tensor under both names",
                      first.name, parameters[i].name));
    }
    firsts.push_back(found->second);
  }
  return firsts;
}

void copy_values(const std::vector<NamedTensor>& from, std::vector<NamedTensor>& to) {
  for (std::size_t i = 0; i < from.size(); ++i) to[i].tensor.copy_(from[i].tensor);
}

// Parameters on the same device become one. Names of tied weights point at one tensor, and do so afterwards.
void alias_values(const std::vector<NamedTensor>& from, std::vector<NamedTensor>& to) {
  for (std::size_t i = 0; i < from.size(); ++i) {
    if (from[i].tensor.device() == to[i].tensor.device()) to[i].tensor.set_data(from[i].tensor.detach());
  }
}

}  // namespace

Variables::Variables(std::vector<ReplicaTensors> copies, Placement placement, SyncGroup* tasks)
    : copies_(std::move(copies)), placement_(placement), tasks_(tasks) {
  const torch::NoGradGuard no_grad;
  if (tasks_) {
    check_same_model(*tasks_, copies_[0]);
    take_chiefs_values();
  }
  const std::vector<std::size_t> firsts = first_names(copies_[0].parameters);
  for (std::size_t replica = 1; replica < copies_.size(); ++replica) {
    check_alike("parameter", copies_[0].parameters, copies_[replica].parameters, replica);
    check_alike("buffer", copies_[0].buffers, copies_[replica].buffers, replica);
    check_tables_alike(copies_[0].tables, copies_[replica].tables, replica);
    if (first_names(copies_[replica].parameters) != firsts) {
      throw InvalidArgument(
          fmt::format("the model factory tied different weights for replica 0 and replica {}", replica));
    }
    copy_values(copies_[0].parameters, copies_[replica].parameters);
    copy_values(copies_[0].buffers, copies_[replica].buffers);
    if (placement_ == Placement::kCentral) alias_values(copies_[0].parameters, copies_[replica].parameters);
  }
}

std::vector<std::size_t> Variables::trainable() const {
  const std::vector<std::size_t> firsts = first_names(copies_[0].parameters);
  std::vector<std::size_t> places;
  for (std::size_t i = 0; i < firsts.size(); ++i) {
    if (firsts[i] == i && copies_[0].parameters[i].tensor.requires_grad()) places.push_back(i);
  }
  return places;
}

std::map<std::string, at::Tensor> Variables::read() const {
  const torch::NoGradGuard no_grad;
  fetch();
  std::map<std::string, at::Tensor> values;
  const auto put = [&](const std::string& name, const at::Tensor& value) {
    values[name] = value.detach().to(at::kCPU).clone(at::MemoryFormat::Contiguous);
  };
  for (const auto& [name, tensor] : copies_[0].parameters) put(name, tensor);
  const std::vector<at::Tensor> buffers = read_buffers();
  for (std::size_t i = 0; i < buffers.size(); ++i) put(copies_[0].buffers[i].name, buffers[i]);
  return values;
}

void Variables::write(const std::map<std::string, at::Tensor>& values) {
  const torch::NoGradGuard no_grad;
  std::map<std::string, at::Tensor> ours;
  for (const auto& [name, tensor] : copies_[0].parameters) ours[name] = tensor;
  for (const auto& [name, tensor] : copies_[0].buffers) ours[name] = tensor;
  for (const auto& [name, value] : values) {
    const auto found = ours.find(name);
    if (found == ours.end()) {
      throw InvalidArgument(
          fmt::format("the model has no \"{}\"; it has {} parameters and buffers, the first is \"{}\"", name,
                      ours.size(), ours.empty() ? "" : ours.begin()->first));
    }
    if (found->second.sizes() != value.sizes() ||
        found->second.is_floating_point() != value.is_floating_point()) {
      throw InvalidArgument(
          fmt::format("\"{}\" is {}: the model has {}", name, describe(value), describe(found->second)));
    }
  }
  fetch();  // those that are not named keep their values: the newest
  const auto put = [&](std::vector<NamedTensor>& tensors) {
    for (auto& [name, tensor] : tensors) {
      if (const auto found = values.find(name); found != values.end()) tensor.copy_(found->second);
    }
  };
  for (ReplicaTensors& copy : copies_) {
    put(copy.parameters);
    put(copy.buffers);
  }
  if (home_) home_->store();
}

std::string Variables::own_name(const std::string& buffer, int local_replica) const {
  return fmt::format("{}@replica{}", buffer, (tasks_ ? tasks_->rank() : 0) * replicas() + local_replica);
}

std::map<std::string, at::Tensor> Variables::own_buffers() const {
  const torch::NoGradGuard no_grad;
  std::map<std::string, at::Tensor> values;
  if (reads_as_written()) return values;
  for (int replica = 0; replica < replicas(); ++replica) {
    for (const auto& [name, tensor] : copy(replica).buffers) {
      values[own_name(name, replica)] = tensor.to(at::kCPU).clone(at::MemoryFormat::Contiguous);
    }
  }
  return values;
}

bool Variables::write_own_buffers(const std::map<std::string, at::Tensor>& of_all_replicas) {
  const torch::NoGradGuard no_grad;
  const std::size_t all = static_cast<std::size_t>(replicas()) * (tasks_ ? tasks_->size() : 1);
  if (reads_as_written() || of_all_replicas.size() != all * copies_[0].buffers.size()) return false;
  std::vector<std::pair<at::Tensor, at::Tensor>> pairs;
  for (int replica = 0; replica < replicas(); ++replica) {
    for (const auto& [name, tensor] : copy(replica).buffers) {
      const auto found = of_all_replicas.find(own_name(name, replica));
      if (found == of_all_replicas.end() || found->second.sizes() != tensor.sizes()) return false;
      pairs.emplace_back(tensor, found->second);
    }
  }
  for (const auto& [tensor, value] : pairs) tensor.copy_(value);
  return true;
}

void Variables::take_chiefs_values() {
  std::vector<at::Tensor> tensors;
  for (const auto& [name, tensor] : copies_[0].parameters) tensors.push_back(tensor);
  for (const auto& [name, tensor] : copies_[0].buffers) tensors.push_back(tensor);
  const at::Tensor bytes = to_bytes(tensors);
  tasks_->broadcast("initial values", bytes);
  const std::vector<at::Tensor> values = from_bytes(bytes, tensors);
  for (std::size_t i = 0; i < tensors.size(); ++i) tensors[i].copy_(values[i]);
}

std::vector<std::vector<at::Tensor>> Variables::all_buffers() const {
  std::vector<std::vector<at::Tensor>> by_replica;
  for (const ReplicaTensors& copy : copies_) {
    auto& mine = by_replica.emplace_back();
    for (const auto& [name, tensor] : copy.buffers) mine.push_back(tensor);
  }
  if (!tasks_ || by_replica[0].empty()) return by_replica;
  std::vector<at::Tensor> local;
  for (const auto& mine : by_replica) local.insert(local.end(), mine.begin(), mine.end());
  const std::size_t each = by_replica[0].size();
  by_replica.clear();
  for (const at::Tensor& bytes : tasks_->all_gather("buffers", to_bytes(local))) {
    const std::vector<at::Tensor> theirs = from_bytes(bytes, local);
    for (std::size_t at = 0; at < theirs.size(); at += each) {
      by_replica.emplace_back(theirs.begin() + static_cast<std::ptrdiff_t>(at),
                              theirs.begin() + static_cast<std::ptrdiff_t>(at + each));
    }
  }
  return by_replica;
}

std::vector<at::Tensor> Variables::read_buffers() const {
  const auto by_replica = all_buffers();
  std::vector<at::Tensor> values;
  for (std::size_t i = 0; i < by_replica[0].size(); ++i) {
    at::Tensor value = by_replica[0][i].clone();
    if (value.is_floating_point() && by_replica.size() > 1) {
      for (std::size_t replica = 1; replica < by_replica.size(); ++replica) {
        value += by_replica[replica][i].to(value.device());
      }
      value = value / static_cast<std::int64_t>(by_replica.size());
    }
    values.push_back(value);
  }
  return values;
}

BuffersAsRead::BuffersAsRead(Variables& variables) : variables_(variables) {
  variables.fetch();
  if (variables.reads_as_written()) return;
  const torch::NoGradGuard no_grad;
  const std::vector<at::Tensor> as_read = variables.read_buffers();
  for (auto& copy : variables.copies_) {
    auto& own = own_.emplace_back();
    for (std::size_t i = 0; i < as_read.size(); ++i) {
      own.push_back(copy.buffers[i].tensor.clone());
      copy.buffers[i].tensor.copy_(as_read[i]);
    }
  }
}

BuffersAsRead::~BuffersAsRead() {
  const torch::NoGradGuard no_grad;
  for (std::size_t replica = 0; replica < own_.size(); ++replica) {
    auto& buffers = variables_.copies_[replica].buffers;
    for (std::size_t i = 0; i < buffers.size(); ++i) buffers[i].tensor.copy_(own_[replica][i]);
  }
}

}  // namespace tandem::internal
