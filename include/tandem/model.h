#pragma once

#include <ATen/core/Tensor.h>

#include <concepts>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "tandem/callbacks.h"
#include "tandem/dataset.h"
#include "tandem/losses.h"
#include "tandem/metrics.h"
#include "tandem/optimizers.h"
#include "tandem/policy.h"
#include "tandem/replica.h"
#include "tandem/strategy.h"

namespace torch::nn {
class Module;
}

namespace tandem {

namespace internal {
struct ModelAccess;
}

// One replica's copy of a model: the module, and how to call it.
class Network {
 public:
  Network(std::shared_ptr<torch::nn::Module> module, std::function<at::Tensor(const Tensors&)> forward)
      : module_(std::move(module)), forward_(std::move(forward)) {}

  at::Tensor operator()(const Tensors& x) const { return forward_(x); }
  torch::nn::Module& module() const { return *module_; }
  const std::shared_ptr<torch::nn::Module>& shared_module() const { return module_; }

 private:
  std::shared_ptr<torch::nn::Module> module_;
  std::function<at::Tensor(const Tensors&)> forward_;
};

// Makes a copy for each replica: of any factory that returns a new module each time, a libtorch module holder
// or a shared_ptr, with a forward() of one tensor or of a name -> tensor map.
class NetworkFactory {
 public:
  NetworkFactory() = default;
  template <std::invocable Factory>
  requires(!std::same_as<Factory, NetworkFactory>)
      NetworkFactory(Factory factory)  // NOLINT: implicit by intent
      : make_(over(std::move(factory))) {}

  Network operator()() const { return make_(); }
  explicit operator bool() const { return static_cast<bool>(make_); }

 private:
  template <typename Factory>
  static std::function<Network()> over(Factory factory) {
    return [factory = std::move(factory)]() mutable {
      auto made = factory();
      auto module = [&] {
        if constexpr (requires { made.ptr(); }) {
          return made.ptr();  // a holder, as TORCH_MODULE makes
        } else {
          return made;
        }
      }();
      return Network(module, [module](const Tensors& x) -> at::Tensor {
        if constexpr (requires { module->forward(x.tensor()); }) {
          return module->forward(x.tensor());
        } else {
          return module->forward(x.map());
        }
      });
    };
  }

  std::function<Network()> make_;
};

struct ModelOptions {
  // Decides the initial values, dropout and shuffling. Unset: drawn, and told in the log. Of several tasks
  // the chief's holds for all.
  std::optional<std::uint64_t> seed = {};
  // Turns every batch norm of the model (torch::nn::BatchNorm1d to 3d, unmodified) into a synchronised one:
  // in training it normalises with the statistics of all replicas' rows. See sync_batch_norm.h.
  bool sync_batch_norm = false;
  // In what numbers it computes: "mixed_bfloat16", for one. Every task must say the same.
  Policy policy = {};
};

struct CompileOptions {
  Optimizer optimizer;
  Loss loss;
  std::vector<Metric> metrics = {};
  // So many steps run before callbacks are called again, and before tasks agree whether to stop.
  std::int64_t steps_per_execution = 1;
};

enum class Verbose {
  kAuto,    // a progress bar on a terminal, else a line per epoch and, in a long one, every half minute
  kSilent,  // Keras's 0
  kBar,     // 1
  kLines,   // 2: a line per epoch
};

// What to do when the loss of a step is not a number, or infinite.
enum class OnNan { kStop, kContinue };

struct FitOptions {
  // The number of the last epoch, not a count: with initial_epoch 3 and epochs 5 there are two.
  std::int64_t epochs = 1;
  std::int64_t initial_epoch = 0;
  // Unset: until the dataset ends. Set: the dataset goes on across epochs; it ends the training if it runs
  // dry.
  std::optional<std::int64_t> steps_per_epoch = {};
  // Ends the training after this many optimizer steps, counted over all epochs.
  std::optional<std::int64_t> max_steps = {};
  std::optional<Dataset> validation_data = {};
  // Batches of it to evaluate. Unset: all.
  std::optional<std::int64_t> validation_steps = {};
  // Evaluate it after every so many epochs.
  std::int64_t validation_freq = 1;
  std::vector<std::shared_ptr<Callback>> callbacks = {};
  Verbose verbose = Verbose::kAuto;
  OnNan on_nan = OnNan::kStop;
};

struct EvaluateOptions {
  // Unset: the whole dataset.
  std::optional<std::int64_t> steps = {};
};

struct LoadWeightsOptions {
  // Load what both have by name, whatever else the file or the model has.
  bool expect_partial = false;
  // Leave the model's own values where the file has another shape or dtype, as Keras's option of this name:
  // the last layer of a network that was trained for other classes. A line in the log names what was left.
  bool skip_mismatch = false;
};

// A model with one copy per replica of the strategy in whose scope it was made (or of the default strategy).
//
//   tandem::Model model = strategy.scope([] {
//     tandem::Model m([] { return tandem::models::ResNetCifar(20); });
//     m.compile({.optimizer = ..., .loss = ..., .metrics = {...}});
//     return m;
//   });
//   model.fit(train, {.epochs = 10, .validation_data = test});
//
// A Model is a value: a shared handle. Not thread-safe. Under a strategy of several tasks each makes the same
// model, and making it, fit, evaluate, predict, train_step, values, parameter_digest and whatever saves are
// collectives: every task must call them, in the same order.
class Model {
 public:
  // The factory is called once per replica; all copies get the first one's initial values, those of other
  // tasks the chief's. Throws InvalidArgument if it returns different models, or the same one twice.
  explicit Model(NetworkFactory factory, ModelOptions options = {});

  // May be called again, e.g. with another optimizer for fine-tuning. Throws InvalidArgument if the model has
  // no trainable parameter or the optimizer cannot run under the strategy.
  void compile(CompileOptions options);

  // Trains on global batches. The last, smaller batch counts exactly: the gradient is that of the mean over
  // its rows. Callbacks run on every task, progress is shown by the chief. Throws InvalidArgument before the
  // first step for options or data that cannot work.
  History fit(const Dataset& data, FitOptions options = {});

  // The loss and the metrics over the dataset, each example counted once. Batch norm uses the mean of the
  // replicas' statistics.
  Logs evaluate(const Dataset& data, EvaluateOptions options = {});
  // The same of what is distributed already, from where it stands.
  Logs evaluate(DistributedDataset& batches, EvaluateOptions options = {});

  // The model's output for every row, in the order of the rows, on every task. Needs no compile().
  at::Tensor predict(const Dataset& data, EvaluateOptions options = {});
  // Where each task has batches of its own the rows come by step, then by replica of all tasks.
  at::Tensor predict(DistributedDataset& batches, EvaluateOptions options = {});

  // A table of the layers with their weights, and how much memory the parameters of all replicas take.
  std::string summary() const;

  // One optimizer step on one global batch; what fit calls. Returns the loss: the mean over the rows of the
  // batch.
  double train_step(const DistributedBatch& batch, OnNan on_nan = OnNan::kStop);

  // This replica's copy, for custom loops.
  const Network& on(const ReplicaContext& replica) const;

  // Asks the running fit to end after this step, on all tasks.
  void stop_training();
  // Asks the callbacks that save to do so at the next ResumePoint, on all tasks; one task may ask alone.
  void request_save();

  const Strategy& strategy() const;
  const Policy& policy() const;
  Optimizer optimizer() const;
  std::uint64_t seed() const;
  // Optimizer steps so far.
  std::int64_t global_step() const;
  // Trainable values, tied weights counted once.
  std::int64_t num_parameters() const;

  // Every parameter and buffer by name, contiguous on the CPU; floating-point buffers as the mean over the
  // replicas.
  std::map<std::string, at::Tensor> values() const;
  // Gives every copy on every replica these values; what is not named keeps its own. The optimizer's state
  // stays. Every task must set the same. Throws InvalidArgument, before anything is changed, for a name, a
  // shape or a kind of number that the model does not have.
  void set_values(const std::map<std::string, at::Tensor>& values);

  // The model with its optimizer's state, learning rate, step and seed, as one safetensors file that a model
  // of the same kind can load under any strategy. Nothing of a fit() that runs: see BackupAndRestore. The
  // chief reads and writes; a file is replaced atomically. load() throws NotFound, InvalidArgument if the
  // file is of another model or optimizer, DataLoss if it is damaged or has no state beside the weights.
  void save(const std::string& path);
  void load(const std::string& path);

  // Writes values() to a safetensors file, which Python's package of that name reads (load_file). The chief
  // writes, so that a reader finds the old file or the new one, whole; on return it is there. Throws Error,
  // on every task, if it cannot be written.
  void save_weights(const std::string& path) const;

  // Gives every copy on every replica the values of a safetensors file, of a checkpoint (its folder
  // "step-...") or of the newest whole checkpoint in a folder. The optimizer's state stays. Floating-point
  // values become those of the model's dtype. The chief reads, and hands out what it has read. Throws, on
  // every task and before anything is changed, InvalidArgument for names, shapes or dtypes that do not fit or
  // for a file of another kind (a pickle, as torch.save writes, is never read), NotFound and DataLoss.
  void load_weights(const std::string& path, LoadWeightsOptions options = {});

  // Writes what Keras's model.export() is for: the model's computation in evaluation mode, for a program that
  // has not this code. torch.jit.load opens the file, in Python or C++; the names of parameters and buffers
  // are the same there, and forward() takes the tensor, or the named ones as keyword arguments.
  //
  // The computation is recorded as it runs on the example, a batch of any number of rows: branches that
  // depend on values are written as they were taken. The chief writes, in place of an older file, once it has
  // read the result again and compared it with the model on the example and on one more row. Throws
  // InvalidArgument, on every task, if they differ: mostly because forward() computes with x.size(0).
  void save_torchscript(const std::string& path, const Tensors& example);

  // SHA-256 over values() in name order (name, a zero byte, the values row by row, little-endian), in
  // hexadecimal.
  std::string parameter_digest() const;

  struct State;

 private:
  friend class Optimizer;
  friend struct internal::ModelAccess;

  std::shared_ptr<State> state_;
};

}  // namespace tandem
