#include "tandem/metrics.h"

#include <gtest/gtest.h>
#include <torch/torch.h>

#include <limits>

#include "support/oracle.h"
#include "support/tensors.h"
#include "tandem/error.h"
#include "tandem/mirrored_strategy.h"

namespace tandem {
namespace {

using testing_support::read_oracle;

const Strategy& two_replicas() {
  static const MirroredStrategy strategy({.devices = {"/cpu:0", "/cpu:1"}});
  return strategy;
}

// The result over a batch of which the first replica gets `cut` rows, the second the others.
double result(const Metric& metric, const at::Tensor& y_true, const at::Tensor& y_pred, std::int64_t cut,
              const at::Tensor& weight = {}) {
  metric.reset();
  two_replicas().run([&](ReplicaContext& replica) {
    const auto piece = [&](const at::Tensor& tensor) {
      if (!tensor.defined()) return tensor;
      return replica.id() == 0 ? tensor.slice(0, 0, cut) : tensor.slice(0, cut);
    };
    metric.update(replica, piece(y_true), piece(y_pred), piece(weight));
  });
  return metric.result();
}

// As Keras answers, however the rows are dealt out to the replicas; some get none.
TEST(Metrics, AnswerAsKerasForEverySplit) {
  for (const auto& example : read_oracle("losses_metrics")) {
    const at::Tensor labels = torch::tensor(example["labels"].get<std::vector<std::int64_t>>());
    const at::Tensor weights = testing_support::row(example["weights"]);
    const at::Tensor logits = testing_support::rows(example["logits"]);
    const at::Tensor one_hot = torch::one_hot(labels, logits.size(1));
    const double squared_error = testing_support::row(example["mean_squared_error"]).mean().item<double>();
    for (std::int64_t cut = 0; cut <= labels.size(0); ++cut) {
      EXPECT_NEAR(result(metrics::sparse_categorical_accuracy(), labels, logits, cut, weights),
                  example["weighted_accuracy"].get<double>(), 1e-6);
      EXPECT_NEAR(result(metrics::categorical_accuracy(), one_hot, logits, cut, weights),
                  example["weighted_accuracy"].get<double>(), 1e-6);
      EXPECT_NEAR(result(metrics::sparse_top_k_categorical_accuracy(2), labels, logits, cut),
                  example["top_2"].get<double>(), 1e-6);
      EXPECT_NEAR(result(metrics::mean_squared_error(), one_hot, logits, cut), squared_error, 1e-6);
    }
  }
}

TEST(Metrics, WeighEveryExampleAlikeInUnevenPieces) {
  const at::Tensor y_pred = torch::tensor({{2.0, 1.0}, {2.0, 1.0}, {1.0, 2.0}});
  EXPECT_DOUBLE_EQ(result(metrics::accuracy(), torch::tensor({0, 1, 1}), y_pred, 1), 2.0 / 3);
}

TEST(Metrics, GoOnUntilTheyAreReset) {
  const Metric metric = metrics::mean_absolute_error();
  EXPECT_DOUBLE_EQ(metric.result(), 0);
  two_replicas().run([&](ReplicaContext& replica) {
    metric.update(replica, torch::zeros({1}), torch::ones({1}));
    metric.update(replica, torch::zeros({3}), torch::full({3}, 3.0));
  });
  EXPECT_DOUBLE_EQ(metric.result(), 2.5);
  metric.reset();
  EXPECT_DOUBLE_EQ(metric.result(), 0);
}

TEST(Metrics, AreHandlesToOneState) {
  const Metric metric = metrics::mean();
  const Metric copy = metric;
  two_replicas().run([&](ReplicaContext& replica) { copy.update_mean(replica, 3, 1); });
  EXPECT_DOUBLE_EQ(metric.result(), 3);
}

// 1e16 + 1 - 1e16 is 0 or 1, as it is added: the order must not depend on the threads.
TEST(Metrics, GiveTheSameSumWhicheverReplicaComesFirst) {
  const Metric metric = metrics::mean();
  for (int round = 0; round < 50; ++round) {
    metric.reset();
    two_replicas().run([&](ReplicaContext& replica) {
      if (replica.id() == 0) metric.update_mean(replica, 1e16, 1);
      if (replica.id() == 1) metric.update_mean(replica, 1, 1);
      if (replica.id() == 0) metric.update_mean(replica, -1e16, 1);
    });
    ASSERT_DOUBLE_EQ(metric.result(), 1.0 / 3);
  }
}

TEST(MeanMetric, WeighsByTheCount) {
  const Metric metric = metrics::mean("loss");
  EXPECT_EQ(metric.name(), "loss");
  two_replicas().run([&](ReplicaContext& replica) {
    if (replica.id() == 0) metric.update_mean(replica, 2, 3);
    if (replica.id() == 1) metric.update_mean(replica, 6, 1);
  });
  EXPECT_DOUBLE_EQ(metric.result(), 3);
}

TEST(MeanMetric, CountsNothingForNoExamples) {
  const Metric metric = metrics::mean();
  two_replicas().run([&](ReplicaContext& replica) {
    metric.update_mean(replica, std::numeric_limits<double>::quiet_NaN(), 0);
  });
  EXPECT_DOUBLE_EQ(metric.result(), 0);
}

TEST(MeanMetric, RefusesTensorsAndNegativeCounts) {
  const Metric metric = metrics::mean();
  two_replicas().run([&](ReplicaContext& replica) {
    EXPECT_THROW(metric.update(replica, torch::zeros({1}), torch::zeros({1})), FailedPrecondition);
    EXPECT_THROW(metric.update_mean(replica, 1, -1), InvalidArgument);
  });
}

TEST(TopKAccuracy, CountsATieAsWithin) {
  const at::Tensor y_pred = torch::tensor({{3.0, 2.0, 2.0, 2.0}});
  EXPECT_DOUBLE_EQ(result(metrics::sparse_top_k_categorical_accuracy(2), torch::tensor({3}), y_pred, 1), 1);
  EXPECT_DOUBLE_EQ(result(metrics::sparse_top_k_categorical_accuracy(1), torch::tensor({3}), y_pred, 1), 0);
}

TEST(TopKAccuracy, IsNothingForScoresThatAreNoNumbers) {
  const at::Tensor y_pred = torch::full({1, 3}, std::numeric_limits<float>::quiet_NaN());
  EXPECT_DOUBLE_EQ(result(metrics::sparse_top_k_categorical_accuracy(2), torch::tensor({0}), y_pred, 1), 0);
}

TEST(TopKAccuracy, RefusesKBelowOne) {
  EXPECT_THROW(metrics::sparse_top_k_categorical_accuracy(0), InvalidArgument);
}

TEST(BinaryAccuracy, IsTheMeanOverARow) {
  const at::Tensor y_pred = torch::tensor({{0.9, 0.4}, {0.6, 0.5}});
  EXPECT_DOUBLE_EQ(result(metrics::binary_accuracy(), torch::tensor({{1, 1}, {1, 0}}), y_pred, 1), 0.75);
  EXPECT_DOUBLE_EQ(result(metrics::binary_accuracy(0.3), torch::tensor({{1, 1}, {1, 1}}), y_pred, 1), 1);
}

TEST(Metrics, RefuseWhatDoesNotFit) {
  two_replicas().run([&](ReplicaContext& replica) {
    const at::Tensor y_pred = torch::zeros({2, 3});
    EXPECT_THROW(metrics::accuracy().update(replica, torch::tensor({0, 3}), y_pred), InvalidArgument);
    EXPECT_THROW(metrics::accuracy().update(replica, torch::zeros({3}), y_pred), InvalidArgument);
    EXPECT_THROW(metrics::accuracy().update(replica, torch::zeros({2}), y_pred, torch::ones({3})),
                 InvalidArgument);
    EXPECT_THROW(metrics::categorical_accuracy().update(replica, torch::zeros({2}), y_pred), InvalidArgument);
    const Metric all("all", [](const at::Tensor&, const at::Tensor& predicted) { return predicted; });
    EXPECT_THROW(all.update(replica, y_pred, y_pred), InvalidArgument);
  });
}

TEST(Metrics, KeepNoGraphAlive) {
  const at::Tensor y_pred = torch::ones({2, 1}, torch::requires_grad());
  const Metric metric("value", [](const at::Tensor&, const at::Tensor& predicted) {
    const at::Tensor values = predicted.squeeze(1) * 2;
    EXPECT_FALSE(values.requires_grad());
    return values;
  });
  two_replicas().run([&](ReplicaContext& replica) { metric.update(replica, y_pred, y_pred); });
  EXPECT_DOUBLE_EQ(metric.result(), 2);
}

}  // namespace
}  // namespace tandem
