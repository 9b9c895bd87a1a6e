#include <gtest/gtest.h>
#include <torch/torch.h>

#include <algorithm>
#include <limits>

#include "support/errors.h"
#include "support/temp_folder.h"
#include "support/training.h"
#include "tandem/tandem.h"
#include "train/mixed_precision.h"

namespace tandem {
namespace {

using testing_support::distance;
using testing_support::expect_near;
using testing_support::message_of;
using testing_support::mirrored;
using testing_support::TempFolder;
using testing_support::Values;

Dataset pictures(int rows) {
  torch::manual_seed(5);
  const at::Tensor labels = torch::randint(4, {rows});
  at::Tensor x = torch::randn({rows, 3, 8, 8});
  x += labels.to(at::kFloat).view({rows, 1, 1, 1});  // something to learn
  return Dataset::from_tensors(x, labels);
}

CentralStorageStrategy central(int replicas) {
  std::vector<std::string> devices;
  for (int i = 0; i < replicas; ++i) devices.push_back("/cpu:" + std::to_string(i));
  return CentralStorageStrategy({.compute_devices = devices, .threads_per_replica = 1});
}

torch::nn::Sequential conv_net() {
  return torch::nn::Sequential(torch::nn::Conv2d(3, 8, 3), torch::nn::BatchNorm2d(8), torch::nn::ReLU(),
                               torch::nn::Flatten(), torch::nn::Linear(8 * 36, 4));
}

Model make_model(const Strategy& strategy, const std::string& policy, bool sync_batch_norm = false) {
  return strategy.scope([&] {
    Model m([] { return conv_net(); }, {.seed = 2, .sync_batch_norm = sync_batch_norm, .policy = policy});
    m.compile({.optimizer = optimizers::SGD({.learning_rate = 0.05, .momentum = 0.9}),
               .loss = losses::sparse_categorical_crossentropy(),
               .metrics = {metrics::sparse_categorical_accuracy("accuracy")}});
    return m;
  });
}

TEST(PolicyTest, HasKerasNames) {
  EXPECT_EQ(Policy().name(), "float32");
  EXPECT_FALSE(Policy("float32").is_mixed());
  EXPECT_EQ(Policy("mixed_bfloat16").compute_dtype(), at::kBFloat16);
  EXPECT_EQ(Policy("mixed_float16").compute_dtype(), at::kHalf);
  EXPECT_EQ(Policy("mixed_float16").variable_dtype(), at::kFloat);
  EXPECT_EQ(message_of<InvalidArgument>([] { Policy("bf16"); }),
            "policy \"bf16\": expected float32, mixed_bfloat16 or mixed_float16");
}

TEST(PolicyTest, ComputesInBfloat16AndKeepsVariablesInFloat32) {
  // A layer that tells what it was given.
  static thread_local at::ScalarType seen = at::kFloat;
  const auto strategy = mirrored(2);
  Model model = strategy.scope([] {
    return Model(
        [] {
          return torch::nn::Sequential(torch::nn::Linear(4, 4),
                                       torch::nn::Functional([](const at::Tensor& x) {
                                         seen = x.scalar_type();
                                         return x;
                                       }));
        },
        {.seed = 1, .policy = "mixed_bfloat16"});
  });
  const auto outputs = strategy.run([&](ReplicaContext& replica) {
    const at::Tensor y = model.on(replica)(torch::ones({1, 4}));
    // Outside of the forward the thread is as it was.
    EXPECT_EQ(torch::linear(torch::ones({1, 4}), torch::ones({4, 4})).scalar_type(), at::kFloat);
    EXPECT_EQ(seen, at::kBFloat16);
    return y;
  });
  for (const at::Tensor& output : outputs) EXPECT_EQ(output.scalar_type(), at::kFloat);
  for (const auto& [name, value] : model.values()) EXPECT_EQ(value.scalar_type(), at::kFloat) << name;
}

TEST(PolicyTest, TrainsInBfloat16UnderEveryStrategyOfOneMachine) {
  const auto data = pictures(96).shuffle(96).batch(16);
  const std::vector<Strategy> strategies{OneDeviceStrategy("/cpu:0", {.threads_per_replica = 1}), mirrored(2),
                                         central(2)};
  for (const Strategy& strategy : strategies) {
    Model half = make_model(strategy, "mixed_bfloat16");
    Model full = make_model(strategy, "float32");
    const auto half_history = half.fit(data, {.epochs = 4, .verbose = Verbose::kSilent}).history;
    const auto full_history = full.fit(data, {.epochs = 4, .verbose = Verbose::kSilent}).history;
    EXPECT_LT(half_history.at("loss").back(), 0.5 * half_history.at("loss").front()) << strategy.name();
    EXPECT_NEAR(half_history.at("loss")[0], full_history.at("loss")[0], 0.03 * full_history.at("loss")[0]);
    EXPECT_NE(half_history.at("loss")[0], full_history.at("loss")[0]);  // it did compute in less
    EXPECT_NEAR(half.evaluate(data).at("accuracy"), full.evaluate(data).at("accuracy"), 0.1);
    EXPECT_EQ(half.predict(data).scalar_type(), at::kFloat);
  }
}

TEST(PolicyTest, GivesTheSameBitsUnderEveryStrategyOfAsManyReplicas) {
  const auto data = pictures(48).batch(16);
  const auto trained = [&](const Strategy& strategy) {
    Model model = make_model(strategy, "mixed_bfloat16");
    model.fit(data, {.epochs = 2, .verbose = Verbose::kSilent});
    for (const auto& [name, value] : model.values()) {
      EXPECT_TRUE(value.scalar_type() == at::kFloat || name.ends_with("num_batches_tracked")) << name;
    }
    return model.parameter_digest();
  };
  const std::string one = trained(OneDeviceStrategy("/cpu:0", {.threads_per_replica = 1}));
  EXPECT_EQ(trained(mirrored(1)), one);
  EXPECT_EQ(trained(central(1)), one);
  const std::string two = trained(mirrored(2));
  EXPECT_EQ(trained(central(2)), two);
  EXPECT_NE(two, one);
}

// Each replica rounds its own gradients to bfloat16, so that two differ from one, by little.
TEST(PolicyTest, TwoReplicasStayCloseToOne) {
  const auto data = pictures(48).batch(16);
  const auto trained = [&](const Strategy& strategy, const char* policy) {
    Model model = strategy.scope([&] {
      Model m(
          [] {
            return torch::nn::Sequential(torch::nn::Conv2d(3, 8, 3), torch::nn::ReLU(), torch::nn::Flatten(),
                                         torch::nn::Linear(8 * 36, 4));
          },
          {.seed = 2, .policy = policy});
      m.compile({.optimizer = optimizers::SGD({.learning_rate = 0.01}),
                 .loss = losses::sparse_categorical_crossentropy()});
      return m;
    });
    model.fit(data, {.epochs = 2, .verbose = Verbose::kSilent});
    return model.values();
  };
  const Values one = trained(mirrored(1), "mixed_bfloat16");
  expect_near(trained(mirrored(2), "mixed_bfloat16"), one, 2e-3);
  expect_near(trained(central(2), "mixed_bfloat16"), one, 2e-3);
  expect_near(trained(mirrored(1), "float32"), one, 1e-2);
}

TEST(PolicyTest, SynchronizedBatchNormTakesItsStatisticsInFloat32) {
  const auto data = pictures(64).batch(16);
  Model half = make_model(mirrored(2), "mixed_bfloat16", /*sync_batch_norm=*/true);
  Model full = make_model(mirrored(2), "float32", /*sync_batch_norm=*/true);
  for (Model* model : {&half, &full}) model->fit(data, {.verbose = Verbose::kSilent});
  EXPECT_LT(distance(half.values().at("1.running_mean"), full.values().at("1.running_mean")), 0.02);
  EXPECT_LT(distance(half.values().at("1.running_var"), full.values().at("1.running_var")), 0.02);
}

TEST(PolicyTest, SaysInOneLineThatACpuHasNoInstructionsForIt) {
  const auto said = [](const char* policy, Device device, bool has_instructions) {
    testing::internal::CaptureStderr();
    internal::check_policy(policy, {device, device}, has_instructions);
    return testing::internal::GetCapturedStderr();
  };
  const std::string line = said("mixed_bfloat16", {}, false);
  EXPECT_NE(line.find("mixed_bfloat16: this CPU has no bfloat16 instructions, so float32 would be faster\n"),
            std::string::npos)
      << line;
  EXPECT_EQ(std::ranges::count(line, '\n'), 1);
  EXPECT_EQ(said("mixed_bfloat16", {}, true), "");
  EXPECT_EQ(said("float32", {}, false), "");
  EXPECT_EQ(said("mixed_bfloat16", {.type = DeviceType::kGpu}, false), "");
}

TEST(PolicyTest, Float16IsForGpus) {
  EXPECT_EQ(message_of<InvalidArgument>([] { make_model(mirrored(1), "mixed_float16"); }),
            "mixed_float16 needs GPUs, and this strategy has replicas on the CPU: use mixed_bfloat16 or "
            "float32");
}

// One weight; its gradient is the mean of x, so that x brings infinities along.
Model one_weight(const Strategy& strategy, std::optional<optimizers::LossScaleOptions> scale) {
  return strategy.scope([&] {
    Model m([] { return torch::nn::Linear(torch::nn::LinearOptions(1, 1).bias(false)); }, {.seed = 1});
    Optimizer optimizer = optimizers::SGD({.learning_rate = 0.5, .momentum = 0.9});
    if (scale) optimizer = optimizers::LossScaleOptimizer(optimizer, *scale);
    m.compile({.optimizer = optimizer,
               .loss = {"linear", [](const at::Tensor&, const at::Tensor& y) { return y.flatten(); }}});
    return m;
  });
}

// A step in which each row's gradient is its own x.
void step(Model& model, std::vector<float> x) {
  const auto rows = static_cast<std::int64_t>(x.size());
  auto batches = model.strategy().distribute(
      Dataset::from_tensors(torch::tensor(x).view({rows, 1}), torch::zeros({rows})).batch(rows));
  model.train_step(*batches.next_as_optional());
}

double weight_of(const Model& model) {
  return model.values().at("weight").item<double>();
}

class LossScaleTest : public testing::TestWithParam<int> {};

TEST_P(LossScaleTest, UpdatesAsWithoutAScaleWhereGradientsAreFinite) {
  Model scaled = one_weight(mirrored(GetParam()), optimizers::LossScaleOptions{});
  Model plain = one_weight(mirrored(GetParam()), std::nullopt);
  EXPECT_EQ(scaled.optimizer().loss_scale(), 32768);
  EXPECT_EQ(plain.optimizer().loss_scale(), 1);
  for (int i = 0; i < 3; ++i) {
    step(scaled, {1, 2, 3, 4});
    step(plain, {1, 2, 3, 4});
    EXPECT_EQ(weight_of(scaled), weight_of(plain));  // a power of two changes no bit
  }
}

TEST_P(LossScaleTest, SkipsAStepOnAllReplicasIfOneHasAnInfinity) {
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  for (const float bad : {kInfinity, -kInfinity, std::numeric_limits<float>::quiet_NaN()}) {
    const auto strategy = mirrored(GetParam());
    Model model = one_weight(strategy, optimizers::LossScaleOptions{.initial_scale = 8, .growth_steps = 2});
    step(model, {1, 1, 1, 1});
    const double before = weight_of(model);
    step(model, {1, 1, 1, bad});  // the last replica alone
    EXPECT_EQ(weight_of(model), before);
    EXPECT_EQ(model.optimizer().loss_scale(), 4);
    // Every copy, not only the one that values() reads.
    strategy.run([&](ReplicaContext& replica) {
      EXPECT_EQ(model.on(replica).module().parameters()[0].item<double>(), before) << replica.id();
    });
    // The momentum was left alone too: the next step is the second.
    step(model, {1, 1, 1, 1});
    EXPECT_NEAR(weight_of(model), before - 0.5 * 1.9, 1e-6);
  }
}

TEST_P(LossScaleTest, DoublesAfterEnoughGoodStepsAndNeverFallsBelowOne) {
  Model model =
      one_weight(mirrored(GetParam()), optimizers::LossScaleOptions{.initial_scale = 2, .growth_steps = 2});
  const auto scale_after = [&](float last) {
    step(model, {1, 1, 1, last});
    return model.optimizer().loss_scale();
  };
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  EXPECT_EQ(scale_after(1), 2);
  EXPECT_EQ(scale_after(1), 4);
  EXPECT_EQ(scale_after(1), 4);
  EXPECT_EQ(scale_after(kInfinity), 2);
  EXPECT_EQ(scale_after(1), 2);  // it counts from 0 again
  EXPECT_EQ(scale_after(1), 4);
  EXPECT_EQ(scale_after(kInfinity), 2);
  EXPECT_EQ(scale_after(kInfinity), 1);
  // Nothing is left to try: a loss that is not finite stops the training as without a scale.
  EXPECT_THROW(step(model, {1, 1, 1, kInfinity}), NonFiniteLoss);
}

INSTANTIATE_TEST_SUITE_P(Replicas, LossScaleTest, testing::Values(1, 2, 4));

TEST(LossScaleOptimizerTest, WorksForOptimizersThatRunWholeOnEachReplica) {
  const auto strategy = mirrored(2);
  Model model = strategy.scope([] {
    Model m([] { return torch::nn::Linear(torch::nn::LinearOptions(1, 1).bias(false)); }, {.seed = 1});
    m.compile({.optimizer = optimizers::LossScaleOptimizer(
                   optimizers::from_torch([](std::vector<at::Tensor> parameters) {
                     return std::make_unique<torch::optim::SGD>(parameters, torch::optim::SGDOptions(0.5));
                   }),
                   {.initial_scale = 16}),
               .loss = {"linear", [](const at::Tensor&, const at::Tensor& y) { return y.flatten(); }}});
    return m;
  });
  const double start = weight_of(model);
  step(model, {1, std::numeric_limits<float>::infinity()});
  EXPECT_EQ(weight_of(model), start);
  EXPECT_EQ(model.optimizer().loss_scale(), 8);
  step(model, {1, 3});
  EXPECT_NEAR(weight_of(model), start - 0.5 * 2, 1e-6);
}

TEST(LossScaleOptimizerTest, IsSavedWithTheModel) {
  const TempFolder folder;
  Model model = one_weight(mirrored(2), optimizers::LossScaleOptions{.initial_scale = 64, .growth_steps = 3});
  step(model, {1, std::numeric_limits<float>::infinity()});
  step(model, {1, 1});
  step(model, {1, 1});
  model.save(folder.file("model.safetensors"));
  Model again = one_weight(mirrored(1), optimizers::LossScaleOptions{.growth_steps = 3});
  again.load(folder.file("model.safetensors"));
  EXPECT_EQ(again.optimizer().loss_scale(), 32);
  step(again, {1});
  EXPECT_EQ(again.optimizer().loss_scale(), 64);  // the third good step
}

TEST(LossScaleOptimizerTest, RefusesWhatCannotWork) {
  EXPECT_THROW(optimizers::LossScaleOptimizer(optimizers::SGD(), {.initial_scale = 0.5}), InvalidArgument);
  EXPECT_THROW(optimizers::LossScaleOptimizer(optimizers::SGD(), {.growth_steps = 0}), InvalidArgument);
  Model model = one_weight(mirrored(1), std::nullopt);
  EXPECT_THROW(optimizers::LossScaleOptimizer(model.optimizer()), FailedPrecondition);
}

}  // namespace
}  // namespace tandem
