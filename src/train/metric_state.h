#pragma once

#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "tandem/metrics.h"
#include "tandem/strategy.h"

namespace tandem {

struct Metric::State {
  struct Total {
    double sum = 0;  // of value x weight
    double weight = 0;

    double mean() const { return weight == 0 ? 0 : sum / weight; }
  };

  std::string name;
  Values values;
  // Whose replicas it counts on, if it is known.
  std::optional<Strategy> strategy;
  std::mutex mutex;
  // By local replica, so that the result does not depend on which one came first.
  std::vector<Total> totals;

  void add(const ReplicaContext& replica, double sum, double weight);
  void add_total(int local_replica, const Total& more);
  Total total(int replica);
};

namespace internal {

// For each column the sum over all replicas of all tasks, in replica order; rows[r] are local replica r's
// values. One collective, whatever the number of columns.
std::vector<double> sum_over_replicas(const Strategy& strategy, const std::vector<std::vector<double>>& rows);

// Adds what a metric has on each local replica to its row: two columns.
void append_totals(const Metric& metric, std::vector<std::vector<double>>& rows);

}  // namespace internal
}  // namespace tandem
