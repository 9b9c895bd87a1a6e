#include <fmt/format.h>

#include <iostream>
#include <memory>
#include <nlohmann/json.hpp>

#include "base/files.h"
#include "cli/commands.h"
#include "cli/config_picture.h"
#include "cli/program.h"
#include "cluster/text.h"
#include "cluster/tf_config.h"
#include "tandem/error.h"

namespace tandem::internal {
namespace {

struct Flags {
  // check and show
  std::string cluster_file;
  std::optional<std::string> tf_config;
  std::string graph;
  bool json = false;
  // make
  std::string workers;
  std::string ps;
  std::string chief;
  std::string evaluator;
  std::string task;
  std::string output;
};

ResolvedCluster resolve(const Flags& flags) {
  if (!flags.tf_config) return resolve_cluster({.cluster_file = flags.cluster_file});
  if (!flags.cluster_file.empty()) {
    throw InvalidArgument("--tf_config and --cluster_file are both given: expected one of them");
  }
  return read_tf_config(*flags.tf_config, "--tf_config");
}

int check(const Flags& flags) {
  const ResolvedCluster resolved = resolve(flags);
  if (resolved.cluster.empty()) {
    std::cout << "ok: no cluster: this process trains alone\n";
    return kExitDone;
  }
  std::vector<std::string> jobs;
  for (const auto& job : resolved.cluster.jobs()) {
    jobs.push_back(fmt::format("{} {}", resolved.cluster.num_tasks(job), job));
  }
  std::cout << fmt::format("ok: {}{} of {}, cluster {}, from {}\n", resolved.task->name(),
                           resolved.is_chief() ? " (chief)" : "", fmt::join(jobs, " + "),
                           resolved.cluster.id(), resolved.source);
  return kExitDone;
}

template <typename Value>
nlohmann::ordered_json or_null(const std::optional<Value>& value) {
  return value ? nlohmann::ordered_json(*value) : nlohmann::ordered_json();
}

// The questions TensorFlow answers about a TF_CONFIG, and null where it has no answer.
std::string answers(const ResolvedCluster& resolved) {
  nlohmann::ordered_json json;
  json["cluster"] = nlohmann::ordered_json::parse(resolved.cluster.to_json());
  json["task_type"] = resolved.task ? nlohmann::ordered_json(resolved.task->type) : nullptr;
  json["task_id"] = resolved.task ? nlohmann::ordered_json(resolved.task->index) : nullptr;
  json["rpc_layer"] = resolved.rpc_layer.empty() ? nullptr : nlohmann::ordered_json(resolved.rpc_layer);
  json["master"] = or_null(resolved.master());
  json["is_chief"] = resolved.is_chief();
  json["worker_count"] = or_null(resolved.worker_count());
  json["id_in_cluster"] = or_null(resolved.id_in_cluster());
  return json.dump();
}

int show(const Flags& flags) {
  if (!flags.graph.empty() && flags.graph != "text" && flags.graph != "dot") {
    throw InvalidArgument(fmt::format("--graph is {}: expected text or dot", quote(flags.graph)));
  }
  if (flags.json && !flags.graph.empty()) {
    throw InvalidArgument("--json and --graph are both given: expected one of them");
  }
  const ResolvedCluster resolved = resolve(flags);
  if (flags.json) {
    std::cout << answers(resolved) << "\n";
  } else {
    std::cout << (flags.graph == "dot" ? dot_picture(resolved) : text_picture(resolved));
  }
  return kExitDone;
}

ClusterSpec cluster_of(const Flags& flags) {
  ClusterSpec::Jobs jobs;
  for (const auto& [job, flag, list] :
       {std::tuple<std::string, std::string, const std::string&>{"chief", "--chief", flags.chief},
        {"worker", "--workers", flags.workers},
        {"ps", "--ps", flags.ps},
        {"evaluator", "--evaluator", flags.evaluator}}) {
    if (list.empty()) continue;
    const auto addresses = split_list(list);
    for (std::size_t i = 0; i < addresses.size(); ++i) {
      parse_address(addresses[i], addresses.size() == 1 ? flag : fmt::format("{}, entry {},", flag, i));
    }
    jobs.emplace_back(job, JobTasks(addresses));
  }
  ClusterSpec cluster(std::move(jobs));
  if (!cluster.has_job("worker") && !cluster.has_job("chief")) {
    throw InvalidArgument("nobody trains: give --workers, as in --workers 10.0.0.1:2222,10.0.0.2:2222");
  }
  cluster.check();
  return cluster;
}

TaskId parse_task(const std::string& text) {
  const auto colon = text.rfind(':');
  const auto index = colon == std::string::npos ? std::nullopt : parse_int(text.substr(colon + 1));
  if (!index) {
    throw InvalidArgument(
        fmt::format("--task is {}: expected a type and an index, such as worker:1", quote(text)));
  }
  return {text.substr(0, colon), *index};
}

int make(const Flags& flags) {
  ResolvedCluster resolved{.cluster = cluster_of(flags)};
  std::string text;
  if (flags.task.empty()) {
    for (const auto& task : resolved.cluster.tasks()) {
      resolved.task = task;
      text += fmt::format("{}: TF_CONFIG='{}'\n", task.name(), make_tf_config(resolved));
    }
  } else {
    resolved.task = parse_task(flags.task);
    resolved.check();
    text = make_tf_config(resolved) + "\n";
  }
  if (flags.output.empty()) {
    std::cout << text;
  } else {
    replace_file(flags.output, text);
  }
  return kExitDone;
}

void add_source_flags(CLI::App& app, Flags& flags) {
  app.add_option("--cluster_file", flags.cluster_file,
                 "A file with the JSON of TF_CONFIG (else what a training program here would find)");
  app.add_option("--tf_config", flags.tf_config, "The JSON itself");
}

}  // namespace

Command add_config(CLI::App& app) {
  const auto flags = std::make_shared<Flags>();
  CLI::App* const config = app.add_subcommand("config", "Checks, shows and makes TF_CONFIG");
  config->require_subcommand(1);

  CLI::App* const check_app = config->add_subcommand("check", "Says in one line whether it is right");
  add_source_flags(*check_app, *flags);

  CLI::App* const show_app = config->add_subcommand("show", "Draws the cluster");
  add_source_flags(*show_app, *flags);
  show_app->add_option("--graph", flags->graph, "text (the default) or dot")->expected(0, 1);
  show_app->add_flag("--json", flags->json, "TensorFlow's view of it, as one JSON object");

  CLI::App* const make_app = config->add_subcommand("make", "Prints the TF_CONFIG of one task or of each");
  make_app->add_option("--workers", flags->workers, "Addresses of the workers: 10.0.0.1:2222,10.0.0.2:2222");
  make_app->add_option("--ps", flags->ps, "Addresses of the parameter servers");
  make_app->add_option("--chief", flags->chief, "Address of the chief, if it is not worker 0");
  make_app->add_option("--evaluator", flags->evaluator, "Address of the evaluator");
  make_app->add_option("--task", flags->task,
                       "The task to make it for, such as worker:1 (else one line for each)");
  make_app->add_option("--output", flags->output, "A file to write instead of printing");

  return {config, [=] {
            if (check_app->parsed()) return check(*flags);
            if (show_app->parsed()) return show(*flags);
            return make(*flags);
          }};
}

}  // namespace tandem::internal
