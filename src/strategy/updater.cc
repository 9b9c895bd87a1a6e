#include "strategy/updater.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <torch/torch.h>

#include <algorithm>
#include <cmath>

#include "strategy/optimizer_slots.h"
#include "tandem/error.h"

namespace tandem::internal {

Updater::Updater(std::shared_ptr<Variables> variables, const OptimizerSpec& spec, const MeetingPlace& place)
    : global_clipnorm_(spec.global_clipnorm),
      buffers_(
          std::move(variables),
          spec.option_group ? spec.option_group : [](const std::string&, const at::Tensor&) { return 0; },
          /*gradients_on_host=*/place.gradients_on_host || place.tasks != nullptr),
      exchange_(place.tasks ? std::make_unique<GradientExchange>(buffers_, *place.tasks, place.meeting)
                            : nullptr),
      times_(static_cast<std::size_t>(buffers_.replicas())),
      has_parts_(times_.size(), 0) {
  if (spec.loss_scale) {
    scales_.assign(times_.size(), LossScale(spec.loss_scale->initial, spec.loss_scale->growth_steps));
  }
}

void Updater::begin_part(int replica) {
  std::uint8_t& has_parts = has_parts_[static_cast<std::size_t>(replica)];
  if (!has_parts) buffers_.begin_step(replica);
  has_parts = 1;
}

// The exchange begins with the last part: until then nothing leaves.
void Updater::begin_step(int replica) {
  begin_part(replica);
  has_parts_[static_cast<std::size_t>(replica)] = 0;
  if (exchange_) exchange_->begin_step(replica);
}

std::string Updater::kind() const {
  return kind_of(*optimizers_.front());
}

double Updater::learning_rate() const {
  return optimizers_.front()->param_groups().front().options().get_lr();
}

void Updater::set_learning_rate(double rate) {
  for (auto& optimizer : optimizers_) {
    for (auto& group : optimizer->param_groups()) group.options().set_lr(rate);
  }
}

double Updater::squares(const at::Tensor& summed, int group, std::int64_t begin, std::int64_t end) const {
  double sum = 0;
  for (std::size_t i = 0; i < buffers_.slots().size(); ++i) {
    const Slot& slot = buffers_.slots()[i];
    const std::int64_t first = std::max(begin, slot.begin);
    const std::int64_t last = std::min(end, slot.end);
    if (slot.group != group || first >= last || !has_gradient(i)) continue;
    const at::Tensor part = summed.slice(0, first, last);
    sum += (part * part).sum(at::kDouble).item<double>();
  }
  return sum;
}

bool Updater::finite(const at::Tensor& summed, int group, std::int64_t begin, std::int64_t end) const {
  for (std::size_t i = 0; i < buffers_.slots().size(); ++i) {
    const Slot& slot = buffers_.slots()[i];
    const std::int64_t first = std::max(begin, slot.begin);
    const std::int64_t last = std::min(end, slot.end);
    if (slot.group != group || first >= last || !has_gradient(i)) continue;
    if (!at::isfinite(summed.slice(0, first, last)).all().item<bool>()) return false;
  }
  return true;
}

double Updater::clip_factor(double squares) const {
  const double norm = std::sqrt(squares);
  return norm > global_clipnorm_ ? global_clipnorm_ / norm : 1;
}

void Updater::check_state(const OptimizerState& state) const {
  for (const auto& [name, slots] : state) {
    const auto slot = std::find_if(buffers_.slots().begin(), buffers_.slots().end(),
                                   [&, &wanted = name](const Slot& s) { return s.name == wanted; });
    if (slot == buffers_.slots().end()) {
      throw InvalidArgument(
          fmt::format("optimizer state for \"{}\": the model has no trainable parameter of that name", name));
    }
    for (const auto& [what, tensor] : slots) {
      if (!is_counter(tensor) && tensor.sizes() != at::IntArrayRef(slot->sizes)) {
        throw InvalidArgument(fmt::format("optimizer state \"{}\" of \"{}\" has shape [{}]: expected [{}]",
                                          what, name, fmt::join(tensor.sizes(), ", "),
                                          fmt::join(slot->sizes, ", ")));
      }
    }
  }
}

std::unique_ptr<Updater> make_updater(std::shared_ptr<Variables> variables, const OptimizerSpec& spec,
                                      const MeetingPlace& place) {
  std::vector<std::vector<at::Tensor>> probe(static_cast<std::size_t>(spec.option_groups));
  for (auto& group : probe) group.push_back(at::zeros({1}));
  const auto optimizer = spec.make(probe);
  if (needs_closure(*optimizer)) {
    throw InvalidArgument(
        "LBFGS evaluates the loss several times in one step, which replicas in sync cannot do: use SGD, Adam "
        "or another first-order optimizer");
  }
  const bool one_memory = place.ops.shares_memory() || variables->placement() == Placement::kCentral;
  if (one_memory && is_element_wise(*optimizer)) {
    return make_sharded_updater(std::move(variables), spec, place);
  }
  return make_replicated_updater(std::move(variables), spec, place);
}

}  // namespace tandem::internal
