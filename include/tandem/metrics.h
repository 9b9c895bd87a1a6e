#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "tandem/replica.h"

namespace tandem {

// A mean over examples, gathered on the replicas and combined when read (TensorFlow's ON_READ variables with
// SUM).
//
// A Metric is a value: a shared handle. update() from the replicas, each on its own thread; result() and
// reset() in cross-replica context. Create it in the scope of the strategy, or give it to Model::compile().
class Metric {
 public:
  using Values = std::function<at::Tensor(const at::Tensor& y_true, const at::Tensor& y_pred)>;

  // values(y_true, y_pred) gives one number per example, [rows].
  Metric(std::string name, Values values);

  const std::string& name() const;

  // Counts the examples of one replica's piece; a piece without rows counts nothing.
  void update(const ReplicaContext& replica, const at::Tensor& y_true, const at::Tensor& y_pred,
              const at::Tensor& sample_weight = {}) const;
  // Counts a number already at hand, weighing `count` examples.
  void update_mean(const ReplicaContext& replica, double mean, double count) const;

  // The weighted mean over all examples since reset(), over all replicas of all tasks; 0 before the first.
  // With several tasks a collective.
  double result() const;
  void reset() const;

  // For the rooms around.
  struct State;
  State& state() const { return *state_; }

 private:
  std::shared_ptr<State> state_;
};

namespace metrics {

// Whether the highest of y_pred [rows, classes] is the class number in y_true [rows].
Metric sparse_categorical_accuracy(std::string name = "sparse_categorical_accuracy");
// The same under Keras's short name for it.
Metric accuracy();
Metric sparse_top_k_categorical_accuracy(std::int64_t k = 5,
                                         std::string name = "sparse_top_k_categorical_accuracy");
// y_true one-hot, [rows, classes].
Metric categorical_accuracy(std::string name = "categorical_accuracy");
// Whether y_pred is above the threshold where y_true is 1; the mean over all but the first dimension.
Metric binary_accuracy(double threshold = 0.5, std::string name = "binary_accuracy");
Metric mean_squared_error(std::string name = "mean_squared_error");
Metric mean_absolute_error(std::string name = "mean_absolute_error");
// A mean of numbers given by update_mean().
Metric mean(std::string name = "mean");

}  // namespace metrics
}  // namespace tandem
