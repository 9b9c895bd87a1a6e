// One task of the clusters that multi_worker_test starts:
//
//   multi_worker_task SCENARIO --worker_hosts a:1,b:2 --task_index 0 [flags]
//
// Prints what it found as lines "name value", which the test compares between the tasks and with what they
// should be.
#include <fmt/format.h>
#include <torch/torch.h>

#include <algorithm>
#include <filesystem>
#include <functional>
#include <limits>
#include <map>

#include "base/sha256.h"
#include "cli/cluster_flags.h"
#include "cli/program.h"
#include "support/temp_folder.h"
#include "support/training.h"
#include "tandem/tandem.h"

namespace tandem {
namespace {

using testing_support::distance;
using testing_support::mirrored;
using testing_support::Values;

struct Flags : internal::ClusterProgramFlags {
  std::string scenario = {};
  int replicas = 1;
  int threads = 1;
  std::size_t bytes_per_pack = 0;
  bool bfloat16 = false;
  double timeout = 0;
  std::string program = "same";
  std::string folder = {};
};

void say(const std::string& name, const std::string& value) {
  fmt::print("{} {}\n", name, value);
  std::fflush(stdout);
}
void say(const std::string& name, double value) {
  say(name, fmt::format("{:.17g}", value));
}

MultiWorkerMirroredStrategy join(const Flags& flags) {
  MultiWorkerMirroredOptions options{.cluster = resolve_cluster(flags.cluster),
                                     .threads_per_replica = flags.threads,
                                     .server = flags.server_options()};
  for (int i = 0; i < flags.replicas; ++i) options.devices.push_back(fmt::format("/cpu:{}", i));
  options.communication.bytes_per_pack = flags.bytes_per_pack;
  if (flags.bfloat16) options.communication.wire_format = WireFormat::kBfloat16;
  if (flags.timeout > 0) {
    options.communication.timeout = std::chrono::milliseconds(static_cast<int>(flags.timeout * 1000));
  }
  options.server.program["what"] = flags.program;
  return MultiWorkerMirroredStrategy(options);
}

int rank_of(const Strategy& strategy) {
  return strategy.communicator()->rank();
}

// What the parameters of this task's first replica were after each step, as one digest.
class ParameterTrail : public Callback {
 public:
  void on_train_batch_end(const TrainStep& step, const Logs& logs) override {
    for (const auto& [name, value] : model().values()) digest_.update(value.data_ptr(), value.nbytes());
    digest_.update(&step.loss, sizeof step.loss);
    for (const auto& [name, value] : logs) digest_.update(&value, sizeof value);
  }
  std::string hex() { return digest_.hex(); }

 private:
  internal::Sha256 digest_;
};

constexpr int kSteps = 8;
constexpr int kBatch = 16;
constexpr int kLastBatch = 5;  // over 4 replicas: 2, 2, 1 and no rows

Dataset pictures(at::ScalarType dtype) {
  torch::manual_seed(11);
  const int rows = (kSteps - 1) * kBatch + kLastBatch;
  return Dataset::from_tensors(torch::randn({rows, 1, 28, 28}).to(dtype), torch::randint(10, {rows}));
}

struct Trained {
  Model model;
  std::string trail = {};
};

Trained train_lenet(const Strategy& strategy, at::ScalarType dtype, const char* policy = "float32") {
  Model model = strategy.scope([&] {
    Model m(
        [dtype] {
          models::LeNet net;
          net->to(dtype);
          return net;
        },
        {.seed = 3, .policy = policy});
    m.compile({.optimizer = dtype == torch::kDouble
                                ? optimizers::SGD({.learning_rate = 0.05, .momentum = 0.9})
                                : optimizers::SGD({.learning_rate = 0.01}),
               .loss = losses::sparse_categorical_crossentropy(),
               .metrics = {metrics::accuracy()}});
    return m;
  });
  const auto trail = std::make_shared<ParameterTrail>();
  model.fit(pictures(dtype).shuffle(1000).batch(kBatch), {.callbacks = {trail}, .verbose = Verbose::kSilent});
  return {model, trail->hex()};
}

double largest_distance(const Values& a, const Values& b) {
  double largest = 0;
  for (const auto& [name, value] : b) largest = std::max(largest, distance(a.at(name), value));
  return largest;
}

// Dropout, batch norm, Adam, and a parameter that backward reaches only on some replicas, or on none.
struct MixedImpl : torch::nn::Module {
  MixedImpl()
      : first(register_module("first", torch::nn::Linear(20, 32))),
        norm(register_module("norm", torch::nn::BatchNorm1d(32))),
        dropout(register_module("dropout", torch::nn::Dropout(0.5))),
        second(register_module("second", torch::nn::Linear(32, 10))),
        rare(register_parameter("rare", torch::ones({10}))),
        never(register_parameter("never", torch::ones({7}))) {}

  at::Tensor forward(const at::Tensor& x) {
    at::Tensor y = second(torch::relu(dropout(norm(first(x)))));
    // Examples with such an x are few: in most steps no replica has one, in some only one of them.
    return (x.select(1, 0) > 1.8).any().item<bool>() ? y * rare : y;
  }

  torch::nn::Linear first;
  torch::nn::BatchNorm1d norm;
  torch::nn::Dropout dropout;
  torch::nn::Linear second;
  at::Tensor rare;
  at::Tensor never;
};
TORCH_MODULE(Mixed);

Trained train_mixed(const Strategy& strategy, Optimizer optimizer) {
  Model model = strategy.scope([&] {
    Model m([] { return Mixed(); }, {.seed = 5});
    m.compile({.optimizer = optimizer,
               .loss = losses::sparse_categorical_crossentropy(),
               .metrics = {metrics::accuracy()}});
    return m;
  });
  torch::manual_seed(1);
  const auto data = Dataset::from_tensors(torch::randn({200, 20}), torch::randint(10, {200}));
  const auto trail = std::make_shared<ParameterTrail>();
  model.fit(
      data.shuffle(200).batch(32).prefetch(2),
      {.epochs = 2, .validation_data = data.batch(50), .callbacks = {trail}, .verbose = Verbose::kSilent});
  return {model, trail->hex()};
}

Optimizer adam() {
  return optimizers::Adam(
      {.learning_rate = 0.01, .weight_decay = 1e-3, .decay_filter = optimizers::kernels_only});
}

// N replicas of several tasks do what one replica does, and what as many in one process do.
void equivalence(const Flags& flags) {
  const auto strategy = join(flags);
  say("replicas", strategy.num_replicas_in_sync());
  const Trained f32 = train_lenet(strategy, torch::kFloat);
  const Trained f64 = train_lenet(strategy, torch::kDouble);
  const Trained again = train_lenet(strategy, torch::kFloat);
  const Trained mixed = train_mixed(strategy, adam());
  say("same_float32", f32.trail);
  say("same_float64", f64.trail);
  say("same_mixed", mixed.trail);
  say("same_mixed_digest", mixed.model.parameter_digest());
  say("again", again.trail == f32.trail ? 1 : 0);
  say("never_moved", mixed.model.values().at("never").eq(1).all().item<bool>() ? 1 : 0);
  say("rare_moved", mixed.model.values().at("rare").ne(1).any().item<bool>() ? 1 : 0);

  const Values float32 = f32.model.values();
  const Values float64 = f64.model.values();
  if (!strategy.is_chief()) return;
  // What is compared with needs no other task.
  say("float32_to_one", largest_distance(float32, train_lenet(mirrored(1), torch::kFloat).model.values()));
  say("float64_to_one", largest_distance(float64, train_lenet(mirrored(1), torch::kDouble).model.values()));
  const int replicas = strategy.num_replicas_in_sync();
  say("mirrored_float32", train_lenet(mirrored(replicas), torch::kFloat).trail);
  const Trained in_one_process = train_mixed(mirrored(replicas), adam());
  say("mirrored_mixed", in_one_process.trail);
  say("mirrored_mixed_digest", in_one_process.model.parameter_digest());
}

// In 16 bits the way there is rough, but the same for all.
void wire_format(const Flags& flags) {
  const auto strategy = join(flags);
  const Trained trained = train_lenet(strategy, torch::kFloat);
  say("same_trail", trained.trail);
  const Values values = trained.model.values();
  if (!strategy.is_chief()) return;
  say("to_one", largest_distance(values, train_lenet(mirrored(1), torch::kFloat).model.values()));
}

// Computed in bfloat16, kept in float32.
void half_precision(const Flags& flags) {
  constexpr const char* kPolicy = "mixed_bfloat16";
  const auto strategy = join(flags);
  const Trained trained = train_lenet(strategy, torch::kFloat, kPolicy);
  const Values values = trained.model.values();
  say("same_trail", trained.trail);
  const bool all_float32 =
      std::ranges::all_of(values, [](const auto& item) { return item.second.scalar_type() == at::kFloat; });
  say("all_float32", all_float32 ? 1 : 0);
  if (!strategy.is_chief()) return;
  const int replicas = strategy.num_replicas_in_sync();
  say("mirrored", train_lenet(mirrored(replicas), torch::kFloat, kPolicy).trail);
  say("to_one", largest_distance(values, train_lenet(mirrored(1), torch::kFloat, kPolicy).model.values()));
  say("to_float32", largest_distance(values, train_lenet(mirrored(1), torch::kFloat).model.values()));
}

// One weight, whose gradient is the mean of x: an infinity that only the last task has skips a step on all.
void loss_scale(const Flags& flags) {
  const auto strategy = join(flags);
  Model model = strategy.scope([] {
    Model m([] { return torch::nn::Linear(torch::nn::LinearOptions(1, 1).bias(false)); }, {.seed = 1});
    m.compile({.optimizer = optimizers::LossScaleOptimizer(
                   optimizers::SGD({.learning_rate = 0.5, .momentum = 0.9}), {.initial_scale = 8}),
               .loss = {"linear", [](const at::Tensor&, const at::Tensor& y) { return y.flatten(); }}});
    return m;
  });
  const auto step = [&](const std::string& name, float last) {
    const at::Tensor x = torch::tensor({1.0F, 1.0F, 1.0F, last}).view({4, 1});
    auto batches = strategy.distribute(Dataset::from_tensors(x, torch::zeros({4})).batch(4));
    const DistributedBatch batch = batches.next();
    say(name + "_mine", batch[0].x.tensor().sum().item<double>());
    model.train_step(batch);
    say("same_weight_" + name, model.values().at("weight").item<double>());
    say("same_scale_" + name, model.optimizer().loss_scale());
  };
  step("first", 1);
  step("bad", std::numeric_limits<float>::infinity());
  step("after", 1);
}

// An optimizer that tandem does not know takes the whole update on every replica.
class Normalised final : public torch::optim::Optimizer {
 public:
  explicit Normalised(std::vector<at::Tensor> parameters)
      : Optimizer({torch::optim::OptimizerParamGroup(std::move(parameters))},
                  std::make_unique<torch::optim::SGDOptions>(0.1)) {}
  at::Tensor step(LossClosure) override {
    const torch::NoGradGuard no_grad;
    for (auto& parameter : param_groups_.front().params()) {
      if (parameter.grad().defined()) parameter.sub_(parameter.grad() / (1 + parameter.grad().norm()));
    }
    return {};
  }
};

Optimizer normalised() {
  return optimizers::from_torch(
      [](std::vector<at::Tensor> parameters) { return std::make_unique<Normalised>(std::move(parameters)); });
}

void other_optimizer(const Flags& flags) {
  const auto strategy = join(flags);
  const Trained trained = train_mixed(strategy, normalised());
  say("same_trail", trained.trail);
  if (!strategy.is_chief()) return;
  say("mirrored", train_mixed(mirrored(strategy.num_replicas_in_sync()), normalised()).trail);
}

// Values, metrics and collectives of replicas.
void values(const Flags& flags) {
  const auto strategy = join(flags);
  const int rank = rank_of(strategy);

  // Different seeds, and models that differ whatever the seed: the chief's hold.
  const Model model = strategy.scope([&] {
    return Model(
        [&] {
          torch::nn::Linear net(3, 2);
          const torch::NoGradGuard no_grad;
          net->bias.fill_(100 + rank);
          return net;
        },
        {.seed = static_cast<std::uint64_t>(40 + rank)});
  });
  say("same_digest", model.parameter_digest());
  say("bias", model.values().at("bias")[0].item<double>());
  say("seed", static_cast<double>(model.seed()));

  const auto ids =
      strategy.run([](ReplicaContext& replica) { return at::full({2}, replica.id(), at::kLong); });
  say("sum_of_ids", strategy.reduce(ReduceOp::kSum, ids)[0].item<double>());
  say("mean_of_ids", strategy.reduce(ReduceOp::kMean, ids, 0).item<double>());
  const auto ragged = strategy.run(
      [](ReplicaContext& replica) { return at::full({replica.id() + 1}, replica.id(), at::kFloat); });
  // Replica r gives r + 1 times r: the mean is over all numbers, not of means.
  say("ragged_mean", strategy.reduce(ReduceOp::kMean, ragged, 0).item<double>());
  const at::Tensor joined = strategy.gather(ragged);
  say("gathered", fmt::format("{}", fmt::join(std::vector<float>(joined.data_ptr<float>(),
                                                                 joined.data_ptr<float>() + joined.numel()),
                                              ",")));
  const auto inside = strategy.run([](ReplicaContext& replica) {
    at::Tensor x = at::full({3}, replica.id() + 1.0, at::kDouble).requires_grad_();
    const at::Tensor sum = replica.all_reduce(ReduceOp::kSum, x * x);
    sum.sum().backward();
    return at::stack({sum[0].detach(), x.grad()[0]});
  });
  say("squares", strategy.reduce(ReduceOp::kMean, inside)[0].item<double>());
  say("gradient_of_first", inside[0][1].item<double>());

  const auto merged = strategy.run([](ReplicaContext& replica) {
    at::Tensor mine = at::full({replica.id() + 1}, replica.id(), at::kDouble).requires_grad_();
    const at::Tensor all = replica.all_gather(mine);
    (all * (replica.id() + 1)).sum().backward();
    const double sum = replica.merge_call(
        [](const Strategy& inside, const PerReplica<double>& values) {
          return inside.reduce(ReduceOp::kSum, values);
        },
        1.0 + replica.id());
    return at::stack({all.sum().detach(), at::scalar_tensor(all.numel(), at::kDouble), mine.grad()[0],
                      at::scalar_tensor(sum, at::kDouble)});
  });
  const at::Tensor of_all = strategy.reduce(ReduceOp::kMean, merged);
  say("merged", fmt::format("{} {} {} {}", of_all[0].item<double>(), of_all[1].item<double>(),
                            of_all[2].item<double>(), of_all[3].item<double>()));
  const auto made = strategy.distribute_values_from_function(
      [](const ValueContext& context) { return static_cast<double>(context.replica_id_in_sync_group); });
  say("values_made", strategy.reduce(ReduceOp::kSum, made));

  const Metric metric = strategy.scope([] { return metrics::mean("m"); });
  strategy.run([&](ReplicaContext& replica) { metric.update_mean(replica, replica.id(), replica.id()); });
  say("metric", metric.result());
  metric.reset();
  say("metric_reset", metric.result());

  // Asking to stop on one task stops all, after the same step.
  class StopLater : public Callback {
   public:
    explicit StopLater(bool stops) : stops_(stops) {}
    void on_train_batch_end(const TrainStep& step, const Logs&) override {
      if (stops_ && step.step == 2) model().stop_training();
    }

   private:
    bool stops_;
  };
  Model trained = model;
  trained.compile({.optimizer = optimizers::SGD(), .loss = losses::mean_squared_error()});
  torch::manual_seed(2);
  const auto data = Dataset::from_tensors(torch::randn({80, 3}), torch::randn({80, 2}));
  say("stopped_after",
      static_cast<double>(trained
                              .fit(data.batch(8), {.callbacks = {std::make_shared<StopLater>(rank == 1)},
                                                   .verbose = Verbose::kSilent})
                              .steps));
}

// Exact evaluation and prediction, with an uneven last batch and fewer rows than replicas.
void evaluation(const Flags& flags) {
  const auto strategy = join(flags);
  torch::manual_seed(4);
  const at::Tensor x = torch::randn({13, 5});
  const at::Tensor y = torch::randint(3, {13});
  const auto data = Dataset::from_tensors(x, y);
  const auto make = [&](const Strategy& where) {
    return where.scope([] {
      Model m(
          [] {
            return torch::nn::Sequential(torch::nn::Linear(5, 4), torch::nn::BatchNorm1d(4),
                                         torch::nn::Linear(4, 3));
          },
          {.seed = 9});
      m.compile({.optimizer = optimizers::SGD(),
                 .loss = losses::sparse_categorical_crossentropy(),
                 .metrics = {metrics::accuracy()}});
      return m;
    });
  };
  Model model = make(strategy);
  const Logs logs = model.evaluate(data.batch(4));
  say("same_loss", logs.at("loss"));
  say("same_accuracy", logs.at("accuracy"));
  const at::Tensor predicted = model.predict(data.batch(4));
  const at::Tensor few = model.predict(data.take(1).batch(4));
  Model alone = make(mirrored(1));
  const Logs expected = alone.evaluate(data.batch(4));
  say("loss_off", std::abs(logs.at("loss") - expected.at("loss")));
  say("accuracy_off", std::abs(logs.at("accuracy") - expected.at("accuracy")));
  say("predict_off", (predicted - alone.predict(data.batch(4))).abs().max().item<double>());
  say("predict_rows", static_cast<double>(predicted.size(0)));
  say("few_rows", static_cast<double>(few.size(0)));
}

// Which x each replica of this task got in each step: "0,1|2;4,5|" and so on.
std::string seen(DistributedDataset batches) {
  std::string text;
  std::int64_t rows = 0;
  while (const auto batch = batches.next_as_optional()) {
    if (!text.empty()) text += ";";
    for (std::size_t replica = 0; replica < batch->size(); ++replica) {
      const at::Tensor x = (*batch)[replica].x.tensor().to(at::kLong).contiguous();
      if (x.dim() != 1) throw FailedPrecondition("a batch without rows has another shape");
      text += replica > 0 ? "|" : "";
      text += fmt::format("{}",
                          fmt::join(x.data_ptr<std::int64_t>(), x.data_ptr<std::int64_t>() + x.numel(), ","));
    }
    rows += batch->global_rows();
  }
  return fmt::format("{} rows={}", text, rows);
}

Dataset numbers(std::int64_t from, std::int64_t to) {
  return Dataset::from_tensors(at::arange(from, to, at::kFloat), at::arange(from, to, at::kFloat));
}

// Files "0" to "n" of which file f holds `lengths[f]` numbers, from 100 f on.
Dataset files(const std::vector<std::int64_t>& lengths) {
  std::vector<std::string> names;
  for (std::size_t f = 0; f < lengths.size(); ++f) names.push_back(std::to_string(f));
  return Dataset::from_files(names, [lengths](const std::string& name) {
    const auto f = std::stoll(name);
    return numbers(100 * f, 100 * f + lengths[static_cast<std::size_t>(f)]);
  });
}

void input(const Flags& flags) {
  const auto strategy = join(flags);
  say("data", seen(strategy.distribute(numbers(0, 13).batch(4))));
  say("file", seen(strategy.distribute(files({7, 3}).batch(4))));
  // The second task has nothing at all.
  say("empty", seen(strategy.distribute(files({5, 0}).batch(4))));
  say("off", seen(strategy.distribute(numbers(0, 3).batch(4).with_auto_shard(AutoShardPolicy::kOff))));
  say("hint",
      seen(strategy.distribute(numbers(0, 8).shard_hint().batch(4).with_auto_shard(AutoShardPolicy::kHint))));
  say("function", seen(strategy.distribute_from_function([](const InputContext& context) {
        return numbers(0, 10)
            .shard(context.num_input_pipelines, context.input_pipeline_id)
            .batch(context.get_per_replica_batch_size(4));
      })));
  auto batches = strategy.distribute(files({7, 3}).batch(4));
  batches.next();
  const DatasetPosition position = batches.position();
  const auto after = seen(std::move(batches));
  auto again = strategy.distribute(files({7, 3}).batch(4));
  again.seek(position);
  say("resumed", seen(std::move(again)) == after ? 1 : 0);

  // Training to an uneven end equals one replica on the same steps: here only that it is finite and alike.
  Model model = strategy.scope([] {
    Model m([] { return torch::nn::Linear(1, 1); }, {.seed = 1});
    m.compile({.optimizer = optimizers::SGD({.learning_rate = 1e-6}),
               .loss = losses::mean_squared_error(),
               .metrics = {metrics::mean_absolute_error("mae")}});
    return m;
  });
  const auto column = [](Batch batch) {
    return batch.transform([](const at::Tensor& t) { return t.unsqueeze(-1); });
  };
  const auto trail = std::make_shared<ParameterTrail>();
  const History history = model.fit(files({9, 2, 1, 0}).batch(4).map(column),
                                    {.epochs = 2, .callbacks = {trail}, .verbose = Verbose::kSilent});
  say("same_trail", trail->hex());
  say("steps", static_cast<double>(history.steps));
  say("finite", std::isfinite(history.history.at("loss").back()) ? 1 : 0);
  say("evaluated", model.evaluate(files({9, 2, 1, 0}).batch(4).map(column)).at("mae"));
  say("predicted", static_cast<double>(model.predict(files({9, 2, 1, 0}).batch(4).map(column)).size(0)));
}

// What each policy makes of record files that all tasks see.
void record_files(const Flags& flags) {
  const auto strategy = join(flags);
  const data::ExampleSpec spec{{"x", {.type = data::FeatureType::kInt64, .shape = {{}}}}};
  const Dataset records = data::tfrecord_examples(data::tfrecord_shards(flags.folder + "/numbers"), spec);
  say("auto", seen(strategy.distribute(records.batch(4))));
  const auto under = [&](AutoShardPolicy policy) { return records.batch(4).with_auto_shard(policy); };
  say("file", seen(strategy.distribute(under(AutoShardPolicy::kFile))));
  say("data", seen(strategy.distribute(under(AutoShardPolicy::kData))));
  say("off", seen(strategy.distribute(under(AutoShardPolicy::kOff))));
  say("hint",
      seen(strategy.distribute(records.shard_hint().batch(4).with_auto_shard(AutoShardPolicy::kHint))));
}

void sync_batch_norm(const Flags& flags) {
  const auto strategy = join(flags);
  torch::manual_seed(8);
  const auto data = Dataset::from_tensors(torch::randn({37, 6}, torch::kDouble), torch::randint(3, {37}));
  const auto train = [&](const Strategy& where) {
    Model model = where.scope([] {
      Model m(
          [] {
            torch::nn::Sequential net(torch::nn::Linear(6, 8), SyncBatchNorm(8), torch::nn::Tanh(),
                                      torch::nn::Linear(8, 3));
            net->to(torch::kDouble);
            return net;
          },
          {.seed = 2});
      m.compile({.optimizer = optimizers::SGD({.learning_rate = 0.1}),
                 .loss = losses::sparse_categorical_crossentropy()});
      return m;
    });
    model.fit(data.batch(8), {.epochs = 2, .verbose = Verbose::kSilent});
    return model.values();
  };
  const Values values = train(strategy);
  say("to_one", largest_distance(values, train(mirrored(1))));
}

// Each task has a folder of its own: the chief's has the files, and all load what it reads.
void saving(const Flags& flags) {
  const auto strategy = join(flags);
  const testing_support::TempFolder folder;
  Model model = train_mixed(strategy, adam()).model;
  const std::string digest = model.parameter_digest();
  model.save_weights(folder.file("weights"));
  model.save_torchscript(folder.file("model.pt"), torch::randn({2, 20}));
  say("files", static_cast<double>(std::distance(std::filesystem::directory_iterator(folder.path()), {})));
  const Values trained = model.values();
  Values zeros = trained;
  for (auto& [name, value] : zeros) value = torch::zeros_like(value);
  model.set_values(zeros);
  model.load_weights(folder.file("weights"));
  say("loaded", model.parameter_digest() == digest ? 1 : 0);

  // An error is everybody's, and the tasks go on together after it.
  try {
    model.load_weights(folder.file("nothing"));
  } catch (const Error& error) {
    say("error", error.what());
  }
  say("same_digest", model.parameter_digest());
}

void different_models(const Flags& flags) {
  const auto strategy = join(flags);
  const int rank = rank_of(strategy);
  strategy.scope([&] { return Model([&] { return torch::nn::Linear(3, 2 + rank); }); });
}

Model small_model(const Strategy& strategy) {
  return strategy.scope([] {
    Model m([] { return torch::nn::Linear(3, 2); }, {.seed = 1});
    m.compile({.optimizer = optimizers::SGD(), .loss = losses::mean_squared_error()});
    return m;
  });
}

Dataset endless() {
  return Dataset::from_tensors(torch::zeros({8, 3}), torch::zeros({8, 2})).batch(8).repeat();
}

// The second task throws in a callback, on a replica or while reading; the others learn why.
void one_throws(const Flags& flags, const std::string& where) {
  const auto strategy = join(flags);
  const bool throws = rank_of(strategy) == 1;
  class Throws : public Callback {
   public:
    void on_train_batch_end(const TrainStep& step, const Logs&) override {
      if (step.global_step == 7) throw InvalidArgument("the callback is not amused");
    }
  };
  FitOptions options{.max_steps = 1000, .verbose = Verbose::kSilent};
  if (throws && where == "callback") options.callbacks = {std::make_shared<Throws>()};
  Model model = small_model(strategy);
  Dataset data = endless();
  if (throws && where == "nan") {
    data = data.map([n = 0](Batch batch) mutable {
      if (++n == 7) batch.y = torch::full({8, 2}, std::nan(""));
      return batch;
    });
  }
  if (throws && where == "reader") {
    data = data.map([n = 0](Batch batch) mutable {
      if (++n == 7) throw DataLoss("the file is damaged");
      return batch;
    });
  }
  model.fit(data, options);
}

// Trains until the test ends it.
void until_killed(const Flags& flags) {
  const auto strategy = join(flags);
  Model model = small_model(strategy);
  class Ready : public Callback {
   public:
    void on_train_batch_end(const TrainStep& step, const Logs&) override {
      if (step.global_step == 20) say("step", 20);
    }
  };
  model.fit(
      endless(),
      {.max_steps = 100'000'000, .callbacks = {std::make_shared<Ready>()}, .verbose = Verbose::kSilent});
}

// The second task falls asleep; with a timeout the others do not wait for ever.
void one_stalls(const Flags& flags) {
  const auto strategy = join(flags);
  Model model = small_model(strategy);
  class Sleeps : public Callback {
   public:
    explicit Sleeps(bool sleeps) : sleeps_(sleeps) {}
    void on_train_batch_end(const TrainStep& step, const Logs&) override {
      if (sleeps_ && step.global_step == 5) std::this_thread::sleep_for(std::chrono::seconds(3));
    }

   private:
    bool sleeps_;
  };
  model.fit(endless(), {.max_steps = 1000,
                        .callbacks = {std::make_shared<Sleeps>(rank_of(strategy) == 1)},
                        .verbose = Verbose::kSilent});
}

const std::map<std::string, std::function<void(const Flags&)>> kScenarios = {
    {"equivalence", equivalence},
    {"wire_format", wire_format},
    {"half_precision", half_precision},
    {"loss_scale", loss_scale},
    {"other_optimizer", other_optimizer},
    {"values", values},
    {"evaluation", evaluation},
    {"input", input},
    {"record_files", record_files},
    {"sync_batch_norm", sync_batch_norm},
    {"saving", saving},
    {"different_models", different_models},
    {"throws_in_callback", [](const Flags& flags) { one_throws(flags, "callback"); }},
    {"throws_on_nan", [](const Flags& flags) { one_throws(flags, "nan"); }},
    {"throws_in_reader", [](const Flags& flags) { one_throws(flags, "reader"); }},
    {"until_killed", until_killed},
    {"one_stalls", one_stalls},
};

}  // namespace
}  // namespace tandem

int main(int argc, char** argv) {
  CLI::App app("A task of multi_worker_test", "multi_worker_task");
  tandem::Flags flags;
  app.add_option("scenario", flags.scenario)->required();
  flags.add_cluster_flags(app);
  flags.add_security_flags(app);
  flags.add_server_flags(app);
  app.add_option("--replicas", flags.replicas);
  app.add_option("--threads", flags.threads);
  app.add_option("--bytes_per_pack", flags.bytes_per_pack);
  app.add_flag("--bfloat16", flags.bfloat16);
  app.add_option("--timeout", flags.timeout);
  app.add_option("--program", flags.program);
  app.add_option("--folder", flags.folder);
  return tandem::internal::run_program(app, argc, argv, [&] {
    tandem::kScenarios.at(flags.scenario)(flags);
    return 0;
  });
}
