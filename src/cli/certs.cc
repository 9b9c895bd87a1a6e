#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstring>
#include <filesystem>
#include <iostream>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/certificates.h"
#include "base/secret_file.h"
#include "base/signals_held.h"
#include "cli/cluster_layout.h"
#include "cli/commands.h"
#include "tandem/cluster_resolver.h"
#include "tandem/error.h"

namespace tandem::internal {
namespace {

namespace fs = std::filesystem;

struct CertsFlags {
  std::string folder = "tandem-certs";
  std::string token_file = "tandem-token";
  std::string cluster_id;
  std::string cluster_file;
  std::vector<std::string> tasks;
  bool for_operator = false;
  int days = 365;
};

std::string authority_folder(const std::string& folder) {
  return (fs::path(folder) / "ca").string();
}

bool exists(const std::string& path) {
  return fs::exists(fs::symlink_status(path));
}

// Makes the folder unless it is there; a folder that was made here goes away again if it stays empty.
class FolderIfMissing {
 public:
  explicit FolderIfMissing(const std::string& path) : path_(path) {
    made_ = mkdir(path.c_str(), 0700) == 0;
    if (!made_ && !fs::is_directory(path))
      throw NotFound(fmt::format("cannot make the folder \"{}\": {}", path, std::strerror(errno)));
  }
  ~FolderIfMissing() {
    if (made_) rmdir(path_.c_str());  // not if something is in it
  }
  FolderIfMissing(const FolderIfMissing&) = delete;
  FolderIfMissing& operator=(const FolderIfMissing&) = delete;

 private:
  std::string path_;
  bool made_;
};

int init(const CertsFlags& flags) {
  const std::string ca = authority_folder(flags.folder);
  if (exists(ca)) {
    throw InvalidArgument(
        fmt::format("\"{}\" exists already: a new authority would make every certificate of the old one "
                    "worthless; to start over: mv {} {}",
                    ca, shell_quoted(flags.folder), shell_quoted(flags.folder + ".old")));
  }
  {
    const SignalsHeld held;
    const FolderIfMissing folder(flags.folder);
    CertificateAuthority::create().save(ca);
  }
  std::cout << fmt::format(
      "{0}: a certificate authority, good for ten years\n"
      "Keep {0}/key.pem on this machine: whoever has it can make himself a task of any cluster.\n"
      "Next: tandem certs issue {1} --cluster_file cluster.json\n",
      ca, shell_quoted(flags.folder));
  return 0;
}

TaskId parse_task(const std::string& text) {
  const auto colon = text.find(':');
  TaskId task{.type = text.substr(0, colon)};
  const char* end = text.data() + text.size();
  const char* digits = colon == std::string::npos ? end : text.data() + colon + 1;
  const auto [stop, failure] = std::from_chars(digits, end, task.index);
  if (failure != std::errc() || stop != end || task.type.empty() || task.index < 0)
    throw InvalidArgument(fmt::format("--task is \"{}\": expected a job and an index, e.g. worker:1", text));
  return task;
}

// Whose certificates are wanted, of which cluster.
struct Wanted {
  std::string cluster_id;
  ClusterSpec cluster;  // empty if the id alone was given
  std::vector<TaskId> tasks;
};

// From the file, or as the environment says.
ClusterSpec read_cluster(const std::string& cluster_file) {
  // This process is no task, and the file may leave open who is; an evaluator can stand beside any cluster.
  const TaskOverrides nobody{.task_type = "evaluator", .task_index = 0};
  auto resolved = cluster_file.empty() ? FileClusterResolver(nobody).resolve()
                                       : FileClusterResolver(cluster_file, nobody).resolve();
  if (!resolved) resolved = TFConfigClusterResolver(nobody).resolve();
  return resolved ? resolved->cluster : ClusterSpec();
}

Wanted find_out(const CertsFlags& flags) {
  Wanted wanted;
  for (const auto& task : flags.tasks) wanted.tasks.push_back(parse_task(task));
  const bool none_named = wanted.tasks.empty() && !flags.for_operator;
  if (!flags.cluster_id.empty()) {
    if (none_named) {
      throw InvalidArgument(
          "--cluster_id does not tell which tasks there are: name them, e.g. --task worker:0 --task "
          "worker:1, "
          "or give --cluster_file");
    }
    wanted.cluster_id = flags.cluster_id;
    return wanted;
  }
  wanted.cluster = read_cluster(flags.cluster_file);
  if (wanted.cluster.empty()) {
    throw InvalidArgument(
        "for which cluster? Give --cluster_file FILE (the JSON of TF_CONFIG), set TF_CONFIG, or give "
        "--cluster_id");
  }
  wanted.cluster_id = wanted.cluster.id();
  if (none_named) wanted.tasks = wanted.cluster.tasks();
  const auto known = wanted.cluster.tasks();
  for (const auto& task : wanted.tasks) {
    // An evaluator may stand beside its cluster, as TensorFlow has it.
    if (task.type == "evaluator" || std::find(known.begin(), known.end(), task) != known.end()) continue;
    std::string names;
    for (const auto& each : known) names += (names.empty() ? "" : ", ") + each.name();
    throw InvalidArgument(fmt::format("--task {}: the cluster has {}", task.name(), names));
  }
  return wanted;
}

bool is_loopback(const std::string& host) {
  return host == "localhost" || host.starts_with("127.") || host == "::1";
}

// How the folder gets to its task's machine.
std::string where_to(const Wanted& wanted, const TaskId& task, const std::string& folder) {
  const auto known = wanted.cluster.tasks();
  if (std::find(known.begin(), known.end(), task) == known.end())
    return fmt::format("{} to the task's machine", folder);
  const std::string host = parse_address(wanted.cluster.task_address(task), task.name()).host;
  if (is_loopback(host)) return fmt::format("{} stays on this machine", folder);
  const bool ipv6 = host.find(':') != std::string::npos && !host.starts_with('[');
  return fmt::format("scp -rp {} {}", shell_quoted(folder),
                     shell_quoted((ipv6 ? "[" + host + "]" : host) + ":"));
}

int issue(const CertsFlags& flags) {
  const Wanted wanted = find_out(flags);
  const auto authority = CertificateAuthority::load(authority_folder(flags.folder));
  const auto make = [&](const CertificateSubject& subject, const std::string& name) {
    const std::string folder = (fs::path(flags.folder) / name).string();
    const SignalsHeld held;  // an interruption comes between two folders
    const auto issued = authority.issue(subject, flags.days);
    save_certificate(folder, issued, authority.certificate());
    return std::pair{folder, issued.valid_until};
  };
  std::string report = fmt::format("cluster {}\n", wanted.cluster_id);
  for (const auto& task : wanted.tasks) {
    const auto [folder, end] = make(task_subject(wanted.cluster_id, task.type, task.index),
                                    fmt::format("{}-{}", task.type, task.index));
    report += fmt::format("{:<12} until {}  {}\n", task.name(), end, where_to(wanted, task, folder));
  }
  if (flags.for_operator) {
    const auto [folder, end] = make(operator_subject(wanted.cluster_id), "operator");
    report += fmt::format("{:<12} until {}  {} to whoever may stop the run\n", "operator", end, folder);
  }
  std::cout << report << "Each folder goes to its own machine only; its key.pem must keep mode 0600.\n";
  return 0;
}

int token(const CertsFlags& flags) {
  if (exists(flags.token_file)) {
    throw InvalidArgument(
        fmt::format("\"{}\" exists already, and a cluster may be using it: remove it first, or name another "
                    "file",
                    flags.token_file));
  }
  {
    const SignalsHeld held;
    write_secret(flags.token_file, make_token() + "\n");
  }
  std::cout << fmt::format(
      "{}: a new token, readable by you alone\n"
      "Every machine of the cluster needs the same file: scp -p {} HOST:\n",
      flags.token_file, shell_quoted(flags.token_file));
  return 0;
}

}  // namespace

Command add_certs(CLI::App& app) {
  auto flags = std::make_shared<CertsFlags>();
  CLI::App* command = app.add_subcommand("certs", "Make the certificates and tokens of a secured cluster");
  command->require_subcommand(1);

  CLI::App* init_command = command->add_subcommand("init", "Make a certificate authority");
  init_command->add_option("DIR", flags->folder, "Where to keep it")->capture_default_str();

  CLI::App* issue_command = command->add_subcommand(
      "issue", "Make or renew the certificates of a cluster's tasks: DIR/<job>-<index>/{cert,key,ca}.pem");
  issue_command->add_option("DIR", flags->folder, "Where the authority is")->capture_default_str();
  CLI::Option* id = issue_command->add_option("--cluster_id", flags->cluster_id,
                                              "The cluster, as tandem config check prints it (with --task)");
  issue_command
      ->add_option("--cluster_file", flags->cluster_file,
                   "The cluster: a file with the JSON of TF_CONFIG (default: the variable TF_CONFIG)")
      ->excludes(id);
  issue_command->add_option("--task", flags->tasks, "Only this one, e.g. worker:1; can be repeated")
      ->allow_extra_args(false);
  issue_command->add_flag("--operator", flags->for_operator, "The one of who may stop the run");
  issue_command->add_option("--days", flags->days, "How long they are good for")->capture_default_str();

  CLI::App* token_command = command->add_subcommand("token", "Make a token that all tasks share");
  token_command->add_option("FILE", flags->token_file, "Where to write it")->capture_default_str();

  return {command, [=] {
            if (init_command->parsed()) return init(*flags);
            if (issue_command->parsed()) return issue(*flags);
            return token(*flags);
          }};
}

}  // namespace tandem::internal
