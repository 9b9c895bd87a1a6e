#pragma once

#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "tandem/metrics.h"
#include "tandem/strategy.h"

namespace tandem {

struct Metric::State {
  std::string name;
  Values values;  // of a mean
  Sums sums;      // a mean's are value x weight, and weight
  // Whose replicas it counts on, if it is known.
  std::optional<Strategy> strategy;
  std::mutex mutex;
  // By local replica, so that the result does not depend on which one came first.
  std::vector<std::vector<double>> totals;

  std::size_t size() const { return static_cast<std::size_t>(sums.size); }
  void add(const ReplicaContext& replica, std::span<const double> more);
  void add_total(int local_replica, std::span<const double> more);
  std::vector<double> total(int replica);
};

namespace internal {

// For each column the sum over all replicas of all tasks, in replica order; rows[r] are local replica r's
// values. One collective, whatever the number of columns.
std::vector<double> sum_over_replicas(const Strategy& strategy, const std::vector<std::vector<double>>& rows);

// Adds what a metric has on each local replica to its row: as many columns as it has sums.
void append_totals(const Metric& metric, std::vector<std::vector<double>>& rows);

}  // namespace internal
}  // namespace tandem
