#include "tandem/run_config.h"

#include <fmt/format.h>

#include <algorithm>
#include <vector>

#include "tandem/error.h"

namespace tandem {
namespace {

constexpr const char* kEvaluator = "evaluator";

std::optional<Strategy> one_of(const char* name, const std::optional<Strategy>& here,
                               const std::optional<Strategy>& there) {
  if (here && there && !(*here == *there)) {
    throw InvalidArgument(fmt::format(
        "RunConfig: {} and experimental_distribute.{} are different strategies: expected one of them", name,
        name));
  }
  return here ? here : there;
}

void check_device_fn(const RunConfig& config) {
  if (!config.device_fn) return;
  if (config.train_distribute) {
    throw InvalidArgument(
        "RunConfig: device_fn and train_distribute are both set: a strategy places variables itself "
        "(ParameterServerOptions::ps_strategy); leave one of them out");
  }
  if (config.num_ps_replicas() == 0) {
    throw InvalidArgument(
        "RunConfig: device_fn is set, and the cluster has no ps tasks that variables could be placed on: to "
        "compute on another device, give train_distribute a OneDeviceStrategy");
  }
}

void check_not_negative(const char* name, double value) {
  if (value >= 0) return;
  throw InvalidArgument(fmt::format("RunConfig: {} is {}: expected 0 or more", name, value));
}

}  // namespace

ClusterSpec RunConfig::cluster_spec() const {
  return cluster ? cluster->cluster : ClusterSpec();
}
std::string RunConfig::task_type() const {
  return cluster && cluster->task ? cluster->task->type : "worker";
}
int RunConfig::task_id() const {
  return cluster && cluster->task ? cluster->task->index : 0;
}
bool RunConfig::is_chief() const {
  return !cluster || (cluster->is_chief() && task_type() != kEvaluator);
}
std::string RunConfig::master() const {
  return cluster ? cluster->master().value_or("") : "";
}

int RunConfig::num_ps_replicas() const {
  const ClusterSpec spec = cluster_spec();
  return spec.has_job("ps") ? spec.num_tasks("ps") : 0;
}

int RunConfig::num_worker_replicas() const {
  const ClusterSpec spec = cluster_spec();
  int count = 0;
  for (const char* job : {"chief", "master", "worker"}) count += spec.has_job(job) ? spec.num_tasks(job) : 0;
  return std::max(1, count);
}

std::optional<int> RunConfig::global_id_in_cluster() const {
  if (task_type() == kEvaluator) return {};
  const ClusterSpec spec = cluster_spec();
  std::vector<std::string> jobs = spec.jobs();
  // "chief" and "ps" keep their places at the two ends, whatever lies between by name.
  const auto place = [](const std::string& job) {
    return job == "chief" || job == "master" ? 0 : job == "ps" ? 2 : 1;
  };
  std::ranges::sort(jobs, [&](const std::string& a, const std::string& b) {
    return place(a) != place(b) ? place(a) < place(b) : a < b;
  });
  int before = 0;
  for (const std::string& job : jobs) {
    if (job == task_type()) break;
    if (job != kEvaluator) before += spec.num_tasks(job);
  }
  return before + task_id();
}

RunConfig RunConfig::resolved() const {
  RunConfig config = *this;
  if (save_checkpoints_steps && save_checkpoints_secs) {
    throw InvalidArgument(
        "RunConfig: both save_checkpoints_steps and save_checkpoints_secs are given: expected one of them");
  }
  check_not_negative("save_summary_steps", static_cast<double>(save_summary_steps));
  check_not_negative("save_checkpoints_steps", static_cast<double>(save_checkpoints_steps.value_or(0)));
  check_not_negative("save_checkpoints_secs", save_checkpoints_secs.value_or(0));
  check_not_negative("keep_checkpoint_max", keep_checkpoint_max);
  check_not_negative("log_step_count_steps", static_cast<double>(log_step_count_steps));
  if (!save_checkpoints_steps && !save_checkpoints_secs) config.save_checkpoints_secs = 600;
  config.train_distribute =
      one_of("train_distribute", train_distribute, experimental_distribute.train_distribute);
  config.eval_distribute =
      one_of("eval_distribute", eval_distribute, experimental_distribute.eval_distribute);
  if (!protocol.empty() && protocol != "grpc") {
    throw InvalidArgument(fmt::format(
        "RunConfig: protocol is \"{}\": expected \"grpc\", the only one that is built", protocol));
  }
  if (experimental_distribute.remote_cluster) {
    throw InvalidArgument(
        "RunConfig: experimental_distribute.remote_cluster is set: no program trains from outside a cluster "
        "here; "
        "run it on every task (tandem launch, TF_CONFIG), or hand out steps with a ClusterCoordinator");
  }
  if (!cluster) config.cluster = resolve_cluster();
  config.cluster->check();
  if (!config.cluster->cluster.empty() && !config.cluster->task) {
    throw InvalidArgument("the cluster does not say which task this is: \"task\" is missing from TF_CONFIG");
  }
  check_device_fn(config);
  if (config.model_dir.empty()) config.model_dir = config.cluster->model_dir;
  return config;
}

}  // namespace tandem
