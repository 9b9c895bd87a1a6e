#include "strategy/task_group.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <chrono>
#include <string_view>
#include <thread>

#include "base/log.h"
#include "base/net.h"
#include "comm/group.h"
#include "tandem/error.h"

namespace tandem::internal {
namespace {

using std::chrono::milliseconds;

constexpr const char* kDataAddress = "data_address";

// A lost connection tells less than the control plane, which also knows which task it was that all others
// lost. Its verdict comes within a second of a death.
constexpr milliseconds kVerdictPatience{1200};
constexpr milliseconds kVerdictPoll{2};

// What tells a task that failed on its own from one that was lost.
constexpr const char* kFailed = " failed at step ";

std::string host_of(const ClusterSpec& cluster, const TaskId& task) {
  return parse_address(cluster.task_address(task), task.name()).host;
}

std::string first_line(const std::exception_ptr& error) {
  std::string text = "an unknown error";
  try {
    std::rethrow_exception(error);
  } catch (const std::exception& known) {
    text = known.what();
  } catch (...) {
  }
  text.resize(std::min(text.find('\n'), text.size()));
  return text;
}

}  // namespace

std::vector<TaskId> training_tasks(const ClusterSpec& cluster) {
  std::vector<TaskId> tasks = cluster.tasks();
  std::erase_if(tasks, [](const TaskId& task) { return task.type == "ps" || task.type == "evaluator"; });
  return tasks;
}

TaskGroup::TaskGroup(TaskGroupSetup setup) {
  const std::vector<TaskId> tasks = training_tasks(setup.cluster);
  const std::string host = host_of(setup.cluster, setup.task);
  auto port =
      std::make_unique<DataPort>(setup.server.bind.empty() ? host : setup.server.bind, setup.data_port);
  // What this task is bound to may mean nothing elsewhere (0.0.0.0): then its name in the cluster.
  const std::string data_address = join_host_port(host, port->port());
  setup.server.offer[kDataAddress] = data_address;
  setup.server.optional_jobs = {"evaluator", "ps"};
  server_ =
      std::make_unique<TaskServer>(setup.cluster, setup.task.type, setup.task.index, std::move(setup.server));
  server_->wait_for_all();

  const auto offers = server_->offers();
  GroupSetup group{.rank = static_cast<int>(std::ranges::find(tasks, setup.task) - tasks.begin()),
                   .members = {},
                   .port = std::move(port),
                   .cluster_id = server_->cluster_id(),
                   .generation = server_->generation(),
                   .key = server_->data_key(),
                   .encrypt = server_->security_mode() == "tls",
                   .trusted_network = server_->security_mode() == "insecure"};
  for (const TaskId& task : tasks) {
    members_.push_back(task.name());
    group.members.push_back({.name = task.name(),
                             .host = host_of(setup.cluster, task),
                             .data_address = offers.at(task).at(kDataAddress)});
  }
  chiefs_offers_ = offers.at(tasks.front());
  connect(std::move(group), setup.communication);
  log_info("{} is rank {} of {} ({}): data at {}, security {}", self(), rank(), size(),
           fmt::join(members_, ", "), data_address, server_->security_mode());
  server_->on_lost([this](const LostTask& lost) {
    // One that leaves says why over its connections first, or passes on what it heard there: that is the
    // better story. Their end wakes whoever waits for it.
    if (lost.evidence == "left") return;
    communicator_->abort(lost.message, std::make_exception_ptr(Unavailable(lost.message)));
  });
}

void TaskGroup::connect(GroupSetup group, const CommunicationOptions& options) {
  try {
    communicator_.emplace(join_group(std::move(group), options));
  } catch (const Unavailable&) {
    throw_verdict();
    throw;
  }
}

TaskGroup::~TaskGroup() {
  const bool in_order = !failed_ && (stopped_together_ || std::uncaught_exceptions() == 0);
  if (!in_order && !failed_) {
    communicator_->abort(fmt::format("{}{}{}: it ended with an error", self(), kFailed, step_.load()));
  }
  server_->on_lost({});
  if (in_order) server_->finish();
}

void TaskGroup::run(const std::function<void()>& fn) {
  try {
    fn();
  } catch (const Aborted& aborted) {
    failed_ = true;
    if (std::string_view(aborted.what()).find(kFailed) == std::string_view::npos) throw_verdict();
    throw;
  } catch (const Unavailable&) {
    failed_ = true;
    throw_verdict();
    throw;
  } catch (...) {
    failed_ = true;
    throw;
  }
}

void TaskGroup::throw_verdict() const {
  const auto until = std::chrono::steady_clock::now() + kVerdictPatience;
  do {
    if (const auto lost = server_->lost()) throw Unavailable(lost->message);
    std::this_thread::sleep_for(kVerdictPoll);
  } while (std::chrono::steady_clock::now() < until);
}

void TaskGroup::fail(const std::exception_ptr& error) {
  if (failed_.exchange(true)) return;
  communicator_->abort(fmt::format("{}{}{}: {}", self(), kFailed, step_.load(), first_line(error)));
}

void TaskGroup::set_progress(std::int64_t step, double examples_per_second) {
  step_ = step;
  server_->set_progress(step, examples_per_second);
}

}  // namespace tandem::internal
