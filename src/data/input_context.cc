#include "tandem/input_context.h"

#include <fmt/format.h>

#include "tandem/error.h"

namespace tandem {

std::int64_t InputContext::get_per_replica_batch_size(std::int64_t global_batch_size) const {
  if (global_batch_size < 1 || global_batch_size % num_replicas_in_sync != 0) {
    throw InvalidArgument(fmt::format(
        "the global batch of {} cannot be divided evenly over {} replicas: expected a multiple of {}",
        global_batch_size, num_replicas_in_sync, num_replicas_in_sync));
  }
  return global_batch_size / num_replicas_in_sync;
}

}  // namespace tandem
