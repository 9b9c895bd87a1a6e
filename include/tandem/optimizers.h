#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "tandem/replica.h"

namespace torch::optim {
class Optimizer;
}

namespace tandem {

class Model;

namespace internal {
struct OptimizerSpec;
class Updater;
}  // namespace internal

// One optimizer for all replicas: sums their gradients, then updates every copy alike. The arithmetic is
// libtorch's.
//
// An Optimizer is a value: a shared handle. Create it in the scope of the strategy, or give it to
// Model::compile().
class Optimizer {
 public:
  Optimizer(internal::OptimizerSpec spec, double learning_rate);

  // In a replica, after forward: zeroes the gradients, runs backward from `loss`, sums the gradients over the
  // replicas and updates. An undefined loss (a replica without rows) adds zeros. Every replica must call it.
  // Throws InvalidArgument for a loss of several values: how to combine them is not for it to guess.
  //
  // The variables are the model's, or those of the only model created under the strategy. Throws
  // FailedPrecondition if there are several.
  void minimize(ReplicaContext& replica, const at::Tensor& loss);
  void minimize(ReplicaContext& replica, const at::Tensor& loss, const Model& model);

  // The gradients of a part of a step: runs backward, and keeps the result on this replica, to be added to
  // that of the next minimize(), with which it is exchanged. So n - 1 accumulate() and one minimize() are one
  // step on n times the rows, if each loss is divided by the rows of all n parts. Takes no time to meet the
  // others.
  void accumulate(ReplicaContext& replica, const at::Tensor& loss);
  void accumulate(ReplicaContext& replica, const at::Tensor& loss, const Model& model);

  // As minimize(), with gradients that are at hand (of torch::autograd::grad, say): one for each trainable
  // parameter, in the order of the module's parameters(); an undefined one is a missing one. They are summed
  // over the replicas.
  void apply_gradients(ReplicaContext& replica, const std::vector<at::Tensor>& gradients, const Model& model);

  // In cross-replica context. A change reaches every shard's optimizer at its next step.
  double learning_rate() const;
  void set_learning_rate(double rate);

  // Of a LossScaleOptimizer what the loss is multiplied with at the next step; else 1.
  double loss_scale() const;
  bool has_loss_scale() const;

  // For the rooms around: binds it to a model's variables. An optimizer serves one model.
  struct Binding;
  Binding& binding() const { return *binding_; }

 private:
  std::shared_ptr<Binding> binding_;
};

namespace optimizers {

// Which parameters weight decay applies to, by name. Empty: all.
using DecayFilter = std::function<bool(const std::string& name, const at::Tensor& parameter)>;

// The kernels of convolutions and dense layers: parameters of two or more dimensions. Not biases, not batch
// norm.
bool kernels_only(const std::string& name, const at::Tensor& parameter);

// Names and defaults are Keras's. The factories throw InvalidArgument for options outside their range.
//
// global_clipnorm: if the norm over all gradients, summed over all replicas of all tasks, is greater, they
// are scaled down to it. 0: never.
struct SGDOptions {
  double learning_rate = 0.01;
  double momentum = 0.0;
  bool nesterov = false;
  double weight_decay = 0.0;  // added to the gradient (L2)
  DecayFilter decay_filter = {};
  double global_clipnorm = 0.0;
};
struct AdamOptions {
  double learning_rate = 0.001;
  double beta_1 = 0.9;
  double beta_2 = 0.999;
  double epsilon = 1e-7;
  bool amsgrad = false;
  double weight_decay = 0.0;  // added to the gradient (L2)
  DecayFilter decay_filter = {};
  double global_clipnorm = 0.0;
};
struct AdamWOptions {
  double learning_rate = 0.001;
  double beta_1 = 0.9;
  double beta_2 = 0.999;
  double epsilon = 1e-7;
  bool amsgrad = false;
  double weight_decay = 0.004;  // decoupled from the gradient
  DecayFilter decay_filter = {};
  double global_clipnorm = 0.0;
};
struct RMSpropOptions {
  double learning_rate = 0.001;
  double rho = 0.9;
  double momentum = 0.0;
  double epsilon = 1e-7;
  bool centered = false;
  double weight_decay = 0.0;
  DecayFilter decay_filter = {};
  double global_clipnorm = 0.0;
};
struct AdagradOptions {
  double learning_rate = 0.001;
  double initial_accumulator_value = 0.1;
  double epsilon = 1e-7;
  double weight_decay = 0.0;
  DecayFilter decay_filter = {};
  double global_clipnorm = 0.0;
};

// TensorFlow's, for linear models above all: libtorch has none.
struct FtrlOptions {
  double learning_rate = 0.001;
  double learning_rate_power = -0.5;  // 0 or below; 0: a rate that stays
  double initial_accumulator_value = 0.1;
  double l1_regularization_strength = 0.0;
  double l2_regularization_strength = 0.0;
  double l2_shrinkage_regularization_strength = 0.0;
  double beta = 0.0;
  double global_clipnorm = 0.0;
};

Optimizer SGD(SGDOptions options = {});
Optimizer Adam(AdamOptions options = {});
Optimizer AdamW(AdamWOptions options = {});
Optimizer RMSprop(RMSpropOptions options = {});
Optimizer Adagrad(AdagradOptions options = {});
Optimizer Ftrl(FtrlOptions options = {});

// Any other libtorch optimizer: make(parameters) is called once per replica, and beforehand on a single
// value, to see what it makes. It runs whole on each replica, on identical summed gradients, so it must be
// deterministic. LBFGS is refused when a model is compiled with it.
Optimizer from_torch(
    std::function<std::unique_ptr<torch::optim::Optimizer>(std::vector<at::Tensor> parameters)> make,
    double global_clipnorm = 0.0);

struct LossScaleOptions {
  double initial_scale = 32768;
  // After so many steps in a row with finite gradients the scale doubles.
  std::int64_t growth_steps = 2000;
};

// Multiplies the loss with a scale before backward and divides the summed gradients by it, so that small ones
// do not vanish in float16. If one of them is not finite on any replica of any task, no replica is updated,
// and the scale is halved, down to 1. Clipping comes after. Returns the same optimizer.
//
// Throws InvalidArgument for a scale below 1 or not finite or for no steps, FailedPrecondition if the
// optimizer already serves a model.
Optimizer LossScaleOptimizer(Optimizer inner, LossScaleOptions options = {});

}  // namespace optimizers
}  // namespace tandem
