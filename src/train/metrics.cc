#include "tandem/metrics.h"

#include <fmt/format.h>
#include <torch/torch.h>

#include <array>
#include <utility>

#include "strategy/strategy_impl.h"
#include "tandem/error.h"
#include "tandem/losses.h"
#include "train/metric_state.h"
#include "train/shapes.h"

namespace tandem {

namespace {

double mean_of(const std::vector<double>& sum_and_weight) {
  return sum_and_weight[1] == 0 ? 0 : sum_and_weight[0] / sum_and_weight[1];
}

}  // namespace

void Metric::State::add(const ReplicaContext& replica, std::span<const double> more) {
  if (replica.strategy().tasks() && !strategy) {
    throw FailedPrecondition(fmt::format(
        "metric \"{}\" was made outside the scope of the strategy that counts with it: make it in scope()",
        name));
  }
  add_total(replica.local_id(), more);
}

void Metric::State::add_total(int local_replica, std::span<const double> more) {
  const std::lock_guard lock(mutex);
  const auto index = static_cast<std::size_t>(local_replica);
  if (index >= totals.size()) totals.resize(index + 1, std::vector<double>(size(), 0));
  for (std::size_t i = 0; i < size(); ++i) totals[index][i] += more[i];
}

std::vector<double> Metric::State::total(int replica) {
  const std::lock_guard lock(mutex);
  const auto index = static_cast<std::size_t>(replica);
  return index < totals.size() ? totals[index] : std::vector<double>(size(), 0);
}

namespace internal {

std::vector<double> sum_over_replicas(const Strategy& strategy,
                                      const std::vector<std::vector<double>>& rows) {
  const std::size_t columns = rows.front().size();
  std::vector<double> line;
  for (const auto& row : rows) line.insert(line.end(), row.begin(), row.end());
  std::vector<double> sums(columns, 0);
  const std::vector<double> all = strategy.impl().gather("logs", line);
  for (std::size_t i = 0; i < all.size(); ++i) sums[i % columns] += all[i];
  return sums;
}

void append_totals(const Metric& metric, std::vector<std::vector<double>>& rows) {
  for (std::size_t replica = 0; replica < rows.size(); ++replica) {
    const std::vector<double> total = metric.state().total(static_cast<int>(replica));
    rows[replica].insert(rows[replica].end(), total.begin(), total.end());
  }
}

}  // namespace internal

Metric::Metric(std::string name, Values values) : state_(std::make_shared<State>()) {
  state_->name = std::move(name);
  state_->values = std::move(values);
  state_->sums = {.size = 2, .result = mean_of};
  if (has_strategy()) state_->strategy = get_strategy();
}

Metric::Metric(std::string name, Sums sums) : Metric(std::move(name), Values()) {
  if (sums.size < 1 || !sums.add || !sums.result) {
    throw InvalidArgument(fmt::format(
        "metric \"{}\": expected a size of 1 or more, and the functions add and result", this->name()));
  }
  state_->sums = std::move(sums);
}

const std::string& Metric::name() const {
  return state_->name;
}

void Metric::update(const ReplicaContext& replica, const at::Tensor& y_true, const at::Tensor& y_pred,
                    const at::Tensor& sample_weight) const {
  if (!state_->values && !state_->sums.add) {
    throw FailedPrecondition(fmt::format("metric \"{}\" takes numbers: use update_mean()", name()));
  }
  if (y_pred.dim() > 0 && y_pred.size(0) == 0) return;
  const at::NoGradGuard no_grad;
  if (state_->values) {
    const at::Tensor values = state_->values(y_true, y_pred).to(at::kDouble);
    const double sum = internal::weighted(values, sample_weight).sum().item<double>();
    const double weight = sample_weight.defined() ? sample_weight.sum(at::kDouble).item<double>()
                                                  : static_cast<double>(values.numel());
    return state_->add(replica, std::array{sum, weight});
  }
  const std::int64_t rows = y_pred.dim() > 0 ? y_pred.size(0) : 1;
  const at::Tensor ones = at::ones({rows}, y_pred.options().dtype(at::kDouble));
  const at::Tensor more = state_->sums.add(y_true, y_pred, internal::weighted(ones, sample_weight))
                              .to(at::kCPU, at::kDouble)
                              .contiguous();
  if (more.numel() != state_->sums.size) {
    throw InvalidArgument(fmt::format("metric \"{}\": add gave {} numbers: expected {}, one for each sum",
                                      name(), more.numel(), state_->sums.size));
  }
  state_->add(replica, {more.data_ptr<double>(), state_->size()});
}

void Metric::update_mean(const ReplicaContext& replica, double mean, double count) const {
  if (state_->sums.add)
    throw FailedPrecondition(fmt::format("metric \"{}\" is no mean: use update()", name()));
  if (!(count >= 0)) {
    throw InvalidArgument(
        fmt::format("metric \"{}\": a mean of {} examples: expected 0 or more", name(), count));
  }
  if (count > 0) state_->add(replica, std::array{mean * count, count});
}

double Metric::result() const {
  if (state_->strategy && state_->strategy->communicator()) {
    std::vector<std::vector<double>> rows(state_->strategy->worker_devices().size());
    internal::append_totals(*this, rows);
    return state_->sums.result(internal::sum_over_replicas(*state_->strategy, rows));
  }
  std::vector<double> all(state_->size(), 0);
  {
    const std::lock_guard lock(state_->mutex);
    for (const auto& total : state_->totals) {
      for (std::size_t i = 0; i < all.size(); ++i) all[i] += total[i];
    }
  }
  return state_->sums.result(all);
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
  return Metric(std::move(name), Metric::Values());
}

}  // namespace metrics
}  // namespace tandem
