#include <torch/torch.h>

#include "strategy/optimizer_slots.h"
#include "strategy/updater.h"
#include "tandem/error.h"

namespace tandem::internal {
namespace {

class ReplicatedUpdater final : public Updater {
 public:
  ReplicatedUpdater(std::shared_ptr<Variables> variables, const OptimizerSpec& spec,
                    const MeetingPlace& place)
      : Updater(std::move(variables), spec, place), meeting_(place.meeting), ops_(place.ops) {
    // The one copy of central storage has one optimizer, the first replica's.
    for (int replica = 0; replica < (buffers_.central() ? 1 : buffers_.replicas()); ++replica) {
      std::vector<std::vector<at::Tensor>> by_option(static_cast<std::size_t>(spec.option_groups));
      for (std::size_t i = 0; i < buffers_.slots().size(); ++i) {
        const FlatGroup& group = buffers_.groups()[static_cast<std::size_t>(buffers_.slots()[i].group)];
        by_option[static_cast<std::size_t>(group.option_group)].push_back(buffers_.parameter(replica, i));
      }
      optimizers_.push_back(spec.make(std::move(by_option)));
    }
  }

  void apply(int replica) override {
    const torch::NoGradGuard no_grad;
    UpdateTimes& times = times_[static_cast<std::size_t>(replica)];
    if (exchange_) {
      timed("exchange", times.exchange, [&] { exchange_->finish(replica); });
    } else {
      timed("wait for replicas", times.wait,
            [&] { meeting_.arrive(replica, "minimize"); });  // every replica knows which gradients it has
    }
    bool skip = false;
    timed("reduce", times.reduce, [&] {
      reduce(replica);
      skip = !scales_.empty() && !unscale(replica);
      if (global_clipnorm_ > 0 && !skip) clip(replica);
    });
    timed("update", times.update, [&] {
      if (skip || replica >= static_cast<int>(optimizers_.size())) return;
      for (std::size_t i = 0; i < buffers_.slots().size(); ++i) {
        // An optimizer skips a parameter without a gradient; begin_step() attaches it again.
        if (!has_gradient(i)) buffers_.parameter(replica, i).mutable_grad() = at::Tensor();
      }
      optimizer(replica).step();
      if (buffers_.central()) refresh_caches();
    });
    timed("wait for replicas", times.wait,
          [&] { meeting_.arrive(replica, "minimize"); });  // nobody asks has_gradient() any more
  }

  // Every replica's optimizer holds the same: the first one's is read.
  OptimizerState state() const override {
    refuse_unknown();
    OptimizerState state;
    for (std::size_t i = 0; i < buffers_.slots().size(); ++i) {
      const OptimizerSlots slots = get_slots(optimizer(0), buffers_.parameter(0, i));
      auto& mine = state[buffers_.slots()[i].name];
      for (const auto& [name, value] : slots.counters) mine[name] = at::scalar_tensor(value, at::kLong);
      for (const auto& [name, tensor] : slots.tensors)
        mine[name] = tensor.clone(at::MemoryFormat::Contiguous);
    }
    return state;
  }

  void load_state(const OptimizerState& state) override {
    refuse_unknown();
    check_state(state);
    for (int replica = 0; replica < static_cast<int>(optimizers_.size()); ++replica) {
      for (std::size_t i = 0; i < buffers_.slots().size(); ++i) {
        const auto found = state.find(buffers_.slots()[i].name);
        if (found == state.end()) continue;
        OptimizerSlots slots;
        for (const auto& [name, tensor] : found->second) {
          if (is_counter(tensor)) {
            slots.counters[name] = tensor.item<std::int64_t>();
          } else {
            slots.tensors[name] = at::empty_like(buffers_.parameter(replica, i)).copy_(tensor).detach();
          }
        }
        set_slots(optimizer(replica), buffers_.parameter(replica, i), slots);
      }
    }
  }

 private:
  void reduce(int replica) {
    for (int group = 0; group < static_cast<int>(buffers_.groups().size()); ++group) {
      at::Tensor gradients = buffers_.gradients(replica, group);
      if (!exchange_) {
        ops_.all_reduce(meeting_, replica, gradients);
      } else if (gradients.data_ptr() != exchange_->sum(group).data_ptr()) {
        gradients.copy_(exchange_->sum(group));
      }
    }
  }

  // False if a gradient is not finite. Every replica has all of them, and so the same answer.
  bool unscale(int replica) {
    bool all = true;
    const int groups = static_cast<int>(buffers_.groups().size());
    for (int group = 0; group < groups; ++group) {
      const at::Tensor& gradients = buffers_.gradients(replica, group);
      all = all && finite(gradients, group, 0, gradients.numel());
    }
    if (all) multiply(replica, 1 / loss_scale(replica));
    scales_[static_cast<std::size_t>(replica)].settle(all);
    return all;
  }

  void multiply(int replica, double factor) {
    for (int group = 0; group < static_cast<int>(buffers_.groups().size()); ++group) {
      at::Tensor(buffers_.gradients(replica, group)).mul_(factor);
    }
  }

  void clip(int replica) {
    double all = 0;
    const int groups = static_cast<int>(buffers_.groups().size());
    for (int group = 0; group < groups; ++group) {
      const at::Tensor& gradients = buffers_.gradients(replica, group);
      all += squares(gradients, group, 0, gradients.numel());
    }
    const double factor = clip_factor(all);
    if (factor != 1) multiply(replica, factor);
  }

  // Central storage: what the first replica updated, to the copy on the CPU and to the other GPUs, if there
  // are any.
  void refresh_caches() {
    for (int group = 0; group < static_cast<int>(buffers_.groups().size()); ++group) {
      const at::Tensor& updated = buffers_.parameters(0, group);
      if (!buffers_.home(0, group).is_same(updated)) buffers_.home(0, group).copy_(updated);
      for (int r = 1; r < buffers_.replicas(); ++r) {
        if (!buffers_.parameters(r, group).is_same(updated)) buffers_.parameters(r, group).copy_(updated);
      }
    }
  }

  void refuse_unknown() const {
    if (is_element_wise(optimizer(0))) return;
    throw Unimplemented(
        "the state of this optimizer is of a type that tandem does not know: only that of SGD, Adam, AdamW, "
        "RMSprop, Adagrad and Ftrl can be saved and loaded");
  }

  Meeting& meeting_;
  CrossDeviceOps& ops_;
};

}  // namespace

std::unique_ptr<Updater> make_replicated_updater(std::shared_ptr<Variables> variables,
                                                 const OptimizerSpec& spec, const MeetingPlace& place) {
  return std::make_unique<ReplicatedUpdater>(std::move(variables), spec, place);
}

}  // namespace tandem::internal
