#pragma once

#include <concepts>
#include <cstdint>
#include <functional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "tandem/estimator.h"
#include "tandem/feature_column.h"

namespace tandem {

// An optimizer by TensorFlow's name ("Adagrad", "Adam", "Ftrl", "RMSProp", "SGD"), or a function that makes a
// new one each time: [] { return tandem::optimizers::SGD({.learning_rate = 0.1}); }.
using OptimizerChoice = std::variant<std::string, std::function<Optimizer()>>;

// How much each row counts, in the loss and in every metric: a numeric column, or the feature of that name,
// with one number in a row. It need not be among the feature columns. Empty: every row counts 1.
using WeightColumn = std::variant<std::string, FeatureColumn>;

struct LinearEstimatorOptions {
  std::string model_dir = {};
  RunConfig config = {};
  WeightColumn weight_column = "";
  // By name: with a learning rate of 0.2, or 1 / sqrt(number of columns) if that is less.
  OptimizerChoice optimizer = "Ftrl";
  // Of a regressor: numbers in a label.
  std::int64_t label_dimension = 1;
  // Of a classifier: labels are 0 to n_classes - 1.
  std::int64_t n_classes = 2;
  // Labels are texts, as data::csv() and data::string_tensor() make them: that of class i is the i-th. A
  // label that is not among them ends the step with InvalidArgument.
  std::vector<std::string> label_vocabulary = {};
};

// y = sum of weight x feature + bias, by the mean squared error. evaluate() gives "average_loss", "loss",
// "label/mean", "prediction/mean" and "global_step"; predict() "predictions". Weights are named
// "<column>_weights" and "bias".
class LinearRegressor final : public Estimator {
 public:
  explicit LinearRegressor(std::vector<FeatureColumn> feature_columns, LinearEstimatorOptions options = {});
  template <std::same_as<RunConfig> Config>
  LinearRegressor(std::vector<FeatureColumn> feature_columns, Config config)
      : LinearRegressor(std::move(feature_columns), LinearEstimatorOptions{.config = std::move(config)}) {}
};

// The same with a score for each class (one score for two classes), by the cross-entropy. evaluate() gives
// "accuracy", "average_loss", "loss" and "global_step"; for two classes also "accuracy_baseline" (of always
// telling the more frequent one), "auc", "auc_precision_recall", "label/mean", "precision", "prediction/mean"
// and "recall". predict() gives "logits", "probabilities" and "class_ids".
class LinearClassifier final : public Estimator {
 public:
  explicit LinearClassifier(std::vector<FeatureColumn> feature_columns, LinearEstimatorOptions options = {});
  template <std::same_as<RunConfig> Config>
  LinearClassifier(std::vector<FeatureColumn> feature_columns, Config config)
      : LinearClassifier(std::move(feature_columns), LinearEstimatorOptions{.config = std::move(config)}) {}
};

struct DNNEstimatorOptions {
  // Of the layers between features and scores.
  std::vector<std::int64_t> hidden_units = {};
  std::string model_dir = {};
  RunConfig config = {};
  WeightColumn weight_column = "";
  // By name: with a learning rate of 0.05.
  OptimizerChoice optimizer = "Adagrad";
  // The part of each hidden layer that is left out in a step.
  double dropout = 0;
  std::int64_t label_dimension = 1;                // of a regressor
  std::int64_t n_classes = 2;                      // of a classifier
  std::vector<std::string> label_vocabulary = {};  // likewise
};

// Dense layers with ReLU between the features and the scores; otherwise as their linear kin.
class DNNClassifier final : public Estimator {
 public:
  DNNClassifier(std::vector<FeatureColumn> feature_columns, DNNEstimatorOptions options);
};
class DNNRegressor final : public Estimator {
 public:
  DNNRegressor(std::vector<FeatureColumn> feature_columns, DNNEstimatorOptions options);
};

}  // namespace tandem
