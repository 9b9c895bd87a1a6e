#include "strategy/torch_shard_store.h"

#include <gtest/gtest.h>
#include <torch/torch.h>

#include <cstring>

#include "strategy/ftrl.h"
#include "strategy/optimizer_description.h"
#include "support/errors.h"
#include "tandem/error.h"

namespace tandem::internal {
namespace {

using testing_support::message_of;
namespace optim = torch::optim;
using MakeOptimizer = std::unique_ptr<optim::Optimizer> (*)(std::vector<at::Tensor>);

template <typename Optimizer, typename Options>
std::unique_ptr<optim::Optimizer> make(std::vector<at::Tensor> tensors, const Options& options) {
  return std::make_unique<Optimizer>(std::move(tensors), options);
}

class ShardStoreWith : public testing::TestWithParam<MakeOptimizer> {
 protected:
  // A variable of 7 rows in 3 parts, on one server.
  static const ps::PlacementPlan& plan() {
    static const ps::PlacementPlan plan({{.name = "w", .dtype = "F32", .shape = {7, 5}}},
                                        {.partitioner = FixedShardsPartitioner(3)});
    return plan;
  }

  static std::span<const std::byte> bytes_of(const at::Tensor& tensor) {
    return {static_cast<const std::byte*>(tensor.data_ptr()), tensor.nbytes()};
  }

  static void fill(TorchShardStore& store, const at::Tensor& whole) {
    for (std::size_t i = 0; i < plan().shards().size(); ++i) {
      const ps::Shard& shard = plan().shards()[i];
      const at::Tensor part = whole.slice(0, shard.row_begin, shard.row_end).contiguous();
      ASSERT_EQ(store.values(i).size(), part.nbytes());
      std::memcpy(store.values(i).data(), part.data_ptr(), part.nbytes());
    }
  }

  static at::Tensor all(TorchShardStore& store) {
    std::vector<at::Tensor> parts;
    for (std::size_t i = 0; i < plan().shards().size(); ++i) {
      parts.push_back(at::from_blob(store.values(i).data(), plan().shard_shape(i)).clone());
    }
    return at::cat(parts);
  }

  static void push(TorchShardStore& store, const at::Tensor& gradient, double rate) {
    for (std::size_t i = 0; i < plan().shards().size(); ++i) {
      const ps::Shard& shard = plan().shards()[i];
      const at::Tensor part = gradient.slice(0, shard.row_begin, shard.row_end).contiguous();
      store.apply(i, {.values = bytes_of(part), .learning_rate = rate});
    }
  }

  std::unique_ptr<optim::Optimizer> over(const at::Tensor& tensor) const { return GetParam()({tensor}); }
};

INSTANTIATE_TEST_SUITE_P(
    Optimizers, ShardStoreWith,
    testing::Values(
        MakeOptimizer([](std::vector<at::Tensor> t) {
          return make<optim::SGD>(std::move(t), optim::SGDOptions(0.1).momentum(0.9).weight_decay(1e-3));
        }),
        MakeOptimizer([](std::vector<at::Tensor> t) {
          return make<optim::Adam>(std::move(t), optim::AdamOptions(0.01).amsgrad(true).betas({0.8, 0.95}));
        }),
        MakeOptimizer([](std::vector<at::Tensor> t) {
          return make<optim::AdamW>(std::move(t), optim::AdamWOptions(0.01).weight_decay(0.1));
        }),
        MakeOptimizer([](std::vector<at::Tensor> t) {
          return make<optim::RMSprop>(std::move(t), optim::RMSpropOptions(0.01).centered(true).momentum(0.5));
        }),
        MakeOptimizer([](std::vector<at::Tensor> t) {
          return make<optim::Adagrad>(std::move(t),
                                      optim::AdagradOptions(0.1).initial_accumulator_value(0.2));
        }),
        MakeOptimizer([](std::vector<at::Tensor> t) {
          return make<Ftrl>(std::move(t), FtrlTorchOptions(0.1).l1(0.01).l2(0.02));
        })));

TEST_P(ShardStoreWith, UpdatesAsTheOptimizerItselfToTheLastBit) {
  torch::manual_seed(1);
  const at::Tensor whole = at::randn({7, 5});
  const auto optimizer = over(whole);
  TorchShardStore store;
  store.create(plan(), 0, describe_optimizer(*optimizer));
  fill(store, whole);
  TorchShardStore successor;  // takes over from a snapshot in the middle
  TorchShardStore* current = &store;
  for (int step = 0; step < 6; ++step) {
    const double rate = 0.1 / (step + 1);
    for (auto& group : optimizer->param_groups()) group.options().set_lr(rate);
    whole.mutable_grad() = at::randn({7, 5});
    optimizer->step();
    push(*current, whole.grad(), rate);
    EXPECT_TRUE(all(*current).equal(whole)) << step;
    if (step != 2) continue;
    successor.create(plan(), 0, describe_optimizer(*optimizer));
    fill(successor, all(store));
    for (std::size_t i = 0; i < 3; ++i) successor.restore_state(i, store.state(i));
    current = &successor;
  }
}

TEST_P(ShardStoreWith, UpdatesRowsAloneAndLeavesTheOthers) {
  torch::manual_seed(2);
  const ps::PlacementPlan one({{.name = "table", .dtype = "F32", .shape = {6, 4}}}, {});
  const at::Tensor begin = at::randn({6, 4});
  TorchShardStore store;
  store.create(one, 0, describe_optimizer(*over(begin.clone())));
  std::memcpy(store.values(0).data(), begin.data_ptr(), begin.nbytes());
  // The rows as tensors of their own.
  const std::vector<std::int64_t> rows{1, 4};
  at::Tensor expected = begin.index_select(0, at::tensor(rows));
  const auto optimizer = over(expected);
  for (int step = 0; step < 3; ++step) {
    expected.mutable_grad() = at::randn({2, 4});
    optimizer->step();
    store.apply(0, {.kind = ps::PayloadKind::kRows,
                    .row_ids = rows,
                    .values = bytes_of(expected.grad()),
                    .learning_rate = optimizer->param_groups().front().options().get_lr()});
  }
  const at::Tensor now = at::from_blob(store.values(0).data(), {6, 4});
  EXPECT_TRUE(now.index_select(0, at::tensor(rows)).equal(expected));
  const at::Tensor others = at::tensor(std::vector<std::int64_t>{0, 2, 3, 5});
  EXPECT_TRUE(now.index_select(0, others).equal(begin.index_select(0, others)));
}

TEST(ShardStore, GivesRowsThatComeLaterTheStateTheyBeganWith) {
  const ps::PlacementPlan one({{.name = "table", .dtype = "F32", .shape = {3, 2}}}, {});
  TorchShardStore store;
  store.create(one, 0,
               describe_optimizer(Ftrl(std::vector<at::Tensor>{at::zeros({1})}, FtrlTorchOptions(0.1))));
  const at::Tensor gradient = at::full({1, 2}, 0.5);
  for (const std::int64_t row : {0, 2}) {
    store.apply(0, {.kind = ps::PayloadKind::kRows,
                    .row_ids = {&row, 1},
                    .values = {static_cast<const std::byte*>(gradient.data_ptr()), gradient.nbytes()},
                    .learning_rate = 0.1});
  }
  const at::Tensor now = at::from_blob(store.values(0).data(), {3, 2});
  EXPECT_TRUE(now[0].equal(now[2]));
  EXPECT_TRUE(now[1].equal(at::zeros({2})));
}

TEST(OptimizerDescription, KeepsTheGroups) {
  const at::Tensor a = at::zeros({2}), b = at::zeros({2});
  std::vector<optim::OptimizerParamGroup> groups;
  groups.emplace_back(std::vector<at::Tensor>{a},
                      std::make_unique<optim::SGDOptions>(optim::SGDOptions(0.1).weight_decay(0.5)));
  groups.emplace_back(std::vector<at::Tensor>{b}, std::make_unique<optim::SGDOptions>(0.1));
  const std::string text = describe_optimizer(optim::SGD(groups, optim::SGDOptions(0.1)));
  for (const int group : {0, 1}) {
    const at::Tensor values = at::ones({2});
    values.mutable_grad() = at::zeros({2});
    optimizer_from_description(text, group, {values})->step();
    EXPECT_FLOAT_EQ(values[0].item<float>(), group == 0 ? 0.95f : 1.0f);
  }
}

TEST(OptimizerDescription, RefusesWhatItDoesNotKnow) {
  const optim::LBFGS lbfgs(std::vector<at::Tensor>{at::zeros({1})}, optim::LBFGSOptions());
  EXPECT_EQ(
      message_of<InvalidArgument>([&] { describe_optimizer(lbfgs); }),
      "parameter servers cannot run this optimizer: expected SGD, Adam, AdamW, RMSprop, Adagrad or Ftrl");
  for (const char* text : {"", "{}", R"({"kind":"Nadam","groups":[{}]})", R"({"kind":"SGD","groups":[]})",
                           R"({"kind":"SGD","groups":[{"lr":"x"}]})"}) {
    EXPECT_THROW(optimizer_from_description(text, 0, {at::zeros({1})}), InvalidArgument) << text;
  }
}

TEST(ShardStore, RefusesVariablesThatNoOptimizerChanges) {
  const optim::SGD sgd(std::vector<at::Tensor>{at::zeros({1})}, optim::SGDOptions(0.1));
  TorchShardStore store;
  EXPECT_EQ(message_of<InvalidArgument>([&] {
              store.create(ps::PlacementPlan({{.name = "n", .dtype = "I64", .shape = {3}}}, {}), 0,
                           describe_optimizer(sgd));
            }),
            "variable \"n\" is I64: expected floating-point values, which an optimizer can change");
}

}  // namespace
}  // namespace tandem::internal
