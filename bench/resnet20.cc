#include "resnet20.h"

#include <fmt/format.h>
#include <torch/torch.h>

#include <string>
#include <utility>
#include <vector>

#include "tandem/losses.h"
#include "tandem/models/resnet.h"
#include "tandem/optimizers.h"

namespace tandem::bench {
namespace {

constexpr std::uint64_t kSeed = 1;

std::vector<std::string> cpu_devices(int count) {
  std::vector<std::string> devices;
  for (int i = 0; i < count; ++i) devices.push_back(fmt::format("/cpu:{}", i));
  return devices;
}

}  // namespace

MirroredStrategy mirrored(int replicas) {
  return MirroredStrategy({.devices = cpu_devices(replicas), .threads_per_replica = 1});
}

CentralStorageStrategy central_storage(int replicas) {
  return CentralStorageStrategy({.compute_devices = cpu_devices(replicas), .threads_per_replica = 1});
}

Model make_resnet20(const Strategy& strategy) {
  return strategy.scope([] {
    Model model([] { return models::ResNetCifar(kResNetSize); }, {.seed = kSeed});
    model.compile({.optimizer = optimizers::SGD({.learning_rate = kLearningRate,
                                                 .momentum = kMomentum,
                                                 .weight_decay = kWeightDecay,
                                                 .decay_filter = optimizers::kernels_only}),
                   .loss = losses::sparse_categorical_crossentropy()});
    return model;
  });
}

DistributedBatch random_batch(int replicas, std::int64_t rows, std::int64_t global_rows) {
  torch::manual_seed(kSeed);
  std::vector<Batch> pieces;
  for (int i = 0; i < replicas; ++i) {
    pieces.push_back({.x = torch::randn({rows, 3, 32, 32}), .y = torch::randint(10, {rows}, torch::kLong)});
  }
  return {std::move(pieces), global_rows};
}

}  // namespace tandem::bench
