// One task of the clusters that parameter_server_test starts:
//
//   parameter_server_task SCENARIO --cluster_file FILE --task_type ps --task_index 0 [flags]
//
// Prints what it found as lines "name value".
#include <fmt/format.h>
#include <torch/torch.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <functional>
#include <map>

#include "cli/cluster_flags.h"
#include "cli/program.h"
#include "support/peak_memory.h"
#include "support/training.h"
#include "tandem/tandem.h"

namespace tandem {
namespace {

using testing_support::distance;
using testing_support::mirrored;

struct Flags : internal::ClusterProgramFlags {
  std::string scenario = {};
  int replicas = 1;
  std::optional<int> staleness = {};
  std::optional<int> aggregate = {};
  std::int64_t min_shard_bytes = 0;
  bool bfloat16 = false;
  std::string folder = {};
  std::string out = {};  // without snapshots of the ps tasks
  std::int64_t steps = 0;
  int pause_ms = 0;
  int width = 8;
  double outage = 60;
  std::int64_t rows = 60;
  std::int64_t columns = 8;
};

void say(const std::string& name, const std::string& value) {
  fmt::print("{} {}\n", name, value);
  std::fflush(stdout);
}
void say(const std::string& name, double value) {
  say(name, fmt::format("{:.17g}", value));
}

ParameterServerOptions options_of(const Flags& flags) {
  ParameterServerOptions options{.cluster = resolve_cluster(flags.cluster), .threads_per_replica = 1};
  for (int i = 0; i < flags.replicas; ++i) options.devices.push_back(fmt::format("/cpu:{}", i));
  if (flags.min_shard_bytes > 0) {
    options.variable_partitioner =
        MinSizePartitioner(flags.min_shard_bytes, options.cluster->cluster.num_tasks("ps"));
  }
  if (flags.bfloat16) options.wire_format = WireFormat::kBfloat16;
  options.service.max_staleness = flags.staleness;
  options.service.aggregate = flags.aggregate;
  if (!flags.folder.empty()) options.service.snapshot_dir = flags.folder + "/ps";
  options.service.snapshot_interval = std::chrono::milliseconds(200);
  options.ps_outage = std::chrono::milliseconds(static_cast<int>(flags.outage * 1000));
  options.server = flags.server_options();
  options.seed = 3;
  return options;
}

// With one thread, as the workers: two of them lose much where cores are shared with others.
OneDeviceStrategy one_device() {
  return OneDeviceStrategy("/cpu:0", {.threads_per_replica = 1});
}

constexpr int kSteps = 8;
constexpr int kBatch = 16;
constexpr int kLastBatch = 5;

Dataset pictures() {
  torch::manual_seed(11);
  const int rows = (kSteps - 1) * kBatch + kLastBatch;
  return Dataset::from_tensors(torch::randn({rows, 1, 28, 28}), torch::randint(10, {rows}));
}

// Batch norm, dropout, channels-last convolutions, and a parameter that backward never reaches.
struct MixedNetImpl : torch::nn::Module {
  MixedNetImpl()
      : conv(register_module("conv", torch::nn::Conv2d(torch::nn::Conv2dOptions(1, 6, 5).stride(3)))),
        norm(register_module("norm", torch::nn::BatchNorm2d(6))),
        dense(register_module("dense", torch::nn::Linear(6 * 8 * 8, 10))),
        never(register_parameter("never", torch::ones({3}))) {
    to(torch::MemoryFormat::ChannelsLast);
  }
  at::Tensor forward(const at::Tensor& x) {
    const at::Tensor h = torch::relu(norm(conv(x)));
    return dense(torch::dropout(h.flatten(1), 0.25, is_training()));
  }
  void to(torch::MemoryFormat format) {
    const torch::NoGradGuard no_grad;
    conv->weight.set_data(conv->weight.contiguous(format));
  }
  torch::nn::Conv2d conv;
  torch::nn::BatchNorm2d norm;
  torch::nn::Linear dense;
  at::Tensor never;
};
TORCH_MODULE(MixedNet);

Optimizer optimizer_named(const std::string& name) {
  if (name == "adam") return optimizers::Adam({.learning_rate = 0.01});
  return optimizers::SGD({.learning_rate = 0.01,
                          .momentum = 0.9,
                          .weight_decay = 1e-4,
                          .decay_filter = optimizers::kernels_only});
}

template <typename Net>
Model train(const Strategy& strategy, const std::string& optimizer, FitOptions options = {},
            const Policy& policy = {}) {
  Model model = strategy.scope([&] {
    Model m([] { return Net(); }, {.seed = 3, .policy = policy});
    m.compile({.optimizer = optimizer_named(optimizer),
               .loss = losses::sparse_categorical_crossentropy(),
               .metrics = {metrics::accuracy()}});
    return m;
  });
  options.verbose = Verbose::kSilent;
  const History history = model.fit(pictures().shuffle(1000).batch(kBatch), options);
  say("steps", static_cast<double>(model.global_step()));
  if (!history.history.empty()) say("loss", history.history.at("loss").back());
  return model;
}

double largest_distance(const Model& a, const Model& b) {
  double largest = 0;
  const auto values = b.values();
  for (const auto& [name, value] : a.values()) largest = std::max(largest, distance(value, values.at(name)));
  return largest;
}

// One worker: the very bits of OneDevice.
void one_worker(const Flags& flags) {
  const ParameterServerStrategy strategy(options_of(flags));
  say("lenet", train<models::LeNet>(strategy, "sgd").parameter_digest());
  say("lenet_alone", train<models::LeNet>(one_device(), "sgd").parameter_digest());
}
void one_worker_mixed(const Flags& flags) {
  const ParameterServerStrategy strategy(options_of(flags));
  const Model remote = train<MixedNet>(strategy, "adam");
  const Model local = train<MixedNet>(one_device(), "adam");
  say("mixed", remote.parameter_digest());
  say("mixed_alone", local.parameter_digest());
}

// In step: as Mirrored with as many replicas.
void in_step(const Flags& flags) {
  const ParameterServerStrategy strategy(options_of(flags));
  say("replicas", strategy.num_replicas_in_sync());
  const Model remote = train<models::LeNet>(strategy, "sgd");
  if (!strategy.is_chief()) return;
  const Model local = train<models::LeNet>(mirrored(strategy.num_replicas_in_sync()), "sgd");
  say("to_mirrored", largest_distance(remote, local));
}

// Computed in bfloat16, kept in float32, here and on the ps.
void half_precision(const Flags& flags) {
  const ParameterServerStrategy strategy(options_of(flags));
  const Model remote = train<models::LeNet>(strategy, "sgd", {}, "mixed_bfloat16");
  if (!strategy.is_chief()) return;
  const auto values = remote.values();
  const bool all_float32 =
      std::ranges::all_of(values, [](const auto& item) { return item.second.scalar_type() == at::kFloat; });
  say("all_float32", all_float32 ? 1 : 0);
  const MirroredStrategy here = mirrored(strategy.num_replicas_in_sync());
  const Model local = train<models::LeNet>(here, "sgd", {}, "mixed_bfloat16");
  say("digest", remote.parameter_digest());
  say("mirrored_digest", local.parameter_digest());
  say("to_mirrored", largest_distance(remote, local));
  say("to_float32", largest_distance(remote, train<models::LeNet>(here, "sgd")));
  try {
    strategy.scope([] {
      Model m([] { return torch::nn::Linear(1, 1); });
      m.compile({.optimizer = optimizers::LossScaleOptimizer(optimizers::SGD()),
                 .loss = losses::mean_squared_error()});
      return m;
    });
  } catch (const InvalidArgument& error) {
    say("refused", error.what());
  }
}

struct SmallCnnImpl : torch::nn::Module {
  SmallCnnImpl()
      : conv(register_module("conv", torch::nn::Conv2d(torch::nn::Conv2dOptions(3, 16, 5).stride(2)))),
        dense(register_module("dense", torch::nn::Linear(16 * 7 * 7, 10))) {}
  at::Tensor forward(const at::Tensor& x) {
    return dense(torch::max_pool2d(torch::relu(conv(x)), 2).flatten(1));
  }
  torch::nn::Conv2d conv;
  torch::nn::Linear dense;
};
TORCH_MODULE(SmallCnn);

double accuracy_on_generated_cifar(const Strategy& strategy, std::int64_t steps) {
  Model model = strategy.scope([&] {
    Model m([] { return SmallCnn(); }, {.seed = 3});
    m.compile({.optimizer = optimizers::SGD({.learning_rate = 0.02}),
               .loss = losses::sparse_categorical_crossentropy(),
               .metrics = {metrics::accuracy()}});
    return m;
  });
  const auto data = data::synthetic_cifar10(data::Split::kTrain, 6400).shuffle(6400).map(data::prepare_cifar);
  model.fit(data.batch(32), {.epochs = 1000, .max_steps = steps, .verbose = Verbose::kSilent});
  say("steps", static_cast<double>(model.global_step()));
  if (!strategy.is_chief()) return 0;
  const auto test = data::synthetic_cifar10(data::Split::kTest, 1000).map(data::prepare_cifar);
  return model.evaluate(test.batch(100)).at("accuracy");
}

void learns(const Flags& flags) {
  const ParameterServerStrategy strategy(options_of(flags));
  const double accuracy = accuracy_on_generated_cifar(strategy, flags.steps);
  if (!strategy.is_chief()) return;
  say("accuracy", accuracy);
  say("accuracy_alone", accuracy_on_generated_cifar(one_device(), flags.steps));
}

// Every push adds 1 to every element of every shard: what they hold in the end is how many were applied.
struct CounterImpl : torch::nn::Module {
  explicit CounterImpl(int width) {
    for (int i = 0; i < 5; ++i) {
      weights.push_back(register_parameter(fmt::format("w{}", i), torch::zeros({width, 3})));
    }
  }
  at::Tensor forward(const at::Tensor& x) {
    at::Tensor sum = x.sum() * 0;
    for (const at::Tensor& w : weights) sum = sum + w.sum();
    return sum;
  }
  std::vector<at::Tensor> weights;
};
TORCH_MODULE(Counter);

void say_counts(const Model& model) {
  double least = 1e300;
  double most = 0;
  for (const auto& [name, value] : model.values()) {
    least = std::min(least, value.min().item<double>());
    most = std::max(most, value.max().item<double>());
  }
  say("least", least);
  say("most", most);
}

// A custom loop, under the strategy as it is.
void counts(const Flags& flags) {
  const ParameterServerStrategy strategy(options_of(flags));
  auto optimizer = strategy.scope([] { return optimizers::SGD({.learning_rate = 1}); });
  Model model = strategy.scope([&] { return Model([&] { return Counter(flags.width); }, {.seed = 3}); });
  std::int64_t pushed = 0;
  for (std::int64_t step = 0; step < flags.steps; ++step) {
    strategy.run([&](ReplicaContext& replica) {
      optimizer.minimize(replica, -model.on(replica)(torch::ones({1})), model);
    });
    ++pushed;
    say("pushed", static_cast<double>(pushed));
    if (flags.pause_ms > 0) std::this_thread::sleep_for(std::chrono::milliseconds(flags.pause_ms));
  }
  say_counts(model);
}

// The same in a session, whose checkpoints are all that is saved.
void monitors(const Flags& flags) {
  const ParameterServerStrategy strategy(options_of(flags));
  Model model = strategy.scope([&] {
    Model m([&] { return Counter(flags.width); }, {.seed = 3});
    m.compile(
        {.optimizer = optimizers::SGD({.learning_rate = 1}),
         .loss = {"minus", [](const at::Tensor&, const at::Tensor& sum) { return -sum.reshape({1}); }}});
    return m;
  });
  auto batches =
      strategy.distribute(Dataset::from_tensors(at::ones({8, 1}), at::ones({8})).batch(1).repeat());
  MonitoredTrainingSession session(model, {.checkpoint_dir = flags.out,
                                           .hooks = {StopAtStepHook({.last_step = flags.steps})},
                                           .save_checkpoint_steps = 20});
  while (!session.should_stop()) {
    session.run([&] {
      const double loss = model.train_step(batches.next());
      say("pushed", static_cast<double>(model.global_step()));
      std::this_thread::sleep_for(std::chrono::milliseconds(flags.pause_ms));
      return loss;
    });
  }
  session.close();
  say("steps", static_cast<double>(model.global_step()));
  say_counts(model);
}

// The chief schedules, the workers push; one of them may be killed meanwhile.
void coordinates(const Flags& flags) {
  const ParameterServerStrategy strategy(options_of(flags));
  auto optimizer = strategy.scope([] { return optimizers::SGD({.learning_rate = 1}); });
  Model model = strategy.scope([&] { return Model([&] { return Counter(flags.width); }, {.seed = 3}); });
  ClusterCoordinator coordinator(strategy);
  coordinator.add_function("add", [&](ClosureContext& context, const Values& arguments) {
    strategy.run([&](ReplicaContext& replica) {
      optimizer.minimize(replica, -model.on(replica)(torch::ones({1})), model);
    });
    const DistributedBatch batch = context.next("numbers");
    std::this_thread::sleep_for(std::chrono::milliseconds(flags.pause_ms));
    return Values{arguments[0] * 2, batch[0].x.tensor()};
  });
  coordinator.add_function("fail", [&](ClosureContext& context, const Values&) -> Values {
    throw InvalidArgument(fmt::format("no such thing on worker {}", context.worker()));
  });
  coordinator.create_per_worker_dataset("numbers", [](const InputContext& context) {
    return Dataset::from_tensors(at::full({10, 1}, context.input_pipeline_id)).batch(1).repeat();
  });
  if (!coordinator.is_coordinator()) return coordinator.serve();
  std::vector<RemoteValue> values;
  for (std::int64_t i = 0; i < flags.steps; ++i)
    values.push_back(coordinator.schedule("add", {at::scalar_tensor(i)}));
  say("scheduled", static_cast<double>(flags.steps));
  coordinator.join();
  std::int64_t right = 0;
  for (std::int64_t i = 0; i < flags.steps; ++i) {
    right += values[static_cast<std::size_t>(i)].fetch()[0].item<std::int64_t>() == 2 * i;
  }
  say("right", static_cast<double>(right));
  for (const auto& [name, value] : model.values()) {
    say("least_" + name, value.min().item<double>());
    say("most_" + name, value.max().item<double>());
  }
  coordinator.schedule("fail");
  try {
    coordinator.join();
  } catch (const InvalidArgument& error) {
    say("error", error.what());
  }
}

// What is saved under parameter servers goes on elsewhere, and the reverse.
void saves(const Flags& flags) {
  const ParameterServerStrategy strategy(options_of(flags));
  const auto backup = [&] {
    return BackupAndRestore(
        {.backup_dir = flags.folder + "/checkpoints", .save_freq = 2, .delete_checkpoint = false});
  };
  Model model =
      train<MixedNet>(strategy, "adam", {.epochs = 2, .max_steps = flags.steps, .callbacks = {backup()}});
  if (!strategy.is_chief()) return;
  say("saved", model.parameter_digest());
  model.save(flags.folder + "/model.safetensors");
  const Strategy others[] = {mirrored(2), one_device()};
  for (const Strategy& other : others) {
    Model loaded = other.scope([&] {
      Model m([] { return MixedNet(); }, {.seed = 4});
      m.compile({.optimizer = optimizer_named("adam"),
                 .loss = losses::sparse_categorical_crossentropy(),
                 .metrics = {metrics::accuracy()}});
      return m;
    });
    loaded.load(flags.folder + "/model.safetensors");
    say(other.name() + "_loaded", loaded.parameter_digest());
    say(other.name() + "_step", static_cast<double>(loaded.global_step()));
    loaded.save(flags.folder + "/again.safetensors");
    model.load(flags.folder + "/again.safetensors");  // back to the ps tasks
    say(other.name() + "_back", model.parameter_digest());
  }
}

// Two lookups in one table, so that one step's gradient of a row is the sum of several.
struct BagNetImpl : torch::nn::Module {
  explicit BagNetImpl(const Flags& flags)
      : table(register_module("table", Embedding(flags.rows, flags.columns))),
        dense(register_module("dense", torch::nn::Linear(2 * flags.columns, 1))) {}
  at::Tensor forward(const at::Tensor& ids) {
    const at::Tensor first = table(ids.select(1, 0));
    const at::Tensor others = table(ids.slice(1, 1)).mean(1);
    return dense(at::cat({first, others}, 1));
  }
  Embedding table;
  torch::nn::Linear dense;
};
TORCH_MODULE(BagNet);

// Ids, and what is to be said of them: every row has a weight that the model can find.
Batch bags(const Flags& flags, std::int64_t examples) {
  const auto generator = at::detail::createCPUGenerator(21);
  const at::Tensor ids = at::randint(0, flags.rows, {examples, 4}, generator, at::kLong);
  const at::Tensor weights = (at::arange(flags.rows) * 2.399963).sin();
  const at::Tensor y = weights.index_select(0, ids.flatten()).view(ids.sizes());
  return {.x = ids, .y = y.select(1, 0).unsqueeze(1) + y.slice(1, 1).mean(1, /*keepdim=*/true)};
}

at::Tensor all_rows(const Strategy& strategy, const Model& model, const Flags& flags) {
  at::Tensor rows;
  strategy.run([&](ReplicaContext& replica) {
    const torch::NoGradGuard no_grad;
    if (replica.local_id() > 0) return;
    rows = model.on(replica).module().as<BagNetImpl>()->table(at::arange(flags.rows));
  });
  return rows;
}

// A custom loop of plain SGD, where gradients by row and dense ones are the same. It begins with these
// values, where it can be given any, and returns the rows at the end.
std::pair<at::Tensor, Model> train_bags(const Strategy& strategy, const Flags& flags,
                                        std::map<std::string, at::Tensor>& first) {
  auto optimizer = strategy.scope([] { return optimizers::SGD({.learning_rate = 0.5}); });
  Model model = strategy.scope([&] { return Model([&] { return BagNet(flags); }, {.seed = 3}); });
  if (first.empty()) {
    first["table.weight"] = all_rows(strategy, model, flags);
    first.merge(model.values());
  } else {
    model.set_values(first);
  }
  const Batch data = bags(flags, 16 * flags.steps);
  for (std::int64_t step = 0; step < flags.steps; ++step) {
    strategy.run([&](ReplicaContext& replica) {
      const std::int64_t each = 16 / replica.num_replicas_in_sync();
      const std::int64_t begin = 16 * step + each * replica.id();
      const at::Tensor error = model.on(replica)(data.x.tensor().slice(0, begin, begin + each)) -
                               data.y.tensor().slice(0, begin, begin + each);
      optimizer.minimize(replica, error.square().sum() / 16, model);
    });
  }
  return {all_rows(strategy, model, flags), model};
}

// The same program with the table here and there.
void looks_up(const Flags& flags) {
  const ParameterServerStrategy strategy(options_of(flags));
  std::map<std::string, at::Tensor> first;
  const auto [remote_rows, remote] = train_bags(strategy, flags, first);
  const auto [rows, local] = train_bags(one_device(), flags, first);
  say("parameters", static_cast<double>(remote.num_parameters() - local.num_parameters()));
  say("parameters_here", static_cast<double>(remote.values().size()));
  say("stddev", first.at("table.weight").std().item<double>());
  say("moved", distance(remote_rows, first.at("table.weight")));
  say("rows", distance(remote_rows, rows));
  say("dense", distance(remote.values().at("dense.weight"), local.values().at("dense.weight")));
  std::string digest;
  for (int i = 0; i < 3; ++i) digest += fmt::format("{:.9g} ", first.at("table.weight")[i][0].item<double>());
  say("first_values", digest);
  try {
    strategy.run([&](ReplicaContext& replica) { remote.on(replica)(at::full({1, 4}, flags.rows)); });
  } catch (const InvalidArgument& error) {
    say("refused", error.what());
  }
}

// fit, evaluate, and all that reads a model as a whole.
void learns_bags(const Flags& flags) {
  const ParameterServerStrategy strategy(options_of(flags));
  Model model = strategy.scope([&] {
    Model m([&] { return BagNet(flags); }, {.seed = 3});
    m.compile({.optimizer = optimizers::Adam({.learning_rate = 0.02}), .loss = losses::mean_squared_error()});
    return m;
  });
  const Batch all = bags(flags, 1024);
  const Dataset data = Dataset::from_tensors(all.x.tensor(), all.y);
  say("loss_before", model.evaluate(data.batch(128)).at("loss"));
  model.fit(data.shuffle(1024).batch(32),
            {.epochs = 1000,
             .max_steps = flags.steps,
             .callbacks = {BackupAndRestore(
                 {.backup_dir = flags.out + "/backup", .save_freq = 20, .delete_checkpoint = false})},
             .verbose = Verbose::kSilent});
  if (strategy.is_chief()) {
    say("loss", model.evaluate(data.batch(128)).at("loss"));
    model.save(flags.out + "/model.safetensors");
    say("saved_bytes", static_cast<double>(std::filesystem::file_size(flags.out + "/model.safetensors")));
  }
  say("peak", static_cast<double>(testing_support::peak_memory(getpid())));
}

void run(const Flags& flags) {
  static const std::map<std::string, void (*)(const Flags&)> scenarios{{"one_worker", one_worker},
                                                                       {"one_worker_mixed", one_worker_mixed},
                                                                       {"in_step", in_step},
                                                                       {"half_precision", half_precision},
                                                                       {"learns", learns},
                                                                       {"counts", counts},
                                                                       {"monitors", monitors},
                                                                       {"coordinates", coordinates},
                                                                       {"saves", saves},
                                                                       {"looks_up", looks_up},
                                                                       {"learns_bags", learns_bags}};
  if (ParameterServerStrategy::serve(options_of(flags))) return;
  scenarios.at(flags.scenario)(flags);
}

}  // namespace
}  // namespace tandem

int main(int argc, char** argv) {
  CLI::App app("A task of parameter_server_test", "parameter_server_task");
  tandem::Flags flags;
  app.add_option("scenario", flags.scenario)->required();
  app.add_option("--replicas", flags.replicas);
  app.add_option("--staleness", flags.staleness);
  app.add_option("--aggregate", flags.aggregate);
  app.add_option("--min_shard_bytes", flags.min_shard_bytes);
  app.add_flag("--bfloat16", flags.bfloat16);
  app.add_option("--folder", flags.folder);
  app.add_option("--out", flags.out);
  app.add_option("--steps", flags.steps);
  app.add_option("--pause_ms", flags.pause_ms);
  app.add_option("--width", flags.width);
  app.add_option("--outage", flags.outage);
  app.add_option("--rows", flags.rows);
  app.add_option("--columns", flags.columns);
  flags.add_cluster_flags(app);
  flags.add_server_flags(app);
  flags.add_security_flags(app);
  return tandem::internal::run_program(app, argc, argv, [&] {
    tandem::run(flags);
    return 0;
  });
}
