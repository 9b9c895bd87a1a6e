#include <fmt/format.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <filesystem>
#include <iostream>
#include <iterator>
#include <memory>
#include <nlohmann/json.hpp>

#include "cli/cluster_flags.h"
#include "cli/commands.h"
#include "cli/finding.h"
#include "cli/machine_checks.h"
#include "cli/network_checks.h"
#include "cli/output.h"
#include "cli/program.h"
#include "cli/task_names.h"
#include "tandem/device.h"
#include "tandem/error.h"

namespace tandem::internal {
namespace {

using Level = Finding::Level;

struct DoctorFlags : ClusterProgramFlags {
  bool json = false;
};

const char* name_of(Level level) {
  switch (level) {
    case Level::kOk:
      return "ok";
    case Level::kWarning:
      return "warning";
    case Level::kProblem:
      break;
  }
  return "problem";
}

std::optional<ResolvedCluster> check_cluster(const DoctorFlags& flags, Findings& findings) {
  ClusterFlags source = flags.cluster;
  source.task_may_be_missing = true;
  try {
    ResolvedCluster resolved = resolve_cluster(source);
    const ClusterSpec& cluster = resolved.cluster;
    if (cluster.empty()) {
      findings.push_back({Level::kOk, "cluster", "none: a program started here trains alone"});
      return resolved;
    }
    findings.push_back(
        {Level::kOk, "cluster",
         fmt::format("{} of {} tasks, from {}; {}", cluster.id(), cluster.tasks().size(), resolved.source,
                     resolved.task ? fmt::format("this is {}", name_in(cluster, *resolved.task))
                                   : "it does not say which task this is")});
    return resolved;
  } catch (const Error& error) {
    findings.push_back({Level::kProblem, "cluster", error.what()});
    return std::nullopt;
  }
}

// In the certificates' folder of one task there is none with which to ask others.
bool has_operator_certificate(const std::string& certs) {
  const std::filesystem::path folder(certs);
  return std::filesystem::exists(folder / "operator" / "cert.pem") || folder.filename() == "operator";
}

std::optional<Identity> check_security(const DoctorFlags& flags, const ResolvedCluster& resolved,
                                       const std::vector<TaskHost>& hosts, Findings& findings) {
  const SecurityOptions& options = flags.server.security;
  const auto own =
      std::ranges::find_if(hosts, [&](const TaskHost& host) { return host.task == resolved.task; });
  try {
    if (own != hosts.end()) {
      const bool loopback =
          flags.server.bind.empty() ? own->is_loopback() : is_loopback_host(flags.server.bind);
      load_security(options, resolved.task, loopback);
    }
  } catch (const Error& error) {
    // The flags may be those of the training program alone; what they say wrongly is wrong there too.
    findings.push_back({options.mode.empty() ? Level::kWarning : Level::kProblem, "security", error.what()});
  }
  if (options.mode == "tls" && !has_operator_certificate(options.certs)) {
    findings.push_back({Level::kWarning, "security",
                        fmt::format("{} has no operator's certificate: tasks cannot be asked who they are",
                                    options.certs.empty() ? "--certs" : options.certs)});
    return std::nullopt;
  }
  try {
    return Identity{.cluster = resolved.cluster,
                    .security = load_security(options, std::nullopt, /*loopback=*/true)};
  } catch (const Error& error) {
    if (findings.empty() || findings.back().text != error.what()) {
      findings.push_back({Level::kProblem, "security", error.what()});
    }
    return std::nullopt;
  }
}

int tasks_here(const std::vector<TaskHost>& hosts, const std::optional<TaskId>& own) {
  const auto self = std::ranges::find_if(hosts, [&](const TaskHost& host) { return host.task == own; });
  return static_cast<int>(std::ranges::count_if(hosts, [&](const TaskHost& host) {
    return host.is_loopback() || (self != hosts.end() && host.host == self->host);
  }));
}

std::string machine_name() {
  std::array<char, 256> name{};
  return gethostname(name.data(), name.size() - 1) == 0 ? name.data() : "";
}

Findings examine(const DoctorFlags& flags) {
  Findings findings;
  const auto add = [&](Findings more) { std::ranges::move(more, std::back_inserter(findings)); };
  const auto resolved = check_cluster(flags, findings);
  std::vector<TaskHost> hosts;
  if (resolved && !resolved->cluster.empty()) {
    hosts = resolve_tasks(resolved->cluster);
    add(check_names(hosts, resolved->task, machine_name()));
    const auto observer = check_security(flags, *resolved, hosts, findings);
    add(check_tasks(hosts, {.own = resolved->task, .bind = flags.server.bind, .observer = observer}));
  }
  add({check_proxies(process_environment()),
       check_cores(usable_cores(), tasks_here(hosts, resolved ? resolved->task : std::nullopt))});
  rlimit files{};
  if (getrlimit(RLIMIT_NOFILE, &files) == 0) {
    add({check_open_files(static_cast<std::size_t>(files.rlim_cur), hosts.size())});
  }
  return findings;
}

std::string text_of(const Findings& findings, bool colour) {
  std::size_t about = 0;
  for (const Finding& finding : findings) about = std::max(about, finding.about.size());
  std::string text;
  for (const Finding& finding : findings) {
    const char* paint = finding.level == Level::kOk        ? "\x1b[32m"
                        : finding.level == Level::kWarning ? "\x1b[33m"
                                                           : "\x1b[31m";
    text += fmt::format("{}{:<7}{}  {:<{}}  {}\n", colour ? paint : "", name_of(finding.level),
                        colour ? "\x1b[0m" : "", finding.about, about, finding.text);
  }
  return text;
}

std::string json_of(const Findings& findings) {
  using Json = nlohmann::ordered_json;
  auto lines = Json::array();
  for (const Finding& finding : findings) {
    lines.push_back({{"level", name_of(finding.level)}, {"about", finding.about}, {"text", finding.text}});
  }
  return Json{{"findings", std::move(lines)}}.dump(-1, ' ', false, Json::error_handler_t::replace) + "\n";
}

int doctor(const DoctorFlags& flags) {
  const Findings findings = examine(flags);
  std::cout << (flags.json ? json_of(findings) : text_of(findings, wants_colour(STDOUT_FILENO)))
            << std::flush;
  const bool ill =
      std::ranges::any_of(findings, [](const Finding& one) { return one.level == Level::kProblem; });
  return ill ? kExitFailed : kExitDone;
}

}  // namespace

Command add_doctor(CLI::App& app) {
  auto flags = std::make_shared<DoctorFlags>();
  CLI::App* command = app.add_subcommand("doctor", "Look for what keeps a cluster from working");
  flags->add_cluster_flags(*command);
  flags->add_security_flags(*command);
  command->add_option("--bind", flags->server.bind,
                      "Address at which this task listens (default: its host in the cluster)");
  command->add_flag("--json", flags->json, "One JSON object");
  return {command, [flags] { return doctor(*flags); }};
}

}  // namespace tandem::internal
