#include "support/program.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <filesystem>

#include "base/log.h"
#include "tandem/checkpoint.h"
#include "tandem/communicator.h"
#include "tandem/error.h"
#include "tandem/tensor_board.h"

namespace tandem::examples {
namespace {

constexpr std::int64_t kSummarySteps = 100;  // as RunConfig's save_summary_steps

void require_positive(const char* flag, std::optional<std::int64_t> value) {
  if (value && *value < 1) throw InvalidArgument(fmt::format("--{} is {}: expected 1 or more", flag, *value));
}

// The value of a flag that is one of several words.
template <typename Value>
Value one_of(const char* flag, const std::string& word, const std::map<std::string, Value>& values) {
  const auto found = values.find(word);
  if (found != values.end()) return found->second;
  std::string words;
  for (const auto& [name, value] : values) words += (words.empty() ? "" : ", ") + name;
  throw InvalidArgument(fmt::format("--{} is \"{}\": expected one of {}", flag, word, words));
}

AllReduceAlgorithm algorithm(const std::string& word) {
  return one_of<AllReduceAlgorithm>("all_reduce_alg", word,
                                    {{"auto", AllReduceAlgorithm::kAuto},
                                     {"ring", AllReduceAlgorithm::kRing},
                                     {"ring_chunked", AllReduceAlgorithm::kRingChunked},
                                     {"halving_doubling", AllReduceAlgorithm::kHalvingDoubling},
                                     {"bcube", AllReduceAlgorithm::kBcube}});
}

WireFormat format(const std::string& word) {
  return one_of<WireFormat>("wire_format", word,
                            {{"full", WireFormat::kFull}, {"bfloat16", WireFormat::kBfloat16}});
}

std::optional<int> staleness(const std::string& word) {
  if (word == "none") return {};
  int steps = -1;
  const auto [end, error] = std::from_chars(word.data(), word.data() + word.size(), steps);
  if (error != std::errc() || end != word.data() + word.size() || steps < 0) {
    throw InvalidArgument(
        fmt::format("--ps_max_staleness is \"{}\": expected none, or a number of steps from 0", word));
  }
  return steps;
}

std::chrono::milliseconds milliseconds_of(double seconds) {
  return std::chrono::milliseconds(std::max<std::int64_t>(1, static_cast<std::int64_t>(seconds * 1000)));
}

std::string or_none(const std::optional<std::int64_t>& value) {
  return value ? std::to_string(*value) : "none";
}

}  // namespace

void TrainingFlags::add_to(CLI::App& app) {
  app.add_option("--data_dir", data_dir, "Folder with the data files");
  app.add_option("--distribution_strategy", distribution_strategy,
                 "off, one_device, mirrored, central_storage, multi_worker_mirrored or parameter_server")
      ->capture_default_str();
  app.add_option("--num_gpus", devices.num_gpus, "Replicas on GPUs (0: all that are visible)");
  app.add_option(
      "--num_cpus", devices.num_cpus,
      "Replicas on logical CPU devices, of each task (0: one per core, 8 at most; one with several "
      "tasks)");
  app.add_option("--threads_per_replica", devices.threads_per_replica,
                 "Threads of each CPU replica (0: its share of the cores)");
  app.add_option("--batch_size", batch_size,
                 "Rows of one step, over all replicas of all tasks (parameter_server: of one worker)")
      ->capture_default_str();
  app.add_option("--train_epochs", train_epochs, "Passes over the training data");
  app.add_option("--train_steps", train_steps, "Optimizer steps in all, those of all workers together");
  app.add_option("--seed", seed,
                 "For initial values, shuffling, augmentation and dropout; drawn if not given");
  app.add_flag("--skip_eval", skip_eval, "Do not evaluate on the test set");
  app.add_option("--on_nan", on_nan, "stop or continue when the loss is not a number")->capture_default_str();
  app.add_option("--verbose", verbose,
                 "Progress: 0 none, 1 a bar, 2 a line per epoch, auto: a bar on a terminal, else lines")
      ->capture_default_str();
  app.add_option("--metrics_json", metrics_json, "File for the final figures of the run");
  app.add_option("--model_dir", model_dir,
                 "Folder for checkpoints and summaries: the same command, started again, goes on from there");
  app.add_option("--save_checkpoints_steps", save_checkpoints_steps, "Steps between two checkpoints")
      ->capture_default_str();
  app.add_option("--keep_checkpoint_max", keep_checkpoint_max, "How many of the newest are kept (0: all)")
      ->capture_default_str();
  app.add_option("--preempt_exit_code", preempt_exit_code, "Exit code after SIGTERM, with --model_dir")
      ->capture_default_str();
  tasks.add_cluster_flags(app);
  tasks.add_server_flags(app);
  tasks.add_security_flags(app);
  app.add_option("--data_port", devices.data_port, "Port for gradients (0: any free one)")
      ->capture_default_str();
  app.add_option("--all_reduce_alg", all_reduce_alg, "auto, ring, ring_chunked, halving_doubling or bcube")
      ->capture_default_str();
  app.add_option("--bytes_per_pack", devices.communication.bytes_per_pack,
                 "Gradients travel in packs of about this size (0: 32 MiB)");
  app.add_option("--wire_format", wire_format, "What gradients are between tasks: full or bfloat16")
      ->capture_default_str();
  app.add_option("--dtype", dtype,
                 "What convolutions and matrix products compute in: fp32, bf16, or fp16 (GPUs)")
      ->capture_default_str();
  app.add_option("--comm_engine", devices.communication.engine,
                 "What carries gradients between tasks: tcp, gloo, mpi or nccl (default: tcp)");
  app.add_option("--ps_max_staleness", max_staleness,
                 "Steps that a worker may be ahead of the slowest (0: in step; none: nobody waits)")
      ->capture_default_str();
  app.add_option("--ps_aggregate", devices.parameter_server.aggregate,
                 "With --ps_max_staleness 0: a step is complete with the gradients of so many workers");
  app.add_flag("--ps_reject_not_finite", devices.parameter_server.reject_not_finite,
               "Parameter servers leave out gradients that are infinite or not numbers");
  app.add_option("--ps_placement", devices.parameter_server.placement,
                 "Which ps gets a variable: round_robin, or greedy (by bytes)")
      ->capture_default_str();
  app.add_option("--ps_min_shard_bytes", devices.parameter_server.min_shard_bytes,
                 "Cut variables into parts of at least so many bytes, one per ps at most (0: do not)");
  app.add_option("--ps_outage", ps_outage_seconds, "Seconds to wait for a ps that is gone")
      ->capture_default_str();
  app.add_option("--ps_snapshot_seconds", ps_snapshot_seconds,
                 "With --model_dir: seconds between two snapshots of a ps")
      ->capture_default_str();
  app.add_flag("--also_ps", devices.parameter_server.also_ps,
               "This worker's process is the ps of the same index too");
  app.add_option("--communication_timeout", communication_timeout,
                 "Seconds after which waiting for the other tasks' gradients fails (0: no limit)");
}

void TrainingFlags::check() const {
  require_positive("batch_size", batch_size);
  require_positive("train_epochs", train_epochs);
  require_positive("train_steps", train_steps);
  require_positive("save_checkpoints_steps", save_checkpoints_steps);
  if (keep_checkpoint_max < 0) {
    throw InvalidArgument(
        fmt::format("--keep_checkpoint_max is {}: expected 0 or more", keep_checkpoint_max));
  }
  if (preempt_exit_code < 0 || preempt_exit_code > 255) {
    throw InvalidArgument(fmt::format("--preempt_exit_code is {}: expected 0 to 255", preempt_exit_code));
  }
  algorithm(all_reduce_alg);
  format(wire_format);
  policy();
  verbosity();
  tasks.server_options();
  if (devices.data_port < 0 || devices.data_port > 65535) {
    throw InvalidArgument(fmt::format("--data_port is {}: expected 0 to 65535", devices.data_port));
  }
  staleness(max_staleness);
  if (devices.parameter_server.min_shard_bytes < 0) {
    throw InvalidArgument(fmt::format("--ps_min_shard_bytes is {}: expected 0 or more",
                                      devices.parameter_server.min_shard_bytes));
  }
  if (!(ps_outage_seconds > 0) || !(ps_snapshot_seconds > 0)) {
    throw InvalidArgument(
        fmt::format("--ps_outage is {} and --ps_snapshot_seconds {}: expected more than 0 seconds",
                    ps_outage_seconds, ps_snapshot_seconds));
  }
  if (!(communication_timeout >= 0)) {
    throw InvalidArgument(
        fmt::format("--communication_timeout is {}: expected 0 or more seconds", communication_timeout));
  }
  if (on_nan != "stop" && on_nan != "continue") {
    throw InvalidArgument(fmt::format("--on_nan is \"{}\": expected stop or continue", on_nan));
  }
  if (!metrics_json.empty()) {
    const auto folder = std::filesystem::absolute(metrics_json).parent_path();
    if (!std::filesystem::is_directory(folder)) {
      throw InvalidArgument(
          fmt::format("--metrics_json {}: there is no folder \"{}\"", metrics_json, folder.string()));
    }
  }
}

bool TrainingFlags::has_tasks() const {
  return distribution_strategy == "multi_worker_mirrored" || distribution_strategy == "parameter_server";
}

bool TrainingFlags::is_evaluator() const {
  if (!has_tasks()) return false;
  const ResolvedCluster resolved = resolve_cluster(tasks.cluster);
  if (!resolved.task || resolved.task->type != "evaluator") return false;
  internal::log_info("{}: evaluating checkpoints beside the training is not in this version: nothing to do",
                     resolved.task->name());
  return true;
}

std::string TrainingFlags::folder_of_model() const {
  if (!model_dir.empty() || !has_tasks()) return model_dir;
  return resolve_cluster(tasks.cluster).model_dir;
}

std::vector<std::shared_ptr<Callback>> TrainingFlags::callbacks() const {
  const std::string folder = folder_of_model();
  if (folder.empty()) return {};
  return {BackupAndRestore({.backup_dir = folder + "/checkpoints",
                            .save_freq = save_checkpoints_steps,
                            .delete_checkpoint = false,
                            .checkpoints = {.max_to_keep = keep_checkpoint_max}}),
          TensorBoard({.log_dir = folder, .write_steps_per_second = true, .update_freq = kSummarySteps})};
}

int TrainingFlags::run(const std::function<void()>& train) const {
  try {
    train();
    return internal::kExitDone;
  } catch (const Preempted& told) {
    internal::log_info("{}", told.what());
    return preempt_exit_code;
  }
}

StrategyFlags TrainingFlags::strategy_flags(std::map<std::string, std::string> program) const {
  StrategyFlags flags = devices;
  flags.seed = seed;
  flags.cluster = tasks.cluster;
  flags.server = tasks.server_options();
  program["batch_size"] = std::to_string(batch_size);
  program["train_steps"] = or_none(train_steps);
  program["train_epochs"] = or_none(train_epochs);
  program["checkpoints"] = folder_of_model().empty() ? "no" : std::to_string(save_checkpoints_steps);
  program["dtype"] = dtype;
  program["skip_eval"] = skip_eval ? "yes" : "no";
  program["seed"] = seed ? std::to_string(*seed) : "drawn";
  flags.server.program = std::move(program);
  flags.communication.algorithm = algorithm(all_reduce_alg);
  flags.communication.wire_format = format(wire_format);
  if (communication_timeout > 0) {
    flags.communication.timeout = milliseconds_of(communication_timeout);
  }
  flags.parameter_server.max_staleness = staleness(max_staleness);
  flags.parameter_server.ps_outage = milliseconds_of(ps_outage_seconds);
  flags.parameter_server.snapshot_interval = milliseconds_of(ps_snapshot_seconds);
  if (!folder_of_model().empty()) flags.parameter_server.snapshot_dir = folder_of_model() + "/ps";
  return flags;
}

Strategy TrainingFlags::strategy(const std::map<std::string, std::string>& program) const {
  return strategy_from_flag(distribution_strategy, strategy_flags(program));
}

bool TrainingFlags::has_served(const std::map<std::string, std::string>& program) const {
  return serve_from_flags(distribution_strategy, strategy_flags(program));
}

bool TrainingFlags::sums_up(const Strategy& strategy) const {
  return distribution_strategy != "parameter_server" || strategy.is_chief();
}

Policy TrainingFlags::policy() const {
  return one_of<Policy>("dtype", dtype,
                        {{"fp32", "float32"}, {"bf16", "mixed_bfloat16"}, {"fp16", "mixed_float16"}});
}

Verbose TrainingFlags::verbosity() const {
  return one_of<Verbose>(
      "verbose", verbose,
      {{"0", Verbose::kSilent}, {"1", Verbose::kBar}, {"2", Verbose::kLines}, {"auto", Verbose::kAuto}});
}

std::int64_t TrainingFlags::epochs(std::int64_t default_epochs, std::int64_t steps_per_epoch) const {
  if (train_epochs) return *train_epochs;
  // How much of the data each worker will have seen by then cannot be told.
  if (train_steps && distribution_strategy == "parameter_server") return *train_steps;
  if (train_steps) return (*train_steps + steps_per_epoch - 1) / steps_per_epoch;
  return default_epochs;
}

}  // namespace tandem::examples
