#pragma once

#include <ATen/core/Tensor.h>

#include <chrono>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/meeting.h"
#include "strategy/flat_buffers.h"
#include "strategy/gradient_exchange.h"
#include "strategy/loss_scale.h"
#include "strategy/variables.h"
#include "tandem/cross_device_ops.h"
#include "trace/recorder.h"

namespace torch::optim {
class Optimizer;
}

namespace tandem::internal {

// How to make a libtorch optimizer, without saying yet on which tensors.
struct OptimizerSpec {
  using Make =
      std::function<std::unique_ptr<torch::optim::Optimizer>(std::vector<std::vector<at::Tensor>> by_group)>;

  // Called once per replica with the tensors of each option group; the optimizer's parameter groups are in
  // that order.
  Make make;
  int option_groups = 1;
  // Which option group a parameter is in. Empty: all in group 0.
  std::function<int(const std::string& name, const at::Tensor& parameter)> option_group = {};
  // Gradients whose norm, over all of them, is greater are scaled down to it, once they are summed. 0: never.
  double global_clipnorm = 0;

  // What the loss is multiplied with; see LossScale.
  struct Scaling {
    double initial = 1;
    std::int64_t growth_steps = 1;
  };
  std::optional<Scaling> loss_scale = {};
};

// An optimizer's state by parameter name, then by slot name ("momentum_buffer", "step"): tensors in the
// parameter's logical layout, counters as int64 scalars. It does not depend on the strategy or the number of
// replicas.
using OptimizerState = std::map<std::string, std::map<std::string, at::Tensor>>;

inline bool is_counter(const at::Tensor& slot) {
  return slot.dim() == 0 && slot.scalar_type() == at::kLong;
}

// Seconds that one replica has spent in apply() so far.
struct UpdateTimes {
  double wait = 0;      // for the other replicas
  double reduce = 0;    // summing gradients
  double exchange = 0;  // summing them over the tasks, waits included, as far as backward did not hide it
  double update = 0;    // the optimizer, and handing its result to the other replicas
};

// Where the replicas of a strategy meet.
struct MeetingPlace {
  Meeting& meeting;
  CrossDeviceOps& ops;
  SyncGroup* tasks = nullptr;      // null where there is one task
  bool gradients_on_host = false;  // they leave this process from there
};

// Adds to `seconds` how long fn took; a trace shows it under the name.
template <typename Fn>
void timed(const char* name, double& seconds, Fn fn) {
  const TraceSpan span(name);
  const auto start = std::chrono::steady_clock::now();
  fn();
  seconds += std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

// How gradients meet and parameters change: the strategy's half of an optimizer's step.
class Updater {
 public:
  Updater(std::shared_ptr<Variables> variables, const OptimizerSpec& spec, const MeetingPlace& place);
  virtual ~Updater() = default;

  // On each replica's thread, before backward: zeroes its gradients, unless parts of the step have begun.
  virtual void begin_step(int replica);
  // The same before a backward whose gradients stay here, to be added to those of the step that follows.
  void begin_part(int replica);

  // On each replica's thread, after backward: returns once this replica's parameters hold the new values. A
  // collective: every replica must call it; see Meeting and SyncGroup for what it throws.
  virtual void apply(int replica) = 0;

  // In cross-replica context:
  double learning_rate() const;
  void set_learning_rate(double rate);
  // "SGD", "Adam", ...; empty for an optimizer whose state cannot be told.
  std::string kind() const;
  virtual OptimizerState state() const = 0;
  // Throws InvalidArgument if a name or shape does not fit the model.
  virtual void load_state(const OptimizerState& state) = 0;

  // Where steps are counted outside this process: how many there have been, of all tasks, as far as this one
  // knows. Nothing where every step of this process is one.
  virtual std::optional<std::int64_t> global_step() const { return std::nullopt; }
  // Of a training that goes on, together with load_state().
  virtual void set_global_step(std::int64_t /*step*/) {}

  // What this replica's loss is to be multiplied with before backward; 1 without loss scaling.
  double loss_scale(int replica) const {
    return scales_.empty() ? 1 : scales_[static_cast<std::size_t>(replica)].scale();
  }
  // In cross-replica context: for checkpoints. Null without loss scaling.
  const LossScale* saved_loss_scale() const { return scales_.empty() ? nullptr : &scales_.front(); }
  void restore_loss_scale(double scale, std::int64_t good_steps) {
    for (LossScale& each : scales_) each.restore(scale, good_steps);
  }

  const UpdateTimes& times(int replica) const { return times_[static_cast<std::size_t>(replica)]; }

 protected:
  torch::optim::Optimizer& optimizer(int replica) const {
    return *optimizers_[static_cast<std::size_t>(replica)];
  }
  // Whether gradients of parts of the next step are here already.
  bool has_parts(int replica) const { return has_parts_[static_cast<std::size_t>(replica)] != 0; }
  // Checks the names and shapes of a state that is to be loaded.
  void check_state(const OptimizerState& state) const;

  // Of elements [begin, end) of a group's buffer, those that are the gradient of a parameter: the sum of
  // their squares.
  double squares(const at::Tensor& summed, int group, std::int64_t begin, std::int64_t end) const;
  // Whether all of them are finite.
  bool finite(const at::Tensor& summed, int group, std::int64_t begin, std::int64_t end) const;
  // What the gradients are to be multiplied with, given the sum of the squares of all; 1: nothing.
  double clip_factor(double squares) const;

  // Whether backward reached a parameter on any replica of any task.
  bool has_gradient(std::size_t slot) const {
    return exchange_ ? exchange_->has_gradient(slot) : buffers_.has_gradient(slot);
  }
  bool all_have_gradients() const {
    return exchange_ ? exchange_->all_have_gradients() : buffers_.all_have_gradients();
  }

  const double global_clipnorm_;
  FlatBuffers buffers_;
  std::unique_ptr<GradientExchange> exchange_;                        // null where there is one task
  std::vector<std::unique_ptr<torch::optim::Optimizer>> optimizers_;  // by replica
  std::vector<UpdateTimes> times_;                                    // by replica
  std::vector<LossScale> scales_;                                     // by replica; empty: none

 private:
  std::vector<std::uint8_t> has_parts_;  // by replica: whether its gradients hold parts of the next step
};

// Sharded where the replicas share memory (or one copy of the parameters) and the optimizer works element by
// element, else replicated. Throws InvalidArgument for an optimizer that cannot run on replicas (LBFGS).
std::unique_ptr<Updater> make_updater(std::shared_ptr<Variables> variables, const OptimizerSpec& spec,
                                      const MeetingPlace& place);

// Replica r reduces range r over all replicas' gradients, applies the optimizer to that range once, and
// writes the result into every replica: reduce-scatter, update and all-gather in one pass. With several tasks
// the sum comes from the exchange, and each task's replicas share the update of their own copies.
std::unique_ptr<Updater> make_sharded_updater(std::shared_ptr<Variables> variables, const OptimizerSpec& spec,
                                              const MeetingPlace& place);

// Every replica gets the summed gradients and runs the whole optimizer on its own copy.
std::unique_ptr<Updater> make_replicated_updater(std::shared_ptr<Variables> variables,
                                                 const OptimizerSpec& spec, const MeetingPlace& place);

}  // namespace tandem::internal
