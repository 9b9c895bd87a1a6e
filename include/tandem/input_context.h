#pragma once

#include <cstdint>

namespace tandem {

// What a function that makes a worker's own dataset must know: its part, and of how many.
struct InputContext {
  int num_input_pipelines = 1;  // the workers: each calls the function once
  int input_pipeline_id = 0;    // which of them this is, from 0
  int num_replicas_in_sync = 1;

  // The rows of each replica's batch, where each step has global_batch_size rows over all replicas.
  // Throws InvalidArgument if these cannot be divided evenly.
  std::int64_t get_per_replica_batch_size(std::int64_t global_batch_size) const;
};

}  // namespace tandem
