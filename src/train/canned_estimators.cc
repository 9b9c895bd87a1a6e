#include "tandem/canned_estimators.h"

#include <fmt/format.h>
#include <torch/torch.h>

#include <algorithm>
#include <cmath>

#include "cluster/text.h"
#include "tandem/error.h"
#include "tandem/feature_layers.h"
#include "tandem/optimizers.h"

namespace tandem {
namespace {

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

// What a model is compared with, and what is told of it: TensorFlow's heads.
struct Head {
  std::int64_t outputs = 1;
  Loss loss = {};
  std::vector<Metric> metrics = {};
  std::function<Tensors::Map(const at::Tensor&)> predictions = {};
};

at::Tensor mean_of_row(const at::Tensor& values) {
  return values.to(at::kDouble).reshape({values.size(0), -1}).mean(1);
}

Metric label_mean() {
  return Metric("label/mean",
                [](const at::Tensor& y_true, const at::Tensor&) { return mean_of_row(y_true); });
}

Metric average_loss(const Loss& loss) {
  return Metric("average_loss", loss.per_example);
}

void check_at_least(const char* name, std::int64_t value, std::int64_t least) {
  if (value < least) {
    throw InvalidArgument(fmt::format("{} is {}: expected {} or more", name, value, least));
  }
}

Head regression_head(std::int64_t label_dimension) {
  check_at_least("label_dimension", label_dimension, 1);
  const Loss loss = losses::mean_squared_error();
  return {
      .outputs = label_dimension,
      .loss = loss,
      .metrics = {average_loss(loss), label_mean(),
                  Metric("prediction/mean",
                         [](const at::Tensor&, const at::Tensor& y_pred) { return mean_of_row(y_pred); })},
      .predictions = [](const at::Tensor& output) {
        return Tensors::Map{{"predictions", output}};
      }};
}

// One score: that of class 1.
Head binary_head() {
  const Loss loss = losses::binary_crossentropy();
  const auto probabilities = [](const at::Tensor& logits) {
    const at::Tensor one = logits.sigmoid();
    return at::cat({1 - one, one}, 1);
  };
  return {.outputs = 1,
          .loss = loss,
          .metrics = {metrics::binary_accuracy(/*threshold=*/0, "accuracy"), average_loss(loss), label_mean(),
                      Metric("prediction/mean",
                             [](const at::Tensor&, const at::Tensor& y_pred) {
                               return mean_of_row(y_pred.sigmoid());
                             })},
          .predictions = [probabilities](const at::Tensor& logits) {
            return Tensors::Map{{"logits", logits},
                                {"logistic", logits.sigmoid()},
                                {"probabilities", probabilities(logits)},
                                {"class_ids", (logits > 0).to(at::kLong)}};
          }};
}

Head classification_head(std::int64_t n_classes) {
  check_at_least("n_classes", n_classes, 2);
  if (n_classes == 2) return binary_head();
  const Loss loss = losses::sparse_categorical_crossentropy();
  return {.outputs = n_classes,
          .loss = loss,
          .metrics = {metrics::accuracy(), average_loss(loss)},
          .predictions = [](const at::Tensor& logits) {
            return Tensors::Map{{"logits", logits},
                                {"probabilities", logits.softmax(1)},
                                {"class_ids", logits.argmax(1, /*keepdim=*/true)}};
          }};
}

// Metrics count: each model gets its own.
using MakeHead = std::function<Head()>;

ModelFn model_fn_of(const MakeHead& make_head, std::function<NetworkFactory(std::int64_t outputs)> module,
                    std::function<Optimizer()> optimizer) {
  make_head();  // wrong options are told at once
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
                       .predictions = head.predictions};
    if (mode == ModeKeys::kTrain) spec.optimizer = optimizer();
    return spec;
  };
}

ModelFn linear_model_fn(const std::vector<FeatureColumn>& columns, const MakeHead& make_head,
                        const OptimizerChoice& choice) {
  LinearModel check(columns);
  return model_fn_of(
      make_head,
      [columns](std::int64_t outputs) -> NetworkFactory {
        return [=] { return LinearModel(columns, LinearModelOptions{.units = outputs}); };
      },
      [choice, rate = linear_learning_rate(columns.size())] { return make_optimizer(choice, rate); });
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
  for (const std::int64_t units : options.hidden_units) check_at_least("hidden_units", units, 1);
  if (!(options.dropout >= 0) || options.dropout >= 1) {
    throw InvalidArgument(fmt::format("dropout is {}: expected 0 or more, and below 1", options.dropout));
  }
  DenseFeatures check(columns);
  return model_fn_of(
      make_head,
      [columns, options](std::int64_t outputs) -> NetworkFactory {
        return [=] { return std::make_shared<DnnImpl>(columns, options, outputs); };
      },
      [choice = options.optimizer] { return make_optimizer(choice, kLearningRate); });
}

}  // namespace

LinearRegressor::LinearRegressor(std::vector<FeatureColumn> feature_columns, LinearEstimatorOptions options)
    : Estimator(linear_model_fn(
                    feature_columns, [n = options.label_dimension] { return regression_head(n); },
                    options.optimizer),
                {.model_dir = options.model_dir, .config = options.config}) {}

LinearClassifier::LinearClassifier(std::vector<FeatureColumn> feature_columns, LinearEstimatorOptions options)
    : Estimator(
          linear_model_fn(
              feature_columns, [n = options.n_classes] { return classification_head(n); }, options.optimizer),
          {.model_dir = options.model_dir, .config = options.config}) {}

DNNClassifier::DNNClassifier(std::vector<FeatureColumn> feature_columns, DNNEstimatorOptions options)
    : Estimator(
          dnn_model_fn(feature_columns, options, [n = options.n_classes] { return classification_head(n); }),
          {.model_dir = options.model_dir, .config = options.config}) {}

DNNRegressor::DNNRegressor(std::vector<FeatureColumn> feature_columns, DNNEstimatorOptions options)
    : Estimator(dnn_model_fn(feature_columns, options,
                             [n = options.label_dimension] { return regression_head(n); }),
                {.model_dir = options.model_dir, .config = options.config}) {}

}  // namespace tandem
