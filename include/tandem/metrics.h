#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "tandem/replica.h"

namespace tandem {

// A number about many examples, from sums that are gathered on the replicas and added up when it is read
// (TensorFlow's ON_READ variables with SUM). So it is the same however the examples are dealt out.
//
// A Metric is a value: a shared handle. update() from the replicas, each on its own thread; result() and
// reset() in cross-replica context. Create it in the scope of the strategy, or give it to Model::compile().
class Metric {
 public:
  using Values = std::function<at::Tensor(const at::Tensor& y_true, const at::Tensor& y_pred)>;

  // A mean: values(y_true, y_pred) gives one number per example, [rows].
  Metric(std::string name, Values values);

  // For whatever is no mean, but can be told from several sums, as precision can from two counts.
  struct Sums {
    std::int64_t size = 0;
    // What these rows add to each: [size]. sample_weight is [rows], of ones where the batch has none.
    std::function<at::Tensor(const at::Tensor& y_true, const at::Tensor& y_pred,
                             const at::Tensor& sample_weight)>
        add = {};
    // What they come to. All are 0 before the first row.
    std::function<double(const std::vector<double>& sums)> result = {};
  };
  // Throws InvalidArgument if one of the three is missing.
  Metric(std::string name, Sums sums);

  const std::string& name() const;

  // Counts the examples of one replica's piece; a piece without rows counts nothing.
  void update(const ReplicaContext& replica, const at::Tensor& y_true, const at::Tensor& y_pred,
              const at::Tensor& sample_weight = {}) const;
  // Of a mean: counts a number already at hand, weighing `count` examples.
  void update_mean(const ReplicaContext& replica, double mean, double count) const;

  // Over all examples since reset(), of all replicas of all tasks. A mean is weighted, and 0 before the first
  // example. With several tasks a collective.
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

// Keras's metrics of two classes. y_true: 0 or 1; y_pred, of the same shape: how likely 1 is, from 0 to 1.
// Every number of a row counts as an example, with the row's weight. Updates throw InvalidArgument for
// numbers outside these ranges: mostly because the model gives scores, and from_logits was not said.
struct ThresholdOptions {
  // What is above it counts as 1.
  double threshold = 0.5;
  // Whether y_pred are raw scores, of which a sigmoid makes probabilities.
  bool from_logits = false;
};
// Of what was taken for 1, the part that is; 0 if nothing was.
Metric precision(ThresholdOptions options = {}, std::string name = "precision");
// Of what is 1, the part that was taken for it; 0 if nothing is.
Metric recall(ThresholdOptions options = {}, std::string name = "recall");

enum class AucCurve {
  kRoc,  // recall over the part of the 0s taken for 1
  kPr,   // precision over recall
};
// How the area between two points of the curve is filled in.
enum class AucSummation {
  kInterpolation,  // a straight line; of kPr the counts are interpolated, as Davis and Goadrich do
  kMinoring,       // as high as the lower point
  kMajoring,       // as the higher one
};
struct AucOptions {
  // Points of the curve: thresholds from 0 to 1 at equal distances. More are closer to the exact area.
  int num_thresholds = 200;
  AucCurve curve = AucCurve::kRoc;
  AucSummation summation_method = AucSummation::kInterpolation;
  // Those between 0 and 1, instead of num_thresholds.
  std::vector<double> thresholds = {};
  bool from_logits = false;  // as in ThresholdOptions
};
// The area under the curve. Some 400 sums in place of a mean's two: tasks that train with it exchange them in
// each step.
Metric auc(AucOptions options = {}, std::string name = "auc");

}  // namespace metrics
}  // namespace tandem
