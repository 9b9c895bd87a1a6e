#pragma once

#include <cstdint>
#include <vector>

namespace tandem::internal {

// Rows [begin, end) of a batch.
struct RowRange {
  std::int64_t begin = 0;
  std::int64_t end = 0;

  std::int64_t size() const { return end - begin; }
  friend bool operator==(const RowRange&, const RowRange&) = default;
};

// Every batch that all replicas see whole (one process, or DATA sharding), full or not: it is cut into pieces
// of ceil(rows / replicas) until nothing is left, so the last replicas may get fewer rows, or none.
// Throws InvalidArgument for a replica or worker there is not.
RowRange rows_of_replica(std::int64_t rows, int replicas, int replica);

// What the replicas of a worker have together: those of worker w are w * replicas_per_worker and on.
RowRange rows_of_worker(std::int64_t rows, int workers, int replicas_per_worker, int worker);

// Where each worker has rows of its own (FILE sharding, HINT, OFF): the sizes of the batches that worker cuts
// them into, over and over. It has one entry per replica of all workers; step s takes the next
// replicas_per_worker of them, and all workers' entries of a step add up to the global batch.
std::vector<std::int64_t> batch_sizes_for_worker(std::int64_t global_batch, int workers,
                                                 int replicas_per_worker, int worker);

}  // namespace tandem::internal
