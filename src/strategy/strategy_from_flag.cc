#include <fmt/format.h>

#include "tandem/central_storage_strategy.h"
#include "tandem/error.h"
#include "tandem/mirrored_strategy.h"
#include "tandem/multi_worker_mirrored_strategy.h"
#include "tandem/one_device_strategy.h"
#include "tandem/parameter_server_strategy.h"
#include "tandem/tpu_strategy.h"

namespace tandem {
namespace {

constexpr const char* kNames =
    "off, one_device, mirrored, central_storage, multi_worker_mirrored, parameter_server";

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

PsStrategy placement(const std::string& word, int num_ps) {
  if (word == "round_robin") return RoundRobin(num_ps);
  if (word == "greedy") return GreedyLoadBalancing(num_ps);
  throw InvalidArgument(
      fmt::format("the placement of variables is \"{}\": expected round_robin or greedy", word));
}

ParameterServerOptions parameter_server_options(const StrategyFlags& flags,
                                                std::vector<std::string> devices) {
  const ParameterServerFlags& asked = flags.parameter_server;
  ParameterServerOptions options{.cluster = resolve_cluster(flags.cluster),
                                 .devices = std::move(devices),
                                 .threads_per_replica = flags.threads_per_replica,
                                 .wire_format = flags.communication.wire_format,
                                 .service = {.max_staleness = asked.max_staleness,
                                             .aggregate = asked.aggregate,
                                             .reject_not_finite = asked.reject_not_finite,
                                             .snapshot_dir = asked.snapshot_dir,
                                             .snapshot_interval = asked.snapshot_interval,
                                             .snapshot_updates = asked.snapshot_updates,
                                             .data_port = flags.data_port},
                                 .ps_outage = asked.ps_outage,
                                 .also_ps = asked.also_ps,
                                 .server = flags.server,
                                 .seed = flags.seed};
  const ClusterSpec& cluster = options.cluster->cluster;
  const int num_ps = cluster.has_job("ps") ? cluster.num_tasks("ps") : 0;
  if (num_ps == 0) return options;  // the strategy says what is missing
  options.ps_strategy = placement(asked.placement, num_ps);
  if (asked.min_shard_bytes > 0) {
    options.variable_partitioner = MinSizePartitioner(asked.min_shard_bytes, num_ps);
  }
  return options;
}

}  // namespace

bool serve_from_flags(const std::string& name, const StrategyFlags& flags) {
  if (name != "parameter_server") return false;
  return ParameterServerStrategy::serve(parameter_server_options(flags, {}));
}

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
  if (name == "parameter_server") {
    return ParameterServerStrategy(parameter_server_options(flags, devices));
  }
  if (name == "tpu") return TPUStrategy();
  throw InvalidArgument(
      fmt::format("distribution_strategy \"{}\" is unknown: expected one of {}", name, kNames));
}

}  // namespace tandem
