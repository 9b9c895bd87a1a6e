#include <gtest/gtest.h>
#include <torch/script.h>

#include <fstream>
#include <limits>

#include "support/errors.h"
#include "support/temp_folder.h"
#include "support/training.h"
#include "tandem/tandem.h"

namespace tandem {
namespace {

using testing_support::distance;
using testing_support::expect_near;
using testing_support::message_of;
using testing_support::mirrored;
using testing_support::TempFolder;

torch::nn::Sequential mlp() {
  return torch::nn::Sequential(torch::nn::Linear(4, 8), torch::nn::ReLU(), torch::nn::Linear(8, 3));
}

CompileOptions sgd() {
  return {.optimizer = optimizers::SGD({.learning_rate = 0.1}),
          .loss = losses::sparse_categorical_crossentropy(),
          .metrics = {metrics::sparse_categorical_accuracy("accuracy")}};
}

Model compiled(const Strategy& strategy, std::function<torch::nn::Sequential()> factory = mlp,
               ModelOptions options = {.seed = 1}) {
  return strategy.scope([&] {
    Model m(factory, options);
    m.compile(sgd());
    return m;
  });
}

Dataset examples(int rows) {
  torch::manual_seed(4);
  return Dataset::from_tensors(torch::randn({rows, 4}), torch::randint(3, {rows}));
}

const FitOptions kQuiet{.verbose = Verbose::kSilent};

TEST(ModelTest, BelongsToTheStrategyOfItsScope) {
  EXPECT_EQ(compiled(mirrored(3)).strategy().num_replicas_in_sync(), 3);
  const Model outside(mlp);
  EXPECT_EQ(outside.strategy().num_replicas_in_sync(), 1);
}

TEST(ModelTest, BeginsWithEqualCopiesThatTheSeedDecides) {
  const auto strategy = mirrored(3);
  const Model model = compiled(strategy);
  const auto firsts = strategy.run(
      [&](ReplicaContext& replica) { return model.on(replica).module().parameters()[0].detach().clone(); });
  EXPECT_TRUE(firsts[0].equal(firsts[1]) && firsts[0].equal(firsts[2]));
  EXPECT_EQ(model.parameter_digest(), compiled(mirrored(2)).parameter_digest());
  EXPECT_NE(model.parameter_digest(), compiled(mirrored(2), mlp, {.seed = 2}).parameter_digest());
  EXPECT_NE(Model(mlp).seed(), Model(mlp).seed());
}

TEST(ModelTest, RefusesAFactoryThatReturnsDifferentModels) {
  int calls = 0;
  const std::string message = message_of<InvalidArgument>([&] {
    compiled(mirrored(2), [&] { return torch::nn::Sequential(torch::nn::Linear(4, 3 + calls++)); });
  });
  EXPECT_NE(message.find("the model factory made different models for replica 0 and replica 1: parameter "
                         "\"0.weight\" is Float [3, "
                         "4] against Float [4, 4]"),
            std::string::npos)
      << message;
}

TEST(ModelTest, RefusesAFactoryThatReturnsTheSameModelTwice) {
  const torch::nn::Sequential one = mlp();
  EXPECT_NE(message_of<InvalidArgument>([&] {
              compiled(mirrored(2), [&] { return one; });
            }).find("build a new model each time"),
            std::string::npos);
}

TEST(ModelTest, RefusesAModuleWithoutParameters) {
  EXPECT_NE(message_of<InvalidArgument>([] {
              compiled(mirrored(2), [] { return torch::nn::Sequential(torch::nn::ReLU()); });
            }).find("no trainable parameters"),
            std::string::npos);
}

TEST(ModelTest, RefusesToTrainBeforeCompile) {
  Model model(mlp);
  EXPECT_THROW(model.fit(examples(8).batch(4)), FailedPrecondition);
  EXPECT_THROW(model.evaluate(examples(8).batch(4)), FailedPrecondition);
}

TEST(ModelTest, RefusesLbfgsWithASentence) {
  const auto lbfgs = optimizers::from_torch([](std::vector<at::Tensor> parameters) {
    return std::make_unique<torch::optim::LBFGS>(std::move(parameters), torch::optim::LBFGSOptions(1));
  });
  Model model(mlp);
  EXPECT_NE(message_of<InvalidArgument>([&] {
              model.compile({.optimizer = lbfgs, .loss = losses::sparse_categorical_crossentropy()});
            }).find("LBFGS evaluates the loss several times"),
            std::string::npos);
}

TEST(ModelTest, RefusesOneOptimizerForTwoModels) {
  Model first(mlp);
  Model second(mlp);
  const auto optimizer = optimizers::SGD();
  first.compile({.optimizer = optimizer, .loss = losses::sparse_categorical_crossentropy()});
  EXPECT_THROW(second.compile({.optimizer = optimizer, .loss = losses::sparse_categorical_crossentropy()}),
               FailedPrecondition);
}

TEST(ModelTest, MayBeCompiledAgain) {
  Model model = compiled(mirrored(2));
  model.fit(examples(16).batch(8), kQuiet);
  model.compile(sgd());
  const std::string before = model.parameter_digest();
  model.fit(examples(16).batch(8), kQuiet);
  EXPECT_NE(model.parameter_digest(), before);
}

TEST(ModelTest, NamesAParameterThatWasMovedAway) {
  const auto strategy = mirrored(2);
  Model model = compiled(strategy);
  strategy.run([&](ReplicaContext& replica) {
    if (replica.id() == 1) {
      at::Tensor leaf = model.on(replica).module().named_parameters()["2.weight"];
      leaf.set_data(leaf.detach().clone());
    }
  });
  EXPECT_NE(message_of<FailedPrecondition>([&] {
              model.fit(examples(8).batch(4), kQuiet);
            }).find("parameter \"2.weight\" of replica 1 was moved away"),
            std::string::npos);
}

TEST(ModelTest, TrainsAModuleThatTakesAMapOfTensors) {
  struct WideImpl : torch::nn::Module {
    WideImpl() { layer = register_module("layer", torch::nn::Linear(5, 3)); }
    at::Tensor forward(const Tensors::Map& x) { return layer(torch::cat({x.at("a"), x.at("b")}, 1)); }
    torch::nn::Linear layer{nullptr};
  };
  const auto strategy = mirrored(2);
  Model model = strategy.scope([] {
    Model m([] { return std::make_shared<WideImpl>(); }, {.seed = 1});
    m.compile(sgd());
    return m;
  });
  torch::manual_seed(1);
  const auto data = Dataset::from_tensors(
      Tensors::Map{{"a", torch::randn({12, 2})}, {"b", torch::randn({12, 3})}}, torch::randint(3, {12}));
  const auto before = model.evaluate(data.batch(4)).at("loss");
  model.fit(data.batch(4), {.epochs = 20, .verbose = Verbose::kSilent});
  EXPECT_LT(model.evaluate(data.batch(4)).at("loss"), before);
}

// Model parallel within a process: where the halves are is the network's own business.
struct TwoHalvesImpl : torch::nn::Module {
  explicit TwoHalvesImpl(torch::Device first = torch::kCPU, torch::Device second = torch::kCPU)
      : first(first), second(second) {
    below->to(first);
    above->to(second);
  }
  at::Tensor forward(const at::Tensor& x) {
    const at::Tensor h = torch::relu(below(x.to(first)));
    return above(h.to(second)).to(x.device());
  }
  torch::Device first, second;
  torch::nn::Linear below{register_module("0", torch::nn::Linear(4, 8))};
  torch::nn::Linear above{register_module("2", torch::nn::Linear(8, 3))};
};
TORCH_MODULE(TwoHalves);

TEST(ModelTest, TrainsANetworkThatPlacesItsHalvesItself) {
  for (const Strategy& strategy : {Strategy(OneDeviceStrategy()), Strategy(mirrored(2))}) {
    Model model = strategy.scope([&] {
      Model m([] { return TwoHalves(); }, {.seed = 1});
      m.compile(sgd());
      return m;
    });
    Model whole = compiled(strategy);
    whole.set_values(model.values());
    model.fit(examples(30).batch(6), kQuiet);
    whole.fit(examples(30).batch(6), kQuiet);
    EXPECT_EQ(model.parameter_digest(), whole.parameter_digest()) << strategy.name();
  }
}

// mlp() in TorchScript, one of its layers as a module of its own.
std::string scripted_mlp(const TempFolder& folder) {
  const auto mlp_values = mlp();
  const auto weights = mlp_values->named_parameters();
  const auto linear = [&](const std::string& layer) {
    torch::jit::Module module("__torch__.Linear" + layer);
    module.register_attribute("training", c10::BoolType::get(), true);
    for (const char* name : {"weight", "bias"}) {
      module.register_parameter(name, weights[layer + "." + name].detach().clone().requires_grad_(true),
                                /*is_buffer=*/false);
    }
    module.define("def forward(self, x):\n  return torch.linear(x, self.weight, self.bias)\n");
    return module;
  };
  torch::jit::Module net("__torch__.Mlp");
  net.register_module("0", linear("0"));
  net.register_module("2", linear("2"));
  net.register_attribute("training", c10::BoolType::get(), true);
  net.register_buffer("calls", torch::zeros({1}));
  net.define(R"(
    def forward(self, x):
      if self.training:
        self.calls.add_(1)
      return getattr(self, "2").forward(torch.relu(getattr(self, "0").forward(x)))
  )");
  net.save(folder.file("mlp.pt"));
  return folder.file("mlp.pt");
}

TEST(ScriptModuleTest, TrainsAndPredictsAsTheSameNetworkInCpp) {
  const TempFolder folder;
  const std::string file = scripted_mlp(folder);
  const Strategy strategy = mirrored(2);
  Model script = strategy.scope([&] {
    Model m([&] { return ScriptModule(file); }, {.seed = 1});
    m.compile(sgd());
    return m;
  });
  Model plain = compiled(strategy);
  auto first = script.values();
  EXPECT_EQ(first.erase("calls"), 1u);
  plain.set_values(first);
  const Dataset data = examples(30);
  script.fit(data.batch(6), kQuiet);
  plain.fit(data.batch(6), kQuiet);
  auto values = script.values();
  EXPECT_EQ(values.at("calls").item<float>(), 5) << "train() has not reached the script";
  values.erase("calls");
  expect_near(values, plain.values(), 1e-6);
  const at::Tensor predicted = script.predict(data.batch(7));
  EXPECT_EQ(predicted.size(0), 30);
  EXPECT_LT(distance(predicted, plain.predict(data.batch(30))), 1e-5);
  EXPECT_EQ(script.values().at("calls").item<float>(), 5) << "eval() has not reached the script";
}

TEST(ScriptModuleTest, SaysWhatIsWrongWithAFile) {
  const TempFolder folder;
  EXPECT_NE(message_of<NotFound>([&] { ScriptModule(folder.file("none.pt")); }).find("none.pt"),
            std::string::npos);
  std::ofstream(folder.file("text.pt")) << "not a program";
  const std::string message = message_of<InvalidArgument>([&] { ScriptModule(folder.file("text.pt")); });
  EXPECT_NE(message.find("text.pt\" is no TorchScript file that can be read"), std::string::npos) << message;
  EXPECT_EQ(message.find('\n'), std::string::npos) << message;
}

TEST(TiedWeights, AreUpdatedOnceAndStayTied) {
  struct TiedImpl : torch::nn::Module {
    TiedImpl() {
      encoder = register_module("encoder", torch::nn::Linear(torch::nn::LinearOptions(4, 4).bias(false)));
      to(torch::kDouble);
      weight = register_parameter("decoder_weight", encoder->weight);
    }
    at::Tensor forward(const at::Tensor& x) { return torch::relu(encoder(x)).matmul(weight); }
    torch::nn::Linear encoder{nullptr};
    at::Tensor weight;
  };
  torch::manual_seed(8);
  const auto data =
      Dataset::from_tensors(torch::randn({8, 4}, torch::kDouble), torch::randn({8, 4}, torch::kDouble));
  const auto train = [&](int replicas) {
    const auto strategy = mirrored(replicas);
    Model model = strategy.scope([] {
      Model m([] { return std::make_shared<TiedImpl>(); }, {.seed = 1});
      m.compile({.optimizer = optimizers::SGD({.learning_rate = 0.1}), .loss = losses::mean_squared_error()});
      return m;
    });
    EXPECT_EQ(model.num_parameters(), 16);
    const at::Tensor start = model.values().at("encoder.weight");
    model.fit(data.batch(8), kQuiet);
    return std::pair(start, model.values());
  };
  const auto [start, tied] = train(2);
  EXPECT_TRUE(tied.at("encoder.weight").equal(tied.at("decoder_weight")));

  // By hand: one step on the sum of both paths' gradients.
  const at::Tensor w = start.clone().set_requires_grad(true);
  const auto batch = data.batch(8).iterate().next();
  const at::Tensor out = torch::relu(batch->x.tensor().matmul(w.t())).matmul(w);
  (out - batch->y.tensor()).square().mean().backward();
  EXPECT_LT(testing_support::distance(tied.at("encoder.weight"), (w - 0.1 * w.grad()).detach()), 1e-12);
}

TEST(OtherOptimizers, RunWholeOnEveryReplica) {
  // Not element-wise: each step has length one, whatever the gradient.
  struct NormedOptions : torch::optim::OptimizerCloneableOptions<NormedOptions> {
    double get_lr() const override { return lr; }
    void set_lr(const double rate) override { lr = rate; }
    double lr = 0.1;
  };
  struct Normed : torch::optim::Optimizer {
    explicit Normed(std::vector<at::Tensor> parameters)
        : Optimizer({torch::optim::OptimizerParamGroup(std::move(parameters))},
                    std::make_unique<NormedOptions>()) {}
    at::Tensor step(LossClosure = nullptr) override {
      const torch::NoGradGuard no_grad;
      for (auto& group : param_groups()) {
        for (auto& p : group.params()) {
          if (p.grad().defined()) p -= group.options().get_lr() * p.grad() / p.grad().norm();
        }
      }
      return {};
    }
  };
  const auto train = [](int replicas) {
    const auto strategy = mirrored(replicas);
    Model model = strategy.scope([] {
      Model m(
          [] {
            auto net = mlp();
            net->to(torch::kDouble);
            return net;
          },
          {.seed = 1});
      m.compile({.optimizer = optimizers::from_torch([](std::vector<at::Tensor> parameters) {
                   return std::make_unique<Normed>(std::move(parameters));
                 }),
                 .loss = losses::sparse_categorical_crossentropy()});
      return m;
    });
    torch::manual_seed(4);
    const auto data = Dataset::from_tensors(torch::randn({22, 4}, torch::kDouble), torch::randint(3, {22}));
    model.fit(data.batch(8), kQuiet);
    const auto copies = strategy.run(
        [&](ReplicaContext& r) { return model.on(r).module().parameters()[0].detach().clone(); });
    for (const auto& copy : copies) EXPECT_TRUE(copy.equal(copies[0]));
    return model.values();
  };
  const auto one = train(1);
  expect_near(train(2), one, 1e-9);
  expect_near(train(4), one, 1e-9);
}

TEST(BatchNorm, KeepsStatisticsPerReplicaAndReadsTheirMean) {
  const auto strategy = mirrored(2);
  Model model = compiled(
      strategy, [] { return torch::nn::Sequential(torch::nn::BatchNorm1d(4), torch::nn::Linear(4, 3)); });
  model.fit(examples(32).batch(8), kQuiet);
  const auto own = strategy.run(
      [&](ReplicaContext& r) { return model.on(r).module().named_buffers()["0.running_mean"].clone(); });
  EXPECT_FALSE(own[0].equal(own[1]));
  EXPECT_TRUE(model.values().at("0.running_mean").equal((own[0] + own[1]) / 2));

  // Evaluation uses the mean, and leaves each replica its own.
  const auto data = examples(5);
  const double loss = model.evaluate(data.batch(5)).at("loss");
  auto net = torch::nn::Sequential(torch::nn::BatchNorm1d(4), torch::nn::Linear(4, 3));
  {
    const torch::NoGradGuard no_grad;
    for (auto& item : net->named_parameters()) item.value().copy_(model.values().at(item.key()));
    for (auto& item : net->named_buffers()) item.value().copy_(model.values().at(item.key()));
  }
  net->eval();
  const auto batch = data.batch(5).iterate().next();
  const double expected =
      torch::nn::functional::cross_entropy(net->forward(batch->x.tensor()), batch->y.tensor()).item<double>();
  EXPECT_NEAR(loss, expected, 1e-6);
  const auto after = strategy.run(
      [&](ReplicaContext& r) { return model.on(r).module().named_buffers()["0.running_mean"].clone(); });
  EXPECT_TRUE(after[0].equal(own[0]) && after[1].equal(own[1]));
  strategy.run([&](ReplicaContext& r) { EXPECT_TRUE(model.on(r).module().is_training()); });
}

TEST(BatchNorm, OfOneRowNamesTheReplicaTheStepAndTheWaysOut) {
  Model model = compiled(
      mirrored(2), [] { return torch::nn::Sequential(torch::nn::BatchNorm1d(4), torch::nn::Linear(4, 3)); });
  const std::string message = message_of<InvalidArgument>([&] { model.fit(examples(11).batch(4), kQuiet); });
  EXPECT_NE(message.find("replica 1 got a piece of 1 row at step 2 (global batch of 3 rows over 2 replicas)"),
            std::string::npos)
      << message;
  EXPECT_NE(message.find("drop_remainder"), std::string::npos);
}

TEST(Evaluate, CountsEveryExampleOnce) {
  for (const int replicas : {1, 2, 4}) {
    Model model = compiled(mirrored(replicas));
    const auto data = examples(13);  // over 4 replicas: 5 rows as 2, 2, 1, 0 and so on
    const Logs logs = model.evaluate(data.batch(5));
    const auto all = data.batch(13).iterate().next();
    auto net = mlp();
    {
      const torch::NoGradGuard no_grad;
      for (auto& item : net->named_parameters()) item.value().copy_(model.values().at(item.key()));
    }
    const at::Tensor out = net->forward(all->x.tensor());
    EXPECT_NEAR(logs.at("loss"), torch::nn::functional::cross_entropy(out, all->y.tensor()).item<double>(),
                1e-6);
    EXPECT_DOUBLE_EQ(logs.at("accuracy"),
                     out.argmax(1).eq(all->y.tensor()).to(torch::kDouble).mean().item<double>());
  }
}

TEST(Evaluate, WeighsExamples) {
  const auto x = torch::randn({6, 4});
  const auto y = torch::randint(3, {6});
  Model model = compiled(mirrored(2));
  const auto one =
      model.evaluate(Dataset::from_tensors(x.slice(0, 0, 3), y.slice(0, 0, 3)).batch(3)).at("accuracy");
  const auto weighted =
      model.evaluate(Dataset::from_tensors(x, y, torch::tensor({1.f, 1.f, 1.f, 0.f, 0.f, 0.f})).batch(4));
  EXPECT_DOUBLE_EQ(weighted.at("accuracy"), one);
}

TEST(Predict, KeepsTheOrderOfTheRows) {
  const auto data = examples(13);
  const auto expected = [&](const Model& model) {
    auto net = mlp();
    const torch::NoGradGuard no_grad;
    for (auto& item : net->named_parameters()) item.value().copy_(model.values().at(item.key()));
    return net->forward(data.batch(13).iterate().next()->x.tensor());
  };
  for (const int replicas : {1, 2, 4}) {
    Model model = compiled(mirrored(replicas));
    const at::Tensor output = model.predict(data.batch(5));
    EXPECT_TRUE(output.allclose(expected(model), 1e-5, 1e-6));
    EXPECT_FALSE(output.requires_grad());
    EXPECT_EQ(model.predict(data.batch(5), {.steps = 2}).size(0), 10);
  }
  EXPECT_THROW(compiled(mirrored(2)).predict(data.skip(13).batch(5)), InvalidArgument);
}

TEST(Summary, ListsLayersAndTheMemoryOfAllReplicas) {
  const std::string text = compiled(mirrored(2)).summary();
  EXPECT_NE(text.find("Linear               [8, 4] [8]                         40"), std::string::npos)
      << text;
  EXPECT_NE(text.find("67 parameters: 67 trainable (0.00 MiB), 0 frozen"), std::string::npos) << text;
  EXPECT_NE(text.find("mirrored strategy, 2 replicas"), std::string::npos) << text;
}

TEST(Digest, IsSha256OverNamesAndValuesInNameOrder) {
  Model model([] {
    torch::nn::Sequential net(torch::nn::Linear(1, 1));
    const torch::NoGradGuard no_grad;
    for (auto& parameter : net->parameters()) parameter.fill_(1);
    return net;
  });
  // sha256 of "0.bias\0" 0000803f "0.weight\0" 0000803f
  EXPECT_EQ(model.parameter_digest(), "b71d738e1682341c5300b47b42d426232640f8e02e3e31a0425764313e705f60");
}

}  // namespace
}  // namespace tandem
