#pragma once

#include <cstdint>

#include "tandem/central_storage_strategy.h"
#include "tandem/mirrored_strategy.h"
#include "tandem/model.h"
#include "tandem/replica.h"
#include "tandem/strategy.h"

namespace tandem::bench {

// What resnet_cifar_main trains with, at a rate that keeps the numbers tame over any number of rounds.
inline constexpr std::int64_t kResNetSize = 20;
inline constexpr double kLearningRate = 0.001;
inline constexpr double kMomentum = 0.9;
inline constexpr double kWeightDecay = 2e-4;

// One thread for each replica.
MirroredStrategy mirrored(int replicas);
CentralStorageStrategy central_storage(int replicas);

// Compiled, without metrics.
Model make_resnet20(const Strategy& strategy);

// The same random images and labels each time, `rows` for each of this process's replicas.
DistributedBatch random_batch(int replicas, std::int64_t rows, std::int64_t global_rows);

}  // namespace tandem::bench
