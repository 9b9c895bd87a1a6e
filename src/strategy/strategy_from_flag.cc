#include <fmt/format.h>

#include "tandem/central_storage_strategy.h"
#include "tandem/error.h"
#include "tandem/mirrored_strategy.h"
#include "tandem/multi_worker_mirrored_strategy.h"
#include "tandem/one_device_strategy.h"

namespace tandem {
namespace {

constexpr const char* kNames = "off, one_device, mirrored, central_storage, multi_worker_mirrored";
constexpr const char* kLater[] = {"parameter_server", "tpu"};

// --num_gpus N means /gpu:0 to /gpu:N-1, --num_cpus likewise.
std::vector<std::string> device_names(const StrategyFlags& flags) {
  if (flags.num_gpus < 0)
    throw InvalidArgument(fmt::format("num_gpus is {}: expected 0 or more", flags.num_gpus));
  if (flags.num_cpus < 0)
    throw InvalidArgument(fmt::format("num_cpus is {}: expected 0 or more", flags.num_cpus));
  if (flags.num_gpus > 0 && flags.num_cpus > 0) {
    throw InvalidArgument(fmt::format("num_gpus {} and num_cpus {} are both set: expected one of them",
                                      flags.num_gpus, flags.num_cpus));
  }
  int gpus = 0;
  for (const Device& device : list_devices()) gpus += device.type == DeviceType::kGpu;
  if (flags.num_gpus > gpus) {
    throw InvalidArgument(
        fmt::format("num_gpus is {} but {} GPUs are visible: use num_cpus {} for as many replicas on "
                    "the CPU",
                    flags.num_gpus, gpus, flags.num_gpus));
  }
  std::vector<std::string> names;
  for (int i = 0; i < flags.num_gpus; ++i) names.push_back(fmt::format("/gpu:{}", i));
  for (int i = 0; i < flags.num_cpus; ++i) names.push_back(fmt::format("/cpu:{}", i));
  return names;
}

}  // namespace

Strategy strategy_from_flag(const std::string& name, StrategyFlags flags) {
  const std::vector<std::string> devices = device_names(flags);
  if (name == "off" || name == "one_device") {
    if (devices.size() > 1) {
      throw InvalidArgument(
          fmt::format("{} replicas asked for, but distribution_strategy \"{}\" always has one: use "
                      "\"mirrored\"",
                      devices.size(), name));
    }
    return OneDeviceStrategy(devices.empty() ? default_devices().front().name() : devices.front(),
                             {.threads_per_replica = flags.threads_per_replica});
  }
  if (name == "mirrored") {
    return MirroredStrategy({.devices = devices, .threads_per_replica = flags.threads_per_replica});
  }
  if (name == "central_storage") {
    return CentralStorageStrategy(
        {.compute_devices = devices, .threads_per_replica = flags.threads_per_replica});
  }
  if (name == "multi_worker_mirrored") {
    return MultiWorkerMirroredStrategy({.cluster = resolve_cluster(flags.cluster),
                                        .devices = devices,
                                        .threads_per_replica = flags.threads_per_replica,
                                        .communication = flags.communication,
                                        .server = flags.server,
                                        .data_port = flags.data_port,
                                        .seed = flags.seed});
  }
  for (const char* later : kLater) {
    if (name == later) {
      throw Unimplemented(fmt::format(
          "distribution_strategy \"{}\" is not in this version yet: use one of {}", name, kNames));
    }
  }
  throw InvalidArgument(
      fmt::format("distribution_strategy \"{}\" is unknown: expected one of {}", name, kNames));
}

}  // namespace tandem
