#include "tandem/metrics.h"

#include <fmt/format.h>
#include <torch/torch.h>

#include <mutex>
#include <utility>
#include <vector>

#include "tandem/error.h"
#include "tandem/losses.h"
#include "train/shapes.h"

namespace tandem {

struct Metric::State {
  struct Total {
    double sum = 0;  // of value x weight
    double weight = 0;
  };

  std::string name;
  Values values;
  std::mutex mutex;
  // By replica, so that the result does not depend on which one came first.
  std::vector<Total> totals;

  void add(int replica, double sum, double weight) {
    const std::lock_guard lock(mutex);
    const auto index = static_cast<std::size_t>(replica);
    if (index >= totals.size()) totals.resize(index + 1);
    totals[index].sum += sum;
    totals[index].weight += weight;
  }
};

Metric::Metric(std::string name, Values values) : state_(std::make_shared<State>()) {
  state_->name = std::move(name);
  state_->values = std::move(values);
}

const std::string& Metric::name() const {
  return state_->name;
}

void Metric::update(const ReplicaContext& replica, const at::Tensor& y_true, const at::Tensor& y_pred,
                    const at::Tensor& sample_weight) const {
  if (!state_->values) {
    throw FailedPrecondition(fmt::format("metric \"{}\" takes numbers: use update_mean()", name()));
  }
  if (y_pred.dim() > 0 && y_pred.size(0) == 0) return;
  const at::NoGradGuard no_grad;
  const at::Tensor values = state_->values(y_true, y_pred).to(at::kDouble);
  const double sum = internal::weighted(values, sample_weight).sum().item<double>();
  const double weight = sample_weight.defined() ? sample_weight.sum(at::kDouble).item<double>()
                                                : static_cast<double>(values.numel());
  state_->add(replica.local_id(), sum, weight);
}

void Metric::update_mean(const ReplicaContext& replica, double mean, double count) const {
  if (!(count >= 0)) {
    throw InvalidArgument(
        fmt::format("metric \"{}\": a mean of {} examples: expected 0 or more", name(), count));
  }
  if (count > 0) state_->add(replica.local_id(), mean * count, count);
}

double Metric::result() const {
  const std::lock_guard lock(state_->mutex);
  State::Total all;
  for (const auto& total : state_->totals) {
    all.sum += total.sum;
    all.weight += total.weight;
  }
  return all.weight == 0 ? 0 : all.sum / all.weight;
}

void Metric::reset() const {
  const std::lock_guard lock(state_->mutex);
  state_->totals.clear();
}

namespace metrics {

Metric sparse_categorical_accuracy(std::string name) {
  return Metric(std::move(name), [](const at::Tensor& y_true, const at::Tensor& y_pred) {
    const at::Tensor labels = internal::class_numbers(y_true, y_pred);
    return y_pred.argmax(1) == labels;
  });
}

Metric accuracy() {
  return sparse_categorical_accuracy("accuracy");
}

Metric sparse_top_k_categorical_accuracy(std::int64_t k, std::string name) {
  if (k < 1) throw InvalidArgument(fmt::format("metric \"{}\": k is {}: expected 1 or more", name, k));
  return Metric(std::move(name), [k](const at::Tensor& y_true, const at::Tensor& y_pred) {
    const at::Tensor labels = internal::class_numbers(y_true, y_pred);
    // TensorFlow's rule: fewer than k classes have a higher score, and all scores are finite.
    const at::Tensor score = y_pred.gather(1, labels.unsqueeze(1));
    return ((y_pred > score).sum(1) < k).logical_and(y_pred.isfinite().all(1));
  });
}

Metric categorical_accuracy(std::string name) {
  return Metric(std::move(name), [](const at::Tensor& y_true, const at::Tensor& y_pred) {
    internal::check_scores(y_pred);
    return y_pred.argmax(1) == internal::in_shape_of(y_pred, y_true).argmax(1);
  });
}

Metric binary_accuracy(double threshold, std::string name) {
  return Metric(std::move(name), [threshold](const at::Tensor& y_true, const at::Tensor& y_pred) {
    const at::Tensor wanted = internal::in_shape_of(y_pred, y_true);
    return internal::mean_of_rows((y_pred > threshold).eq(wanted).to(at::kDouble));
  });
}

Metric mean_squared_error(std::string name) {
  return Metric(std::move(name), losses::mean_squared_error().per_example);
}

Metric mean_absolute_error(std::string name) {
  return Metric(std::move(name), losses::mean_absolute_error().per_example);
}

Metric mean(std::string name) {
  return Metric(std::move(name), {});
}

}  // namespace metrics
}  // namespace tandem
