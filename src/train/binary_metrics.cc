#include <fmt/format.h>
#include <torch/torch.h>

#include <algorithm>
#include <cmath>

#include "tandem/error.h"
#include "tandem/metrics.h"
#include "train/shapes.h"

namespace tandem::metrics {
namespace {

// One entry for each number of y_pred.
struct BinaryExamples {
  at::Tensor labels;
  at::Tensor predictions;
  at::Tensor weights;
};

void check_probabilities(const std::string& metric, const char* what, const at::Tensor& values,
                         const char* advice) {
  const auto [low, high] = at::aminmax(values);
  const double lowest = low.item<double>();
  const double highest = high.item<double>();
  if (lowest >= 0 && highest <= 1) return;
  const double wrong = lowest >= 0 ? highest : lowest;
  throw InvalidArgument(fmt::format("metric \"{}\": {} has {:.6g}: expected numbers from 0 to 1{}", metric,
                                    what, std::isnan(wrong) ? std::abs(wrong) : wrong, advice));
}

BinaryExamples binary_examples(const std::string& metric, bool from_logits, const at::Tensor& y_true,
                               const at::Tensor& y_pred, const at::Tensor& sample_weight) {
  const at::ScalarType type = y_pred.scalar_type() == at::kDouble ? at::kDouble : at::kFloat;
  const at::Tensor given = y_pred.to(type);
  const at::Tensor labels = internal::in_shape_of(given, y_true);
  // In double, so that a score of just above 0 is just above 0.5.
  const at::Tensor predictions = from_logits ? given.to(at::kDouble).sigmoid() : given;
  check_probabilities(metric, "y_true", labels, "");
  check_probabilities(metric, "y_pred", predictions,
                      from_logits ? "" : " (of scores: {.from_logits = true})");
  const at::Tensor weights = sample_weight.unsqueeze(1).expand({-1, given.numel() / given.size(0)});
  return {labels.flatten(), predictions.flatten(), weights.flatten()};
}

void check_threshold(const std::string& metric, double threshold) {
  if (threshold >= 0 && threshold <= 1) return;
  throw InvalidArgument(fmt::format("metric \"{}\": a threshold of {}: expected 0 to 1", metric, threshold));
}

double ratio(double part, double whole) {
  return whole == 0 ? 0 : part / whole;
}

// The weight of what was rightly taken for 1, beside that of what was wrong in one of two ways.
Metric right_among(ThresholdOptions options, std::string name, bool predicted) {
  check_threshold(name, options.threshold);
  const auto add = [=](const at::Tensor& y_true, const at::Tensor& y_pred, const at::Tensor& sample_weight) {
    const BinaryExamples examples = binary_examples(name, options.from_logits, y_true, y_pred, sample_weight);
    const at::Tensor taken = examples.predictions > options.threshold;
    const at::Tensor is_one = examples.labels != 0;
    return at::stack({(examples.weights * taken.logical_and(is_one)).sum(),
                      (examples.weights * (predicted ? taken : is_one)).sum()});
  };
  return Metric(name, Metric::Sums{.size = 2, .add = add, .result = [](const std::vector<double>& sums) {
                                     return ratio(sums[0], sums[1]);
                                   }});
}

// Keras's: the outermost lie just beyond 0 and 1, so that everything is above the first, and nothing above
// the last.
std::vector<double> auc_thresholds(const std::string& metric, const AucOptions& options) {
  constexpr double kBeyond = 1e-7;
  std::vector<double> thresholds = options.thresholds;
  for (const double threshold : thresholds) check_threshold(metric, threshold);
  if (thresholds.empty()) {
    if (options.num_thresholds < 2) {
      throw InvalidArgument(fmt::format("metric \"{}\": num_thresholds is {}: expected 2 or more", metric,
                                        options.num_thresholds));
    }
    for (int i = 1; i + 1 < options.num_thresholds; ++i) {
      thresholds.push_back(static_cast<double>(i) / (options.num_thresholds - 1));
    }
  }
  std::ranges::sort(thresholds);
  thresholds.insert(thresholds.begin(), -kBeyond);
  thresholds.push_back(1 + kBeyond);
  return thresholds;
}

// A point of the curve: the weight of the 1s and of the 0s above a threshold.
struct AboveThreshold {
  double ones = 0;
  double zeros = 0;
};

// What lies above each threshold, from the sums between two of them: those of the 1s, then of the 0s.
std::vector<AboveThreshold> above_thresholds(const std::vector<double>& sums) {
  const std::size_t between = sums.size() / 2;
  std::vector<AboveThreshold> points(between + 1);
  for (std::size_t i = between; i-- > 0;) {
    points[i] = {points[i + 1].ones + sums[i], points[i + 1].zeros + sums[between + i]};
  }
  return points;
}

// Between two points of the precision-recall curve both counts grow in proportion, so precision does not grow
// along a straight line: Davis and Goadrich, "The Relationship Between Precision-Recall and ROC Curves"
// (2006).
double interpolated_precision(const AboveThreshold& from, const AboveThreshold& to, double all_ones) {
  const double ones = from.ones - to.ones;
  const double taken_from = from.ones + from.zeros;
  const double taken_to = to.ones + to.zeros;
  const double slope = ratio(ones, std::max(taken_from - taken_to, 0.0));
  const double intercept = to.ones - slope * taken_to;
  const double growth = taken_from > 0 && taken_to > 0 ? taken_from / taken_to : 1;
  return ratio(slope * (ones + intercept * std::log(growth)), all_ones);
}

double area_under(const std::vector<AboveThreshold>& points, const AucOptions& options) {
  const AboveThreshold& all = points.front();
  const bool roc = options.curve == AucCurve::kRoc;
  const auto x = [&](const AboveThreshold& point) {
    return roc ? ratio(point.zeros, all.zeros) : ratio(point.ones, all.ones);
  };
  const auto y = [&](const AboveThreshold& point) {
    return roc ? ratio(point.ones, all.ones) : ratio(point.ones, point.ones + point.zeros);
  };
  double area = 0;
  for (std::size_t i = 0; i + 1 < points.size(); ++i) {
    const AboveThreshold &from = points[i], &to = points[i + 1];
    if (!roc && options.summation_method == AucSummation::kInterpolation) {
      area += interpolated_precision(from, to, all.ones);
      continue;
    }
    const auto [low, high] = std::minmax({y(from), y(to)});
    const double height = options.summation_method == AucSummation::kMinoring   ? low
                          : options.summation_method == AucSummation::kMajoring ? high
                                                                                : (low + high) / 2;
    area += (x(from) - x(to)) * height;
  }
  return area;
}

}  // namespace

Metric precision(ThresholdOptions options, std::string name) {
  return right_among(options, std::move(name), /*predicted=*/true);
}

Metric recall(ThresholdOptions options, std::string name) {
  return right_among(options, std::move(name), /*predicted=*/false);
}

// The sums are histograms of the predictions for 1s and for 0s, cut at the thresholds.
Metric auc(AucOptions options, std::string name) {
  const at::Tensor thresholds = at::tensor(auc_thresholds(name, options), at::kDouble);
  const std::int64_t between = thresholds.numel() - 1;
  const auto add = [=](const at::Tensor& y_true, const at::Tensor& y_pred, const at::Tensor& sample_weight) {
    const auto [labels, predictions, weights] =
        binary_examples(name, options.from_logits, y_true, y_pred, sample_weight);
    // In the predictions' own precision: one that is equal to a threshold is not above it.
    const at::Tensor place = at::searchsorted(thresholds.to(predictions), predictions) - 1;
    const at::Tensor ones = labels.to(at::kDouble) * weights;
    return at::cat({place.bincount(ones, between), place.bincount(weights - ones, between)});
  };
  return Metric(name,
                Metric::Sums{.size = 2 * between, .add = add, .result = [=](const std::vector<double>& sums) {
                               return area_under(above_thresholds(sums), options);
                             }});
}

}  // namespace tandem::metrics
