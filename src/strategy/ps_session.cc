#include "strategy/ps_session.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstring>
#include <exception>
#include <thread>

#include "base/log.h"
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

std::vector<TaskId> computing_tasks(const ClusterSpec& cluster) {
  return training_tasks(cluster);
}

void make_all_optional(const ClusterSpec& cluster, ServerOptions& options) {
  options.optional_jobs = cluster.jobs();
}

PsSession::PsSession(const ClusterSpec& cluster, const TaskId& task, ServerOptions options)
    : workers_(computing_tasks(cluster)),
      servers_(tasks_of(cluster, "ps")),
      worker_(static_cast<int>(std::ranges::find(workers_, task) - workers_.begin())),
      name_(task.name()) {
  make_all_optional(cluster, options);
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

ps::PsClientOptions PsSession::client_options() const {
  ps::PsClientOptions options{
      .worker = worker_, .cluster_id = server_->cluster_id(), .encrypt = server_->security_mode() == "tls"};
  options.locate = [this](int ps, std::string& why) -> std::optional<ps::PsEndpoint> {
    const auto found = server_->peer(servers_[static_cast<std::size_t>(ps)]);
    if (!found || found->ended) {
      why = found ? "it has ended" : "nothing is heard of it";
      return std::nullopt;
    }
    const auto address = found->offer.find(kPsAddress);
    if (address == found->offer.end()) {
      why = "it serves no parameters: all that a ps task does is Server::join()";
      return std::nullopt;
    }
    return ps::PsEndpoint{.address = address->second, .key = found->key};
  };
  return options;
}

std::vector<std::pair<std::string, std::int64_t>> PsSession::behind() const {
  std::vector<std::pair<std::string, std::int64_t>> who;
  for (const TaskId& task : workers_) {
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
