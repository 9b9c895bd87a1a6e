#include "tandem/metrics.h"

#include <gtest/gtest.h>
#include <torch/torch.h>

#include <limits>

#include "strategy/tasks_in_one_process.h"
#include "support/errors.h"
#include "support/oracle.h"
#include "support/tensors.h"
#include "tandem/error.h"
#include "tandem/mirrored_strategy.h"

namespace tandem {
namespace {

using testing_support::message_of;
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

// The worked examples of Keras's own documentation and tests.
TEST(PrecisionAndRecall, AnswerAsKerasForEverySplit) {
  const at::Tensor y_true = torch::tensor({0, 1, 1, 1});
  const at::Tensor y_pred = torch::tensor({1.0, 0.0, 1.0, 1.0});
  const at::Tensor third = torch::tensor({0.0, 0.0, 1.0, 0.0});
  for (std::int64_t cut = 0; cut <= 4; ++cut) {
    EXPECT_DOUBLE_EQ(result(metrics::precision(), y_true, y_pred, cut), 2.0 / 3);
    EXPECT_DOUBLE_EQ(result(metrics::precision(), y_true, y_pred, cut, third), 1);
    EXPECT_DOUBLE_EQ(result(metrics::recall(), y_true, y_pred, cut), 2.0 / 3);
    EXPECT_DOUBLE_EQ(result(metrics::recall(), y_true, y_pred, cut, third), 1);
  }
}

TEST(PrecisionAndRecall, TakeWhatIsAboveTheThresholdForOne) {
  const at::Tensor y_true = torch::tensor({{1}, {0}, {1}, {0}});
  const at::Tensor y_pred = torch::tensor({{0.2}, {0.5}, {0.75}, {0.8}});
  EXPECT_DOUBLE_EQ(result(metrics::precision({.threshold = 0.5}), y_true, y_pred, 2), 0.5);
  EXPECT_DOUBLE_EQ(result(metrics::recall({.threshold = 0.5}), y_true, y_pred, 2), 0.5);
  EXPECT_DOUBLE_EQ(result(metrics::precision({.threshold = 0.1}), y_true, y_pred, 2), 0.5);
  EXPECT_DOUBLE_EQ(result(metrics::recall({.threshold = 0.1}), y_true, y_pred, 2), 1);
  EXPECT_DOUBLE_EQ(result(metrics::precision({.threshold = 0.9}), y_true, y_pred, 2), 0);
  // The scores of the same probabilities.
  EXPECT_DOUBLE_EQ(result(metrics::precision({.from_logits = true}), y_true, y_pred.logit(), 2), 0.5);
}

TEST(Auc, AnswersAsKerasForEveryCurveAndSummation) {
  using enum metrics::AucSummation;
  const at::Tensor y_true = torch::tensor({0, 0, 1, 1});
  const at::Tensor y_pred = torch::tensor({0.0, 0.5, 0.3, 0.9});
  const at::Tensor weights = torch::tensor({1.0, 2.0, 3.0, 4.0});
  const auto auc = [&](metrics::AucCurve curve, metrics::AucSummation summation, const at::Tensor& weight) {
    std::vector<double> answers;
    for (std::int64_t cut = 0; cut <= 4; ++cut) {
      answers.push_back(
          result(metrics::auc({.num_thresholds = 3, .curve = curve, .summation_method = summation}), y_true,
                 y_pred, cut, weight));
      EXPECT_DOUBLE_EQ(answers.back(), answers.front());
    }
    return answers.front();
  };
  constexpr auto kRoc = metrics::AucCurve::kRoc, kPr = metrics::AucCurve::kPr;
  EXPECT_DOUBLE_EQ(auc(kRoc, kInterpolation, {}), 0.75);
  EXPECT_DOUBLE_EQ(auc(kRoc, kInterpolation, torch::tensor({1.0, 0.0, 0.0, 1.0})), 1);
  EXPECT_NEAR(auc(kRoc, kInterpolation, weights), 0.785714, 1e-6);
  EXPECT_DOUBLE_EQ(auc(kRoc, kMajoring, weights), 1);
  EXPECT_NEAR(auc(kRoc, kMinoring, weights), 0.571429, 1e-6);
  EXPECT_NEAR(auc(kPr, kInterpolation, weights), 0.916613, 1e-6);
  EXPECT_DOUBLE_EQ(auc(kPr, kMajoring, weights), 1);
  EXPECT_NEAR(auc(kPr, kMinoring, weights), 0.3, 1e-12);
  // Thresholds of one's own, in any order.
  EXPECT_DOUBLE_EQ(result(metrics::auc({.thresholds = {0.5}}), y_true, y_pred, 1), 0.75);
}

// With predictions that lie between thresholds the area is exact, and can be found in other ways: that under
// the ROC curve is how often a 1 is above a 0; that under the other one is an integral.
TEST(Auc, IsTheAreaUnderTheCurve) {
  torch::manual_seed(6);
  const at::Tensor y_true = torch::randint(2, {300}, torch::kDouble);
  const at::Tensor weight = torch::rand({300}, torch::kDouble);
  const at::Tensor bucket = (torch::rand({300}, torch::kDouble) * 150 + 45 * y_true).floor();
  const at::Tensor y_pred = (bucket + 0.5) / 199;

  const at::Tensor above = (y_pred.unsqueeze(1) > y_pred.unsqueeze(0)).to(torch::kDouble) +
                           0.5 * (y_pred.unsqueeze(1) == y_pred.unsqueeze(0));
  const at::Tensor ones = weight * y_true, zeros = weight * (1 - y_true);
  const double rank = ones.dot(above.mv(zeros)).item<double>() / (ones.sum() * zeros.sum()).item<double>();
  EXPECT_NEAR(result(metrics::auc(), y_true, y_pred, 111, weight), rank, 1e-12);

  double area = 0, tp = 0, fp = 0;  // from the highest threshold down, both counts growing in proportion
  for (int place = 198; place >= 0; --place) {
    const at::Tensor here = (bucket == place).to(torch::kDouble);
    const double more_tp = ones.dot(here).item<double>(), more_fp = zeros.dot(here).item<double>();
    constexpr int kParts = 2000;
    for (int part = 0; part < kParts && more_tp > 0; ++part) {
      const double share = (part + 0.5) / kParts;
      const double now = tp + share * more_tp;
      area += now / (now + fp + share * more_fp) * more_tp / kParts;
    }
    tp += more_tp;
    fp += more_fp;
  }
  EXPECT_NEAR(result(metrics::auc({.curve = metrics::AucCurve::kPr}), y_true, y_pred, 111, weight),
              area / ones.sum().item<double>(), 1e-6);
}

TEST(Auc, RefusesWhatIsNoProbability) {
  two_replicas().run([&](ReplicaContext& replica) {
    const auto refusal = [&](const at::Tensor& y_true, const at::Tensor& y_pred) {
      return message_of<InvalidArgument>([&] { metrics::auc().update(replica, y_true, y_pred); });
    };
    EXPECT_EQ(
        refusal(torch::tensor({0, 1}), torch::tensor({0.5, 1.5})),
        "metric \"auc\": y_pred has 1.5: expected numbers from 0 to 1 (of scores: {.from_logits = true})");
    EXPECT_EQ(
        refusal(torch::tensor({0, 1}), torch::tensor({0.5, std::nan("")})),
        "metric \"auc\": y_pred has nan: expected numbers from 0 to 1 (of scores: {.from_logits = true})");
    EXPECT_EQ(refusal(torch::tensor({-1, 1}), torch::tensor({0.5, 0.5})),
              "metric \"auc\": y_true has -1: expected numbers from 0 to 1");
  });
  EXPECT_THROW(metrics::auc({.num_thresholds = 1}), InvalidArgument);
  EXPECT_THROW(metrics::auc({.thresholds = {1.5}}), InvalidArgument);
  EXPECT_THROW(metrics::recall({.threshold = -1}), InvalidArgument);
}

TEST(Metrics, AddUpOverTheReplicasOfAllTasks) {
  torch::manual_seed(6);
  const at::Tensor y_true = torch::randint(2, {40}), y_pred = torch::rand({40}), weight = torch::rand({40});
  const std::vector<std::function<Metric()>> all{
      [] { return metrics::precision(); }, [] { return metrics::recall(); }, [] { return metrics::auc(); },
      [] { return metrics::auc({.curve = metrics::AucCurve::kPr}); }};
  std::vector<double> alone;
  for (const auto& make : all) alone.push_back(result(make(), y_true, y_pred, 40, weight));
  testing_support::run_tasks(2, 2, {}, [&](Strategy& strategy, int) {
    for (std::size_t i = 0; i < all.size(); ++i) {
      const Metric metric = strategy.scope([&] { return all[i](); });
      strategy.run([&](ReplicaContext& replica) {  // 1, 4, 9 and 26 rows
        const std::int64_t begins[]{0, 1, 5, 14, 40};
        const auto piece = [&](const at::Tensor& rows) {
          return rows.slice(0, begins[replica.id()], begins[replica.id() + 1]);
        };
        metric.update(replica, piece(y_true), piece(y_pred), piece(weight));
      });
      EXPECT_NEAR(metric.result(), alone[i], 1e-12) << metric.name();
    }
  });
}

TEST(Metrics, CanBeMadeOfAnySums) {
  // The deviation of what is predicted: from how many there are, their sum and that of their squares.
  const Metric deviation(
      "deviation",
      Metric::Sums{.size = 3,
                   .add =
                       [](const at::Tensor&, const at::Tensor& y_pred, const at::Tensor& weight) {
                         return torch::stack(
                             {weight.sum(), (weight * y_pred).sum(), (weight * y_pred * y_pred).sum()});
                       },
                   .result =
                       [](const std::vector<double>& sums) {
                         const double mean = sums[1] / sums[0];
                         return std::sqrt(sums[2] / sums[0] - mean * mean);
                       }});
  const at::Tensor y = torch::tensor({2.0, 4.0, 4.0, 4.0, 5.0, 5.0, 7.0, 9.0}, torch::kDouble);
  EXPECT_DOUBLE_EQ(result(deviation, y, y, 3), 2);
  two_replicas().run([&](ReplicaContext& replica) {
    EXPECT_THROW(deviation.update_mean(replica, 1, 1), FailedPrecondition);
    const Metric wrong("wrong",
                       Metric::Sums{.size = 2,
                                    .add = [](auto&&, auto&&, const at::Tensor& weight) { return weight; },
                                    .result = [](auto&&) { return 0.0; }});
    EXPECT_EQ(message_of<InvalidArgument>([&] { wrong.update(replica, y, y); }),
              "metric \"wrong\": add gave 8 numbers: expected 2, one for each sum");
  });
  EXPECT_THROW(Metric("none", Metric::Sums{.size = 1}), InvalidArgument);
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
