#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "tandem/dataset.h"

namespace tandem::internal {

// A worker's part of a dataset.
struct Sharded {
  // With AutoShardPolicy::kOff, so that nobody shards it again.
  Dataset dataset;

  // What was done: never kAuto. kOff for one worker.
  AutoShardPolicy chosen = AutoShardPolicy::kOff;

  // True: the elements are the global batches, the same ones in the same order on every worker (one worker,
  // or DATA sharding). Each worker takes its rows_of_worker(), and knows the rows of every step. False: they
  // are of this worker's own, and as large as global batches. rebatch() them to batch_sizes_for_worker();
  // workers may come to the end at different steps.
  bool global_batches = true;

  // One sentence for the log: policy, why, what this worker reads. Empty for one worker.
  std::string line = {};
};

// What worker `worker` of `workers`, from 0, reads of a dataset, by its auto_shard_policy(). Each worker must
// ask with the same dataset and its own number.
//
// Views over a part of the files are made anew at each call, save that a cache() gives each part one cache,
// for all calls.
//
// Throws InvalidArgument under kFile if there is no from_files() or it has fewer files than there are
// workers, under kHint unless there is one shard_hint().
Sharded auto_shard(const Dataset& dataset, int workers, int worker);

// The rows of a dataset of batches, in order, cut anew into batches of sizes[0], sizes[1], ..., over and
// over. The last one may be smaller. A size may be 0; such a batch has the shape of the rows that follow.
//
// A seek makes none of the old batches before its position, save those that come out of a map, shuffle() or
// shard() after batch(): how many rows these have cannot be told otherwise.
//
// Throws InvalidArgument for a dataset without batch(), for sizes below 0 or that are all 0.
Dataset rebatch(const Dataset& dataset, std::vector<std::int64_t> sizes);

}  // namespace tandem::internal
