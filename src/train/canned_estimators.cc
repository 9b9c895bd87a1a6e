#include "tandem/canned_estimators.h"

#include <fmt/format.h>
#include <torch/torch.h>

#include <algorithm>
#include <cmath>
#include <optional>

#include "cluster/text.h"
#include "tandem/error.h"
#include "tandem/feature_layers.h"
#include "tandem/optimizers.h"
#include "train/heads.h"

namespace tandem {
namespace {

using internal::classification_head;
using internal::Head;
using internal::regression_head;

Optimizer make_optimizer(const OptimizerChoice& choice, double learning_rate) {
  if (const auto* make = std::get_if<std::function<Optimizer()>>(&choice)) return (*make)();
  const std::string& name = std::get<std::string>(choice);
  if (name == "Adagrad") return optimizers::Adagrad({.learning_rate = learning_rate});
  if (name == "Adam") return optimizers::Adam({.learning_rate = learning_rate});
  if (name == "Ftrl") return optimizers::Ftrl({.learning_rate = learning_rate});
  if (name == "RMSProp") return optimizers::RMSprop({.learning_rate = learning_rate});
  if (name == "SGD") return optimizers::SGD({.learning_rate = learning_rate});
  const std::vector<std::string> names{"Adagrad", "Adam", "Ftrl", "RMSProp", "SGD"};
  throw InvalidArgument(
      fmt::format("optimizer {}{}: expected Adagrad, Adam, Ftrl, RMSProp or SGD, or a function",
                  internal::quote(name), internal::did_you_mean(name, names)));
}

// TensorFlow's: sparse features want small steps.
double linear_learning_rate(std::size_t columns) {
  return std::min(0.2, 1 / std::sqrt(static_cast<double>(columns)));
}

// The column, if there is one.
std::optional<FeatureColumn> weights_of(const WeightColumn& choice) {
  if (const auto* key = std::get_if<std::string>(&choice)) {
    return key->empty() ? std::nullopt : std::optional(numeric_column(*key));
  }
  const FeatureColumn& column = std::get<FeatureColumn>(choice);
  if (column.width() != 1 || column.num_buckets() > 0 || column.embedded()) {
    throw InvalidArgument(fmt::format("weight_column {}: expected a numeric_column of one number in a row",
                                      internal::quote(column.name())));
  }
  return column;
}

// Metrics count: each model gets its own.
using MakeHead = std::function<Head()>;

// Takes weights and labels out of a batch.
std::function<Batch(Batch)> preparation(const Head& head, const WeightColumn& weight_column) {
  return [labels = head.labels, weights = weights_of(weight_column)](Batch batch) {
    batch.y = labels(batch.y);
    if (!weights) return batch;
    const at::Tensor weight = weights->values(batch.x.map()).select(1, 0);
    const at::Tensor& given = batch.sample_weight;
    batch.sample_weight = given.defined() ? weight * given.reshape_as(weight) : weight;
    return batch;
  };
}

ModelFn model_fn_of(const MakeHead& make_head, const WeightColumn& weight_column,
                    std::function<NetworkFactory(std::int64_t outputs)> module,
                    std::function<Optimizer()> optimizer) {
  preparation(make_head(), weight_column);  // wrong options are told at once
  optimizer();
  return [=](const Tensors& features, const Tensors& labels, ModeKeys mode, const HParams&,
             const RunConfig&) {
    if (!features.is_map()) {
      throw InvalidArgument(
          "the input has one tensor without a name: expected features by name, Batch{.x = "
          "Tensors::Map{...}}");
    }
    if (mode != ModeKeys::kPredict && !labels.defined()) {
      throw InvalidArgument("the input has no labels: expected them as y of its batches (csv: label_name)");
    }
    Head head = make_head();
    EstimatorSpec spec{.module = module(head.outputs),
                       .loss = head.loss,
                       .eval_metric_ops = head.metrics,
                       .predictions = head.predictions,
                       .prepare_batch = preparation(head, weight_column)};
    if (mode == ModeKeys::kTrain) spec.optimizer = optimizer();
    return spec;
  };
}

ModelFn linear_model_fn(const std::vector<FeatureColumn>& columns, const LinearEstimatorOptions& options,
                        const MakeHead& make_head) {
  LinearModel check(columns);
  return model_fn_of(
      make_head, options.weight_column,
      [columns](std::int64_t outputs) -> NetworkFactory {
        return [=] { return LinearModel(columns, LinearModelOptions{.units = outputs}); };
      },
      [choice = options.optimizer, rate = linear_learning_rate(columns.size())] {
        return make_optimizer(choice, rate);
      });
}

class DnnImpl final : public torch::nn::Module {
 public:
  DnnImpl(const std::vector<FeatureColumn>& columns, const DNNEstimatorOptions& options, std::int64_t outputs)
      : features_(register_module("features", DenseFeatures(columns))), dropout_(options.dropout) {
    std::int64_t width = features_->width();
    for (const std::int64_t units : options.hidden_units) {
      add(fmt::format("hiddenlayer_{}", layers_.size()), width, units);
      width = units;
    }
    add("logits", width, outputs);
  }

  at::Tensor forward(const std::map<std::string, at::Tensor>& x) {
    at::Tensor y = features_->forward(x);
    for (std::size_t i = 0; i + 1 < layers_.size(); ++i) {
      y = layers_[i](y).relu();
      if (dropout_ > 0) y = at::dropout(y, dropout_, is_training());
    }
    return layers_.back()(y);
  }

 private:
  // TensorFlow's initial values.
  void add(const std::string& name, std::int64_t in, std::int64_t out) {
    layers_.push_back(register_module(name, torch::nn::Linear(in, out)));
    torch::nn::init::xavier_uniform_(layers_.back()->weight);
    torch::nn::init::zeros_(layers_.back()->bias);
  }

  DenseFeatures features_;
  double dropout_;
  std::vector<torch::nn::Linear> layers_;
};

ModelFn dnn_model_fn(const std::vector<FeatureColumn>& columns, const DNNEstimatorOptions& options,
                     const MakeHead& make_head) {
  constexpr double kLearningRate = 0.05;
  if (options.hidden_units.empty())
    throw InvalidArgument("hidden_units is empty: expected one number per layer");
  for (const std::int64_t units : options.hidden_units) {
    if (units < 1) throw InvalidArgument(fmt::format("hidden_units has {}: expected 1 or more", units));
  }
  if (!(options.dropout >= 0) || options.dropout >= 1) {
    throw InvalidArgument(fmt::format("dropout is {}: expected 0 or more, and below 1", options.dropout));
  }
  DenseFeatures check(columns);
  return model_fn_of(
      make_head, options.weight_column,
      [columns, options](std::int64_t outputs) -> NetworkFactory {
        return [=] { return std::make_shared<DnnImpl>(columns, options, outputs); };
      },
      [choice = options.optimizer] { return make_optimizer(choice, kLearningRate); });
}

}  // namespace

LinearRegressor::LinearRegressor(std::vector<FeatureColumn> feature_columns, LinearEstimatorOptions options)
    : Estimator(linear_model_fn(feature_columns, options,
                                [n = options.label_dimension] { return regression_head(n); }),
                {.model_dir = options.model_dir, .config = options.config}) {}

LinearClassifier::LinearClassifier(std::vector<FeatureColumn> feature_columns, LinearEstimatorOptions options)
    : Estimator(linear_model_fn(feature_columns, options,
                                [n = options.n_classes, vocabulary = options.label_vocabulary] {
                                  return classification_head(n, vocabulary);
                                }),
                {.model_dir = options.model_dir, .config = options.config}) {}

DNNClassifier::DNNClassifier(std::vector<FeatureColumn> feature_columns, DNNEstimatorOptions options)
    : Estimator(dnn_model_fn(feature_columns, options,
                             [n = options.n_classes, vocabulary = options.label_vocabulary] {
                               return classification_head(n, vocabulary);
                             }),
                {.model_dir = options.model_dir, .config = options.config}) {}

DNNRegressor::DNNRegressor(std::vector<FeatureColumn> feature_columns, DNNEstimatorOptions options)
    : Estimator(dnn_model_fn(feature_columns, options,
                             [n = options.label_dimension] { return regression_head(n); }),
                {.model_dir = options.model_dir, .config = options.config}) {}

}  // namespace tandem
