#include "data/split_rule.h"

#include <fmt/format.h>

#include <algorithm>

#include "tandem/error.h"

namespace tandem::internal {
namespace {

void check_member(const char* what, int number, int count) {
  if (count < 1 || number < 0 || number >= count) {
    throw InvalidArgument(fmt::format("{} {} of {}: expected 0 to {}", what, number, count, count - 1));
  }
}

}  // namespace

RowRange rows_of_replica(std::int64_t rows, int replicas, int replica) {
  check_member("replica", replica, replicas);
  const std::int64_t piece = (rows + replicas - 1) / replicas;
  return {std::min(rows, replica * piece), std::min(rows, (replica + 1) * piece)};
}

RowRange rows_of_worker(std::int64_t rows, int workers, int replicas_per_worker, int worker) {
  check_member("worker", worker, workers);
  const int replicas = workers * replicas_per_worker;
  const int first = worker * replicas_per_worker;
  return {rows_of_replica(rows, replicas, first).begin,
          rows_of_replica(rows, replicas, first + replicas_per_worker - 1).end};
}

std::vector<std::int64_t> batch_sizes_for_worker(std::int64_t global_batch, int workers,
                                                 int replicas_per_worker, int worker) {
  check_member("worker", worker, workers);
  const int replicas = workers * replicas_per_worker;
  std::vector<std::int64_t> sizes(replicas, global_batch / replicas);
  std::fill_n(sizes.begin(), global_batch % replicas, global_batch / replicas + 1);
  // Without this the first workers would have the larger batches in every step, and run dry first.
  std::rotate(sizes.begin(), sizes.begin() + worker * replicas_per_worker, sizes.end());
  return sizes;
}

}  // namespace tandem::internal
