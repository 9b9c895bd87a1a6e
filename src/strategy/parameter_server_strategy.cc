#include "tandem/parameter_server_strategy.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <thread>

#include "base/log.h"
#include "strategy/one_machine.h"
#include "strategy/ps_session.h"
#include "strategy/ps_updater.h"
#include "strategy/strategy_impl.h"
#include "strategy/task_group.h"
#include "strategy/worker_share.h"
#include "tandem/error.h"

namespace tandem {
namespace {

using namespace internal;

constexpr const char* kPsStrategy = "parameter_server";
constexpr const char* kPsClass = "ParameterServerStrategy";

ResolvedCluster cluster_of(const ParameterServerOptions& options) {
  ResolvedCluster resolved = options.cluster ? *options.cluster : resolve_cluster();
  resolved.check();
  if (resolved.cluster.empty()) {
    throw InvalidArgument(fmt::format(
        "{} needs a cluster with ps tasks: set TF_CONFIG, use --cluster_file, or start the program with "
        "`tandem launch --ps 1 --workers 2 -- PROGRAM`",
        kPsClass));
  }
  if (!resolved.task) {
    throw InvalidArgument(
        fmt::format("{}: the cluster does not say which task this is: give --task_type and --task_index, or "
                    "\"task\" in TF_CONFIG",
                    kPsClass));
  }
  const int servers = resolved.cluster.has_job("ps") ? resolved.cluster.num_tasks("ps") : 0;
  if (servers == 0 || training_tasks(resolved.cluster).empty()) {
    throw InvalidArgument(fmt::format(
        "{} needs at least one ps and one worker: the cluster has the jobs {}; without ps tasks use "
        "multi_worker_mirrored",
        kPsClass, fmt::join(resolved.cluster.jobs(), ", ")));
  }
  if (resolved.cluster.task_indices("ps").back() != servers - 1) {
    throw InvalidArgument(fmt::format("{}: the ps tasks must be numbered 0 to {}: ps:{} is among them",
                                      kPsClass, servers - 1, resolved.cluster.task_indices("ps").back()));
  }
  return resolved;
}

// A ps in this process, beside what the process is for.
class PsThread {
 public:
  PsThread(const ClusterSpec& cluster, int index, const ParameterServerOptions& options)
      : server_(cluster, "ps", index, options.server, options.service), thread_([this] { serve(); }) {}
  ~PsThread() { thread_.join(); }
  PsThread(const PsThread&) = delete;

 private:
  void serve() {
    try {
      server_.join();
    } catch (const std::exception& error) {
      log_warning("{}: {}", server_.task().name(), error.what());
    }
  }

  Server server_;
  std::thread thread_;
};

class PsStrategyImpl final : public StrategyImpl {
 public:
  PsStrategyImpl(StrategySetup setup, std::unique_ptr<PsThread> own_ps, std::shared_ptr<PsSession> session,
                 const ParameterServerOptions& options)
      : StrategyImpl(std::move(setup)),
        options_(options),
        own_ps_(std::move(own_ps)),
        session_(std::move(session)) {}

  void count_run(const DistributedBatch* batch) override {
    StrategyImpl::count_run(batch);
    const auto now = std::chrono::steady_clock::now();
    const double seconds = std::chrono::duration<double>(now - std::exchange(last_run_, now)).count();
    if (batch) session_->set_examples_per_second(static_cast<double>(rows_of(*batch)) / seconds);
  }

  std::unique_ptr<Updater> make_updater(std::shared_ptr<Variables> variables,
                                        const OptimizerSpec& optimizer) override {
    MeetingPlace place = meeting_place();
    place.gradients_on_host = true;
    return make_ps_updater(std::move(variables), optimizer, place, session_,
                           {.ps_strategy = options_.ps_strategy,
                            .partitioner = options_.variable_partitioner,
                            .bfloat16 = options_.wire_format == WireFormat::kBfloat16,
                            .workers_in_sync = workers_in_sync(),
                            .ps_outage = options_.ps_outage});
  }

  bool has_remote_tables() const override { return true; }

  void settle_variables() override {
    ask_late_binders();
    StrategyImpl::settle_variables();
  }

  void end_training() override {
    session_->end_round(options_.worker_patience);
    steps_before_ = session_->step();
  }
  std::int64_t steps_before() const override { return steps_before_; }

  ClosureHost* closure_host() override { return session_->has_chief_job() ? session_.get() : nullptr; }

 private:
  static std::int64_t rows_of(const DistributedBatch& batch) {
    std::int64_t rows = 0;
    for (const Batch& piece : batch) rows += piece.rows();
    return rows;
  }

  const ParameterServerOptions options_;
  // A worker that leaves first lets its own ps see that the training is over.
  std::unique_ptr<PsThread> own_ps_;
  std::shared_ptr<PsSession> session_;
  std::int64_t steps_before_ = 0;
  std::chrono::steady_clock::time_point last_run_ = std::chrono::steady_clock::now();
};

std::shared_ptr<StrategyImpl> make_impl(const ParameterServerOptions& options) {
  const ResolvedCluster resolved = cluster_of(options);
  const TaskId& task = *resolved.task;
  if (task.type == "ps") {
    throw InvalidArgument(fmt::format(
        "{} is a parameter server: begin the program with `if (tandem::{}::serve(options)) return 0;`, or "
        "call tandem::Server(cluster, \"ps\", {}).join()",
        task.name(), kPsClass, task.index));
  }
  check_threads_per_replica(options.threads_per_replica);
  std::vector<Device> devices = own_devices(options.devices);
  auto ops = default_cross_device_ops(devices);
  const bool evaluator = task.type == "evaluator";
  StrategySetup setup{.name = kPsStrategy,
                      .devices = std::move(devices),
                      .threads_per_replica = options.threads_per_replica,
                      .cross_device_ops = std::move(ops),
                      .seed = options.seed};
  if (evaluator) {
    log_info("{}: this is the evaluator, beside those that train", kPsClass);
    return std::make_shared<StrategyImpl>(std::move(setup));
  }
  if (setup.threads_per_replica == 0) {
    setup.threads_per_replica = share_of_cores(resolved, setup.devices.size());
  }
  std::unique_ptr<PsThread> own_ps;
  if (options.also_ps) own_ps = std::make_unique<PsThread>(resolved.cluster, task.index, options);
  auto session = std::make_shared<PsSession>(
      resolved.cluster, task,
      ps_server_options(resolved.cluster, options.server, options.service.max_staleness,
                        options.service.aggregate));
  setup.workers = session->num_computing();
  setup.worker = session->number();
  setup.workers_in_sync = options.service.max_staleness == 0;
  if (!setup.seed) {
    setup.seed = session->common_seed();
    if (session->is_chief()) log_info("seed {} (drawn; give it again to repeat this run)", *setup.seed);
  }
  auto impl =
      std::make_shared<PsStrategyImpl>(std::move(setup), std::move(own_ps), std::move(session), options);
  log_info("{}: {} is worker {} of {}, {} replicas, threads per replica {}; {} ps", kPsClass, task.name(),
           impl->input_pipeline(), impl->num_input_pipelines(), impl->num_local_replicas(),
           impl->threads_per_replica(), resolved.cluster.num_tasks("ps"));
  return impl;
}

}  // namespace

ParameterServerStrategy::ParameterServerStrategy(ParameterServerOptions options)
    : Strategy(make_impl(options)) {}

bool ParameterServerStrategy::serve(const ParameterServerOptions& options) {
  const ResolvedCluster resolved = cluster_of(options);
  if (resolved.task->type != "ps") return false;
  Server(resolved.cluster, "ps", resolved.task->index, options.server, options.service).join();
  return true;
}

}  // namespace tandem
