#pragma once

#include <optional>

#include "tandem/dataset.h"

namespace tandem::internal {

// A worker's place among those that split every global batch.
struct WorkerRows {
  int workers = 1;
  int replicas_per_worker = 1;
  int worker = 0;
};

// What a worker takes of a dataset of global batches: of each its rows_of_worker(), and nothing else is made;
// the maps before batch() see no other examples. DatasetIterator::whole_rows() then tells the rows of the
// global batch. Positions are those of the dataset.
//
// Nothing if that would not be the same as making the whole batches and cutting them: if how many examples
// there are is not known, a map() or batch() comes after the batch(), or this worker gets no rows of a full
// batch.
std::optional<Dataset> own_rows(const Dataset& global_batches, const WorkerRows& place);

}  // namespace tandem::internal
