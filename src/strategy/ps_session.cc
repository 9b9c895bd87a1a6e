#include "strategy/ps_session.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstring>
#include <exception>
#include <thread>

#include "base/log.h"
#include "base/net.h"
#include "strategy/task_group.h"
#include "tandem/error.h"

namespace tandem::internal {
namespace {

using std::chrono::milliseconds;
using Clock = std::chrono::steady_clock;

constexpr milliseconds kPoll{20};
constexpr milliseconds kNotice{5000};

std::vector<TaskId> tasks_of(const ClusterSpec& cluster, const std::string& job) {
  std::vector<TaskId> tasks = cluster.tasks();
  std::erase_if(tasks, [&](const TaskId& task) { return task.type != job; });
  return tasks;
}

// Small enough to be typed again.
std::uint64_t seed_from(const std::string& key) {
  std::uint32_t seed = 0;
  std::memcpy(&seed, key.data(), sizeof seed);
  return seed;
}

}  // namespace

ServerOptions ps_server_options(const ClusterSpec& cluster, ServerOptions options,
                                std::optional<int> max_staleness, std::optional<int> aggregate) {
  const auto or_none = [](const std::optional<int>& value) {
    return value ? std::to_string(*value) : "none";
  };
  options.optional_jobs = cluster.jobs();
  options.program["strategy"] = "parameter_server";
  options.program["max_staleness"] = or_none(max_staleness);
  options.program["aggregate"] = or_none(aggregate);
  return options;
}

PsSession::PsSession(const ClusterSpec& cluster, const TaskId& task, ServerOptions options)
    : tasks_(training_tasks(cluster)),
      servers_(tasks_of(cluster, "ps")),
      number_(static_cast<int>(std::ranges::find(tasks_, task) - tasks_.begin())),
      name_(task.name()) {
  if (has_chief_job() && !is_chief()) {
    const std::string host = parse_address(cluster.task_address(task), name_).host;
    ps::ClosureServerOptions listening{.worker = worker(),
                                       .host = options.bind.empty() ? host : options.bind,
                                       .cluster_id = cluster.id(),
                                       .encrypt = options.security.mode == "tls"};
    options.offer_with_key = [this, host, listening](const std::string& key) mutable {
      listening.key = key;
      closures_ = std::make_unique<ps::ClosureServer>(listening);
      return std::map<std::string, std::string>{{kClosureAddress, join_host_port(host, closures_->port())}};
    };
  }
  const milliseconds patience = options.join_timeout;
  server_ = std::make_unique<TaskServer>(cluster, task.type, task.index, std::move(options));
  const auto until = Clock::now() + patience;
  for (const TaskId& ps : servers_) {
    const auto left = std::chrono::duration_cast<milliseconds>(until - Clock::now());
    const PeerTask found = server_->wait_for_peer(ps, std::max(left, milliseconds(1)));
    if (ps == servers_.front()) common_seed_ = seed_from(found.key);
  }
}

PsSession::~PsSession() {
  if (std::uncaught_exceptions() == 0) server_->finish();
}

void PsSession::set_step(std::int64_t step) {
  step_ = step;
  server_->set_progress(step_, examples_per_second_);
}

void PsSession::set_examples_per_second(double rate) {
  examples_per_second_ = rate;
  server_->set_progress(step_, examples_per_second_);
}

std::optional<std::pair<std::string, std::string>> PsSession::find(const TaskId& task, const char* offered,
                                                                   std::string& why) const {
  const auto found = server_->peer(task);
  if (!found || found->ended) {
    why = found ? "it has ended" : "nothing is heard of it";
    return std::nullopt;
  }
  const auto address = found->offer.find(offered);
  if (address == found->offer.end()) {
    why = fmt::format("it runs another program, which offers no {}", offered);
    return std::nullopt;
  }
  return std::pair(address->second, found->key);
}

ps::PsClientOptions PsSession::client_options() const {
  ps::PsClientOptions options{
      .worker = number_, .cluster_id = server_->cluster_id(), .encrypt = server_->security_mode() == "tls"};
  options.locate = [this](int ps, std::string& why) -> std::optional<ps::PsEndpoint> {
    const auto place = find(servers_[static_cast<std::size_t>(ps)], kPsAddress, why);
    if (!place) return std::nullopt;
    return ps::PsEndpoint{.address = place->first, .key = place->second};
  };
  return options;
}

std::optional<ps::ClosureEndpoint> PsSession::locate(int worker, std::string& why) {
  const auto place = find(tasks_[static_cast<std::size_t>(worker) + 1], kClosureAddress, why);
  if (!place) return std::nullopt;
  return ps::ClosureEndpoint{.address = place->first, .key = place->second};
}

// A coordinator that is started again must count on from where its predecessor was, and cannot ask it: it
// begins with the time. None schedules 65 closures in a microsecond.
std::uint64_t PsSession::first_closure() {
  const auto now = std::chrono::system_clock::now().time_since_epoch();
  return static_cast<std::uint64_t>(std::chrono::duration_cast<milliseconds>(now).count()) << 16;
}

void PsSession::set_closure(std::uint64_t closure, std::uint64_t settled_below) {
  closure_ = {.closure = closure, .closures_settled = settled_below};
}

ps::PushOrder PsSession::next_push() {
  const ps::PushOrder order = closure_;
  if (closure_.closure != 0) ++closure_.closure_push;
  return order;
}

std::vector<std::pair<std::string, std::int64_t>> PsSession::behind() const {
  std::vector<std::pair<std::string, std::int64_t>> who;
  for (const TaskId& task : tasks_) {
    if (task.name() == name_) continue;
    const auto found = server_->peer(task);
    if (found && !found->ended && found->rounds < rounds_) who.emplace_back(task.name(), found->step);
  }
  return who;
}

void PsSession::end_round(milliseconds patience) {
  server_->set_rounds(++rounds_);
  if (!is_chief()) return;
  auto last = behind();
  auto changed_at = Clock::now();
  auto say_at = changed_at + kNotice;
  while (!last.empty()) {
    std::vector<std::string> names;
    for (const auto& [name, step] : last) names.push_back(fmt::format("{} (step {})", name, step));
    if (Clock::now() - changed_at > patience) {
      log_warning("{}: goes on without {}: no step for {:.0f} s", name_, fmt::join(names, ", "),
                  std::chrono::duration<double>(patience).count());
      return;
    }
    if (Clock::now() >= say_at) {
      log_info("{}: is through with its part, and waits for {}", name_, fmt::join(names, ", "));
      say_at = Clock::now() + kNotice;
    }
    std::this_thread::sleep_for(kPoll);
    auto now = behind();
    if (now != last) changed_at = Clock::now();
    last = std::move(now);
  }
}

}  // namespace tandem::internal
