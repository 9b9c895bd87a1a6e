#include "tandem/estimator.h"

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <torch/script.h>

#include <filesystem>
#include <fstream>
#include <thread>

#include "base/ports.h"
#include "loops/support.h"
#include "support/errors.h"
#include "support/temp_folder.h"
#include "support/tensors.h"

namespace tandem {
namespace {

using testing_support::line_data;
using testing_support::message_of;
using testing_support::mirrored;
using testing_support::near;
using testing_support::TempFolder;

EstimatorSpec line_model_fn(const Tensors& features, const Tensors&, ModeKeys mode, const HParams& params,
                            const RunConfig&) {
  const std::int64_t width = features.tensor().size(1);
  EstimatorSpec spec{.module = [width] { return torch::nn::Linear(width, 1); },
                     .loss = losses::mean_squared_error(),
                     .eval_metric_ops = {metrics::mean_absolute_error()}};
  if (mode == ModeKeys::kTrain) {
    spec.optimizer = optimizers::SGD({.learning_rate = std::get<double>(params.at("learning_rate"))});
  }
  return spec;
}

const HParams kParams{{"learning_rate", 0.2}};

InputFn line_input(std::int64_t batch = 8) {
  return [batch] { return line_data(64).shuffle(64).batch(batch).repeat(); };
}
InputFn line_once() {
  return [] { return line_data(64).batch(8); };
}

template <typename T>
std::string shown(const T& value) {
  return fmt::format("{}", value);
}
template <typename T>
std::string shown(const std::optional<T>& value) {
  return value ? shown(*value) : "None";
}

// Every argument of tf.estimator.RunConfig with its default, beside what it is here. Two have no counterpart:
// session_config (devices and threads are options of the strategy) and checkpoint_save_graph_def (there is no
// graph).
TEST(RunConfigTest, HasTensorFlowsFieldsAndDefaults) {
  const RunConfig config = RunConfig{.cluster = ResolvedCluster{}}.resolved();
  const auto set = [](bool is_set) { return std::string(is_set ? "set" : "None"); };
  const struct {
    const char* field;
    const char* tensorflow;
    std::string here;
  } rows[]{
      {"model_dir", "None", config.model_dir.empty() ? "None" : config.model_dir},
      {"tf_random_seed", "None", shown(config.tf_random_seed)},
      {"save_summary_steps", "100", shown(config.save_summary_steps)},
      {"save_checkpoints_steps", "None", shown(config.save_checkpoints_steps)},
      {"save_checkpoints_secs", "600", shown(config.save_checkpoints_secs)},
      {"keep_checkpoint_max", "5", shown(config.keep_checkpoint_max)},
      {"keep_checkpoint_every_n_hours", "10000", shown(config.keep_checkpoint_every_n_hours)},
      {"log_step_count_steps", "100", shown(config.log_step_count_steps)},
      {"train_distribute", "None", set(config.train_distribute.has_value())},
      {"device_fn", "None", set(static_cast<bool>(config.device_fn))},
      {"protocol", "None", config.protocol.empty() ? "None" : config.protocol},
      {"eval_distribute", "None", set(config.eval_distribute.has_value())},
      {"experimental_distribute.remote_cluster", "None",
       set(config.experimental_distribute.remote_cluster.has_value())},
      // None means 60 there.
      {"experimental_max_worker_delay_secs", "60", shown(config.experimental_max_worker_delay_secs)},
      {"session_creation_timeout_secs", "7200", shown(config.session_creation_timeout_secs)},
  };
  fmt::print("{:40}{:12}{}\n", "RunConfig", "TensorFlow", "here");
  for (const auto& row : rows) {
    fmt::print("{:40}{:12}{}\n", row.field, row.tensorflow, row.here);
    EXPECT_EQ(row.here, row.tensorflow) << row.field;
  }
  EXPECT_EQ(config.task_type(), "worker");
  EXPECT_EQ(config.task_id(), 0);
  EXPECT_TRUE(config.is_chief());
  EXPECT_EQ(config.master(), "");
  EXPECT_EQ(config.num_ps_replicas(), 0);
  EXPECT_EQ(config.num_worker_replicas(), 1);
}

TEST(RunConfigTest, ReadsTheClusterAsTensorFlowDoes) {
  const auto config = [](const std::string& type, int index) {
    return RunConfig{
        .cluster = ResolvedCluster{
            .cluster = ClusterSpec({{"chief", {"a:1"}}, {"ps", {"b:1", "b:2"}}, {"worker", {"c:1", "c:2"}}}),
            .task = TaskId{type, index}}};
  };
  EXPECT_EQ(config("worker", 1).num_worker_replicas(), 3);
  EXPECT_EQ(config("worker", 1).num_ps_replicas(), 2);
  EXPECT_FALSE(config("worker", 0).is_chief());
  EXPECT_EQ(config("chief", 0).global_id_in_cluster(), 0);
  EXPECT_EQ(config("worker", 1).global_id_in_cluster(), 2);
  EXPECT_EQ(config("ps", 1).global_id_in_cluster(), 4);
  EXPECT_EQ(config("evaluator", 0).global_id_in_cluster(), std::nullopt);
}

TEST(RunConfigTest, SaysWhatItCannotMean) {
  const ResolvedCluster with_ps{.cluster = ClusterSpec({{"ps", {"a:1"}}, {"worker", {"b:1"}}}),
                                .task = TaskId{"worker", 0}};
  const auto refusal = [](RunConfig config) {
    if (!config.cluster) config.cluster = ResolvedCluster{};
    return message_of<InvalidArgument>([&] { static_cast<void>(config.resolved()); });
  };
  const auto device_fn = [](const VariableToPlace&) { return "/job:ps/task:0"; };
  EXPECT_EQ(
      refusal({.save_checkpoints_steps = 1, .save_checkpoints_secs = 1}),
      "RunConfig: both save_checkpoints_steps and save_checkpoints_secs are given: expected one of them");
  EXPECT_EQ(refusal({.protocol = "grpc+verbs"}),
            "RunConfig: protocol is \"grpc+verbs\": expected \"grpc\", the only one that is built");
  EXPECT_NO_THROW(static_cast<void>(RunConfig{.protocol = "grpc", .cluster = ResolvedCluster{}}.resolved()));
  EXPECT_EQ(
      refusal({.experimental_distribute = {.remote_cluster = with_ps.cluster}}),
      "RunConfig: experimental_distribute.remote_cluster is set: no program trains from outside a cluster "
      "here; run it on every task (tandem launch, TF_CONFIG), or hand out steps with a ClusterCoordinator");
  EXPECT_EQ(refusal({.train_distribute = mirrored(1), .device_fn = device_fn, .cluster = with_ps}),
            "RunConfig: device_fn and train_distribute are both set: a strategy places variables itself "
            "(ParameterServerOptions::ps_strategy); leave one of them out");
  EXPECT_EQ(
      refusal({.device_fn = device_fn}),
      "RunConfig: device_fn is set, and the cluster has no ps tasks that variables could be placed on: to "
      "compute on another device, give train_distribute a OneDeviceStrategy");
  EXPECT_NO_THROW(static_cast<void>(RunConfig{.device_fn = device_fn, .cluster = with_ps}.resolved()));
  EXPECT_EQ(refusal({.cluster = ResolvedCluster{.cluster = ClusterSpec({{"chief", {"a:1", "a:2"}}}),
                                                .task = TaskId{"chief", 0}}}),
            "cluster.chief has 2 tasks: expected one, as in {\"chief\": [\"10.0.0.1:2222\"]}");
}

TEST(EstimatorTest, TrainsEvaluatesPredictsAndExports) {
  const TempFolder folder;
  Estimator estimator(line_model_fn, {.model_dir = folder.path(),
                                      .config = {.tf_random_seed = 1, .train_distribute = mirrored(2)},
                                      .params = kParams});
  EXPECT_NE(message_of<NotFound>([&] { estimator.evaluate(line_once()); }).find("train() first"),
            std::string::npos);
  estimator.train(line_input(4), {.steps = 100});
  const Logs result = estimator.evaluate(line_once());
  EXPECT_LT(result.at("loss"), 1e-4);
  EXPECT_LT(result.at("mean_absolute_error"), 1e-2);
  EXPECT_EQ(result.at("global_step"), 100);
  EXPECT_TRUE(std::filesystem::exists(folder / "eval"));
  EXPECT_EQ(estimator.get_variable_names(), (std::vector<std::string>{"bias", "weight"}));
  EXPECT_NEAR(estimator.get_variable_value("weight").item<double>(), 3, 1e-2);
  EXPECT_NE(
      message_of<NotFound>([&] { estimator.get_variable_value("wieght"); }).find("did you mean \"weight\""),
      std::string::npos);

  const at::Tensor x = torch::linspace(-1, 1, 64).unsqueeze(1);
  EXPECT_TRUE(near(estimator.predict(line_once()).at("output"), 3 * x + 2, 2e-2));
  const std::string exported = estimator.export_model(folder.file("export"), x.slice(0, 0, 1));
  torch::jit::Module script = torch::jit::load(exported + "/model.pt");
  EXPECT_TRUE(near(script.forward({x}).toTensor(), 3 * x + 2, 2e-2));
}

TEST(EstimatorTest, StepsAddAndMaxStepsIsAbsolute) {
  const TempFolder folder;
  const auto step = [&](EstimatorTrainOptions options) {
    Estimator estimator(line_model_fn, {.model_dir = folder.path(), .params = kParams});
    estimator.train(line_input(), std::move(options));
    return estimator.evaluate(line_once(), {.steps = 1}).at("global_step");
  };
  EXPECT_EQ(step({.steps = 3}), 3);
  EXPECT_EQ(step({.steps = 3}), 6);
  EXPECT_EQ(step({.max_steps = 8}), 8);
  EXPECT_EQ(step({.max_steps = 8}), 8);
  EXPECT_EQ(step({.max_steps = 5}), 8);
  EXPECT_THROW(step({.steps = 1, .max_steps = 1}), InvalidArgument);
}

// Throws at a step.
class PowerCut final : public SessionRunHook {
 public:
  explicit PowerCut(std::int64_t step) : step_(step) {}
  void before_run(SessionRunContext& context) override {
    if (context.model().global_step() == step_) throw std::runtime_error("the power is out");
  }

 private:
  std::int64_t step_;
};

TEST(EstimatorTest, AnInterruptedTrainingGoesOnToTheSameEnd) {
  const auto train = [](const TempFolder& folder, std::vector<std::shared_ptr<SessionRunHook>> hooks) {
    Estimator estimator(line_model_fn, {.model_dir = folder.path(),
                                        .config = {.tf_random_seed = 7, .save_checkpoints_steps = 5},
                                        .params = kParams});
    estimator.train(line_input(), {.hooks = std::move(hooks), .max_steps = 23});
    return estimator.get_variable_value("weight");
  };
  const TempFolder whole, cut;
  const at::Tensor expected = train(whole, {});
  EXPECT_THROW(train(cut, {std::make_shared<PowerCut>(13)}), std::runtime_error);
  EXPECT_TRUE(torch::equal(train(cut, {}), expected));
}

TEST(EstimatorTest, TrainsUntilTheDataEndsAndAgainFromItsBeginning) {
  const TempFolder folder;
  Estimator estimator(line_model_fn, {.model_dir = folder.path(), .params = kParams});
  for (int run = 1; run <= 2; ++run) {
    estimator.train(line_once());
    EXPECT_EQ(estimator.evaluate(line_once()).at("global_step"), 8 * run);
  }
}

TEST(EstimatorTest, SaysWhatIsMissing) {
  const TempFolder folder;
  const auto train = [&](const std::function<void(EstimatorSpec&)>& spoil) {
    Estimator(
        [&](auto&&... arguments) {
          EstimatorSpec spec = line_model_fn(arguments...);
          spoil(spec);
          return spec;
        },
        {.model_dir = folder.path(), .params = kParams})
        .train(line_input(), {.steps = 1});
  };
  EXPECT_EQ(message_of<InvalidArgument>([&] { train([](EstimatorSpec& spec) { spec.loss = {}; }); }),
            "model_fn returned no loss: expected EstimatorSpec::loss, to train");
  EXPECT_EQ(message_of<InvalidArgument>([&] { train([](EstimatorSpec& spec) { spec.optimizer.reset(); }); }),
            "model_fn returned no optimizer: expected EstimatorSpec::optimizer, to train");
  train([](EstimatorSpec&) {});
  EXPECT_EQ(message_of<InvalidArgument>([&] {
              train([](EstimatorSpec& spec) {
                spec.module = [] { return torch::nn::Sequential(torch::nn::Linear(1, 1)); };
              });
            }),
            "checkpoint " + *latest_checkpoint(folder.path()) +
                " is of another model: it has no \"0.bias\"; use the folder of this model, or an empty one");
  EXPECT_THROW(Estimator(line_model_fn, {.model_dir = "a", .config = {.model_dir = "b"}}), InvalidArgument);
}

TEST(TrainAndEvaluateTest, EvaluatesCheckpointsAndTheEndAndExports) {
  const TempFolder folder;
  Estimator estimator(
      line_model_fn,
      {.model_dir = folder.path(), .config = {.save_checkpoints_steps = 10}, .params = kParams});
  const Logs result = train_and_evaluate(
      estimator, {.input_fn = line_input(), .max_steps = 60},
      {.input_fn = line_once(),
       .exporters = {LatestExporter("latest", 2), FinalExporter("final"), BestExporter("best")},
       .throttle_secs = 0});
  EXPECT_EQ(result.at("global_step"), 60);
  EXPECT_LT(result.at("loss"), 1e-3);
  const auto exports = [&](const char* name) {
    int count = 0;
    for ([[maybe_unused]] const auto& entry : std::filesystem::directory_iterator(folder / "export" / name))
      ++count;
    return count;
  };
  EXPECT_EQ(exports("latest"), 2);
  EXPECT_EQ(exports("final"), 1);
  EXPECT_GE(exports("best"), 2);
}

TEST(TrainAndEvaluateTest, ARestartExportsOnlyWhatIsBetterThanTheBestOfBefore) {
  const TempFolder folder;
  const auto exports = [&] {
    int count = 0;
    for (const auto& entry : std::filesystem::directory_iterator(folder / "export" / "best"))
      count += entry.is_directory();
    return count;
  };
  // Of data that the line does not fit, the loss is worse.
  const InputFn elsewhere = [] {
    return line_data(64)
        .map([](Batch example) { return Batch{.x = example.x, .y = example.y.tensor() + 9}; })
        .batch(8);
  };
  const auto train = [&](std::int64_t max_steps, const InputFn& evaluated = line_once()) {
    Estimator estimator(line_model_fn, {.model_dir = folder.path(), .params = kParams});
    return train_and_evaluate(estimator, {.input_fn = line_input(), .max_steps = max_steps},
                              {.input_fn = evaluated, .exporters = {BestExporter("best")}})
        .at("loss");
  };
  const double first = train(20);
  EXPECT_EQ(exports(), 1);
  EXPECT_GT(train(60, elsewhere), first);
  EXPECT_EQ(exports(), 1);
  EXPECT_LT(train(80), first);
  EXPECT_EQ(exports(), 2);
  const std::string record = folder.file("export/best/best.json");
  std::ofstream(record) << "{\"loss\": ";
  EXPECT_EQ(
      message_of<DataLoss>([&] { train(81); }),
      "\"" + record + "\" is not the best result so far, as BestExporter writes it: remove it to begin anew");
  std::filesystem::remove(record);
  train(82);
  EXPECT_EQ(exports(), 3);
}

// What is called around each batch of an evaluation.
class BatchRecorder final : public SessionRunHook {
 public:
  BatchRecorder(std::vector<std::string>& calls, std::string name, std::size_t stop_after = 1000)
      : calls_(calls), name_(std::move(name)), left_(stop_after) {}
  void begin(Model&) override { note("begin"); }
  void after_create_session(Model& model) override {
    note(fmt::format("create at {} with {:.3f}", model.global_step(),
                     model.values().at("weight").item<double>()));
  }
  void before_run(SessionRunContext&) override { note("before"); }
  void after_run(SessionRunContext& context, const SessionRunValues& values) override {
    note(fmt::format("after {}", values.global_step));
    losses.push_back(values.results);
    if (--left_ == 0) context.request_stop();
  }
  void end(Model&) override { note("end"); }

  std::vector<Logs> losses;

 private:
  void note(const std::string& what) { calls_.push_back(name_ + "." + what); }
  std::vector<std::string>& calls_;
  std::string name_;
  std::size_t left_;
};

TEST(EstimatorTest, CallsHooksAroundEachBatchOfAnEvaluation) {
  const TempFolder folder;
  std::vector<std::string> calls;
  const auto model_fn = [&](auto&&... arguments) {
    EstimatorSpec spec = line_model_fn(arguments...);
    spec.evaluation_hooks = {std::make_shared<BatchRecorder>(calls, "spec")};
    spec.prediction_hooks = {std::make_shared<BatchRecorder>(calls, "predict")};
    return spec;
  };
  Estimator estimator(model_fn, {.model_dir = folder.path(),
                                 .config = {.tf_random_seed = 1, .eval_distribute = mirrored(2)},
                                 .params = kParams});
  estimator.train(line_input(), {.steps = 5});
  EXPECT_TRUE(calls.empty());
  const std::string weight = fmt::format("{:.3f}", estimator.get_variable_value("weight").item<double>());

  const auto mine = std::make_shared<BatchRecorder>(calls, "mine", 2);
  const Logs result = estimator.evaluate(line_once(), {.hooks = {mine}});
  EXPECT_EQ(calls, (std::vector<std::string>{"mine.begin", "spec.begin", "mine.create at 5 with " + weight,
                                             "spec.create at 5 with " + weight, "mine.before", "spec.before",
                                             "mine.after 5", "spec.after 5", "mine.before", "spec.before",
                                             "mine.after 5", "spec.after 5", "mine.end", "spec.end"}));
  // Two batches of 16 rows: their losses have the whole as their mean, and the metrics add up.
  ASSERT_EQ(mine->losses.size(), 2U);
  EXPECT_NEAR((mine->losses[0].at("loss") + mine->losses[1].at("loss")) / 2, result.at("loss"), 1e-6);
  EXPECT_DOUBLE_EQ(mine->losses[1].at("mean_absolute_error"), result.at("mean_absolute_error"));

  calls.clear();
  const auto all =
      estimator.predict(line_once(), {.hooks = {std::make_shared<BatchRecorder>(calls, "mine", 1)}});
  EXPECT_EQ(all.at("output").size(0), 16);
  EXPECT_EQ(calls.back(), "predict.end");

  calls.clear();
  train_and_evaluate(
      estimator, {.input_fn = line_input(), .max_steps = 6},
      {.input_fn = line_once(), .hooks = {std::make_shared<BatchRecorder>(calls, "evaluation", 1)}});
  EXPECT_EQ(calls.front(), "evaluation.begin");
  EXPECT_EQ(std::ranges::count(calls, "evaluation.after 6"), 1);
}

TEST(EstimatorTest, AnErrorOfAHookEndsTheEvaluation) {
  const TempFolder folder;
  Estimator estimator(line_model_fn, {.model_dir = folder.path(), .params = kParams});
  estimator.train(line_input(), {.steps = 5});
  EXPECT_EQ(message_of<std::runtime_error>(
                [&] { estimator.evaluate(line_once(), {.hooks = {std::make_shared<PowerCut>(5)}}); }),
            "the power is out");
}

TEST(EarlyStoppingHooksTest, StopWhenEvaluationsNoLongerGetBetter) {
  const TempFolder folder, evaluations;
  {
    SummaryWriter writer(evaluations.path());
    const double losses[]{0.9, 0.5, 0.6, 0.7};
    for (int i = 0; i < 4; ++i) writer.scalar("loss", 10 * (i + 1), losses[i]);
  }
  Estimator estimator(line_model_fn, {.model_dir = folder.path(), .params = kParams});
  EXPECT_EQ(experimental::read_eval_metrics(evaluations.path()).size(), 4U);
  EXPECT_TRUE(experimental::read_eval_metrics(folder.file("none")).empty());
  const experimental::EarlyStoppingHookOptions looks{.eval_dir = evaluations.path(), .run_every_steps = 1};
  const auto steps = [&](const std::shared_ptr<SessionRunHook>& hook) {
    const auto at = [&] {
      return estimator.latest_checkpoint() ? estimator.evaluate(line_once(), {.steps = 1}).at("global_step")
                                           : 0;
    };
    const double before = at();
    estimator.train(line_input(), {.hooks = {hook}, .steps = 5});
    return at() - before;
  };
  // The best was at step 20, 20 steps before the last.
  EXPECT_EQ(steps(experimental::stop_if_no_decrease_hook(estimator, "loss", 20, looks)), 1);
  EXPECT_EQ(steps(experimental::stop_if_no_decrease_hook(estimator, "loss", 21, looks)), 5);
  EXPECT_EQ(steps(experimental::stop_if_no_increase_hook(estimator, "loss", 30, looks)), 1);
  EXPECT_EQ(steps(experimental::stop_if_lower_hook(estimator, "loss", 0.51, looks)), 1);
  EXPECT_EQ(steps(experimental::stop_if_higher_hook(estimator, "loss", 0.95, looks)), 5);
}

// Tasks of one cluster, each on a thread of its own.
ResolvedCluster task_of(const std::vector<int>& ports, const std::string& type, int index) {
  using Hosts = std::vector<std::string>;
  const auto at = [&](std::size_t i) { return fmt::format("127.0.0.1:{}", ports[i]); };
  return {.cluster =
              ClusterSpec({{"ps", Hosts{at(0), at(1)}}, {"chief", Hosts{at(2)}}, {"worker", Hosts{at(3)}}}),
          .task = TaskId{type, index}};
}

// As TensorFlow's: a cluster with ps tasks needs no strategy, and device_fn says where variables live.
TEST(TrainAndEvaluateTest, TrainsWithTheParameterServersOfTheCluster) {
  const TempFolder folder;
  const auto reserved = internal::ReservedPorts::choose("127.0.0.1", 4);
  std::vector<std::exception_ptr> errors(4);
  std::atomic<int> asked = 0;
  const auto run = [&](std::size_t slot, const std::string& type, int index) {
    try {
      Estimator estimator(line_model_fn, {.model_dir = folder.path(),
                                          .config = {.tf_random_seed = 1,
                                                     .device_fn =
                                                         [&](const VariableToPlace& variable) {
                                                           ++asked;
                                                           return variable.name == "bias" ? "/job:ps/task:1"
                                                                                          : "/job:ps/task:0";
                                                         },
                                                     .experimental_max_worker_delay_secs = 0,
                                                     .cluster = task_of(reserved.ports(), type, index)},
                                          .params = kParams});
      train_and_evaluate(estimator, {.input_fn = line_input(), .max_steps = 200}, {.input_fn = line_once()});
    } catch (...) {
      errors[slot] = std::current_exception();
    }
  };
  {
    std::vector<std::jthread> tasks;
    tasks.emplace_back(run, 0, "ps", 0);
    tasks.emplace_back(run, 1, "ps", 1);
    tasks.emplace_back(run, 2, "chief", 0);
    tasks.emplace_back(run, 3, "worker", 0);
  }
  for (const auto& error : errors) {
    if (error) std::rethrow_exception(error);
  }
  EXPECT_EQ(asked, 4);  // two variables, two tasks that train
  Estimator alone(line_model_fn, {.model_dir = folder.path(), .params = kParams});
  const Logs result = alone.evaluate(line_once());
  EXPECT_GE(result.at("global_step"), 200);
  EXPECT_LT(result.at("loss"), 1e-4);
}

}  // namespace
}  // namespace tandem
