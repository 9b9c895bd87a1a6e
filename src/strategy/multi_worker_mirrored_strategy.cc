#include "tandem/multi_worker_mirrored_strategy.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>
#include <random>

#include "base/log.h"
#include "cluster/visible_cpus.h"
#include "comm/choose_algorithm.h"
#include "strategy/one_machine.h"
#include "strategy/strategy_impl.h"
#include "strategy/task_group.h"
#include "strategy/worker_share.h"
#include "tandem/error.h"

namespace tandem {
namespace {

using namespace internal;

constexpr const char* kName = "multi_worker_mirrored";
constexpr const char* kClass = "MultiWorkerMirroredStrategy";
constexpr const char* kSeed = "seed";

std::uint64_t draw_seed() {
  return std::random_device()();  // small enough to be typed again
}

const char* implementation_name(CommunicationImplementation implementation) {
  switch (implementation) {
    case CommunicationImplementation::kAuto:
      return "auto";
    case CommunicationImplementation::kRing:
      return "ring";
    case CommunicationImplementation::kNccl:
      return "nccl";
  }
  return "?";
}

StrategySetup local_setup(std::vector<Device> devices, const MultiWorkerMirroredOptions& options) {
  auto ops = default_cross_device_ops(devices);
  return {.name = kName,
          .devices = std::move(devices),
          .threads_per_replica = options.threads_per_replica,
          .cross_device_ops = std::move(ops),
          .seed = options.seed};
}

std::shared_ptr<StrategyImpl> trains_alone(std::vector<Device> devices,
                                           const MultiWorkerMirroredOptions& options,
                                           const std::string& why) {
  auto impl = std::make_shared<StrategyImpl>(local_setup(std::move(devices), options));
  log_info("{}: {}: {} replicas of this process alone, threads per replica {}", kClass, why,
           impl->num_local_replicas(), impl->threads_per_replica());
  return impl;
}

// What must be the same on every task, beside what the program says.
void add_to_program(std::map<std::string, std::string>& program, const StrategySetup& setup,
                    const CommunicationOptions& communication) {
  program["strategy"] = kName;
  program["replicas_per_task"] = std::to_string(setup.devices.size());
  program["threads_per_replica"] = std::to_string(setup.threads_per_replica);
  program["bytes_per_pack"] = std::to_string(communication.bytes_per_pack);
  program["all_reduce_alg"] = algorithm_name(communication.algorithm);
  program["communication"] = implementation_name(communication.implementation);
  program["comm_engine"] = communication.engine;
  program["wire_format"] = communication.wire_format == WireFormat::kBfloat16 ? "bfloat16" : "full";
}

std::uint64_t parse_seed(const std::string& text, const std::string& who) {
  std::uint64_t seed = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), seed);
  if (error != std::errc() || end != text.data() + text.size()) {
    throw InvalidArgument(fmt::format("{} gives the seed \"{}\": expected a number", who, text));
  }
  return seed;
}

// Joins the group; the chief's seed holds for all.
void join(StrategySetup& setup, const ResolvedCluster& resolved, const MultiWorkerMirroredOptions& options) {
  TaskGroupSetup joining{.cluster = resolved.cluster,
                         .task = *resolved.task,
                         .server = options.server,
                         .data_port = options.data_port,
                         .communication = options.communication};
  add_to_program(joining.server.program, setup, options.communication);
  joining.server.offer = {{kSeed, std::to_string(options.seed ? *options.seed : draw_seed())}};
  auto group = std::make_unique<TaskGroup>(std::move(joining));
  setup.seed = parse_seed(group->chiefs_offer(kSeed), group->member(0));
  if (options.seed && *options.seed != *setup.seed) {
    log_info("{}: seed {} of {} holds, and not {}", group->self(), *setup.seed, group->member(0),
             *options.seed);
  } else if (!options.seed && group->is_chief()) {
    log_info("seed {} (drawn; give it again to repeat this run)", *setup.seed);
  }
  setup.tasks = std::make_unique<SyncGroup>(std::move(group));
}

std::shared_ptr<StrategyImpl> make_impl(const MultiWorkerMirroredOptions& options) {
  const ResolvedCluster resolved = options.cluster ? *options.cluster : resolve_cluster();
  resolved.check();
  check_threads_per_replica(options.threads_per_replica);
  std::vector<Device> devices = own_devices(options.devices);
  if (resolved.cluster.empty()) return trains_alone(std::move(devices), options, "no cluster");
  if (!resolved.task) {
    throw InvalidArgument(fmt::format(
        "{}: the cluster does not say which task this is: give --task_index, or \"task\" in TF_CONFIG",
        kClass));
  }
  if (resolved.task->type == "evaluator") {
    return trains_alone(std::move(devices), options, "this is the evaluator, beside the group that trains");
  }
  if (resolved.task->type == "ps") {
    throw InvalidArgument(fmt::format(
        "{} is a parameter server, which {} has none of: start chief and worker tasks only, or use "
        "parameter_server",
        resolved.task->name(), kClass));
  }
  if (resolved.cluster.has_job("ps") && resolved.is_chief()) {
    log_info("{}: the cluster has {} ps tasks: ignored", kClass, resolved.cluster.num_tasks("ps"));
  }
  if (training_tasks(resolved.cluster).size() == 1) {
    return trains_alone(std::move(devices), options, "the cluster has one task that trains");
  }
  StrategySetup setup = local_setup(std::move(devices), options);
  if (setup.threads_per_replica == 0) {
    setup.threads_per_replica = share_of_cores(resolved, setup.devices.size());
  }
  join(setup, resolved, options);
  auto impl = std::make_shared<StrategyImpl>(std::move(setup));
  log_info("{}: {} tasks x {} replicas, threads per replica {}", kClass, impl->num_tasks(),
           impl->num_local_replicas(), impl->threads_per_replica());
  return impl;
}

MultiWorkerMirroredOptions with(MultiWorkerMirroredOptions options,
                                CommunicationImplementation implementation) {
  options.communication.implementation = implementation;
  return options;
}

}  // namespace

MultiWorkerMirroredStrategy::MultiWorkerMirroredStrategy(MultiWorkerMirroredOptions options)
    : Strategy(make_impl(options)) {}

MultiWorkerMirroredStrategy::MultiWorkerMirroredStrategy(CommunicationImplementation implementation,
                                                         MultiWorkerMirroredOptions options)
    : MultiWorkerMirroredStrategy(with(std::move(options), implementation)) {}

}  // namespace tandem
