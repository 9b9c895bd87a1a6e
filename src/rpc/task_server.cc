#include "tandem/task_server.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "base/hmac.h"
#include "base/net.h"
#include "rpc/control_plane.h"
#include "rpc/data_key.h"
#include "rpc/security.h"
#include "tandem/error.h"

namespace tandem {
namespace {

using namespace internal;

constexpr const char* kLocalJob = "localhost";

TaskId own_task(const ClusterSpec& cluster, const std::string& job, std::optional<int> index) {
  if (cluster.empty()) throw InvalidArgument("a TaskServer needs a cluster with at least one task");
  const auto jobs = cluster.jobs();
  if (job.empty() && jobs.size() > 1) {
    throw InvalidArgument(
        fmt::format("the cluster has the jobs {}: say which one this task is of", fmt::join(jobs, ", ")));
  }
  TaskId task{job.empty() ? jobs.front() : job, 0};
  const auto indices = cluster.task_indices(task.type);
  if (!index && indices.size() > 1) {
    throw InvalidArgument(
        fmt::format("job \"{}\" has {} tasks: say the index of this one", task.type, indices.size()));
  }
  task.index = index.value_or(indices.front());
  cluster.task_address(task);  // throws if there is none
  return task;
}

std::vector<MembershipOptions::Task> roles(const ClusterSpec& cluster,
                                           const std::vector<std::string>& optional_jobs) {
  std::vector<MembershipOptions::Task> roles;
  for (const TaskId& task : cluster.tasks()) {
    roles.push_back({.needed = std::ranges::find(optional_jobs, task.type) == optional_jobs.end(),
                     .trains = task.type != "ps" && task.type != "evaluator"});
  }
  return roles;
}

Incarnation new_incarnation() {
  Incarnation incarnation;
  while (!incarnation) random_bytes(&incarnation, sizeof incarnation);
  return incarnation;
}

Identity make_identity(const ClusterSpec& cluster, const TaskId& task, const HostPort& address,
                       ServerOptions& options) {
  Identity identity{.cluster = cluster,
                    .task = task,
                    .incarnation = new_incarnation(),
                    .program = std::move(options.program),
                    .offer = {.entries = std::move(options.offer), .key_share = random_nonce()},
                    .security = load_security(options.security, task, is_loopback_host(address.host))};
  if (options.offer_with_key) {
    identity.offer.entries.merge(options.offer_with_key(peer_key(identity, identity.offer.key_share)));
  }
  const std::string fault = fault_of(identity.offer.entries);
  if (!fault.empty()) throw InvalidArgument(fmt::format("ServerOptions::offer {}", fault));
  return identity;
}

}  // namespace

struct TaskServer::Impl {
  Impl(const ClusterSpec& cluster, TaskId own, const HostPort& address, ServerOptions options)
      : task(std::move(own)),
        cluster_id(cluster.id()),
        plane({.identity = make_identity(cluster, task, address, options),
               .listen_host = address.host,
               .listen_port = address.port,
               .roles = roles(cluster, options.optional_jobs),
               .join_timeout = options.join_timeout,
               .notice_interval = options.notice_interval}) {}

  TaskId task;
  std::string cluster_id;
  ControlPlane plane;
  std::string target = {};
};

TaskServer::TaskServer(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}

TaskServer::TaskServer(const ClusterSpec& cluster, const std::string& job, std::optional<int> index,
                       ServerOptions options) {
  cluster.check();
  TaskId task = own_task(cluster, job, index);
  const HostPort address =
      parse_address(cluster.task_address(task), fmt::format("cluster.{}[{}]", task.type, task.index));
  const HostPort listen{options.bind.empty() ? address.host : options.bind, address.port};
  impl_ = std::make_unique<Impl>(cluster, std::move(task), listen, std::move(options));
  impl_->target = "grpc://" + join_host_port(address.host, impl_->plane.port());
}

TaskServer TaskServer::create_local_server(ServerOptions options) {
  const HostPort address{"127.0.0.1", 0};
  auto impl = std::make_unique<Impl>(ClusterSpec({{kLocalJob, {"127.0.0.1:0"}}}), TaskId{kLocalJob, 0},
                                     address, std::move(options));
  impl->target = "grpc://" + join_host_port(address.host, impl->plane.port());
  return TaskServer(std::move(impl));
}

TaskServer::~TaskServer() = default;
TaskServer::TaskServer(TaskServer&&) noexcept = default;
TaskServer& TaskServer::operator=(TaskServer&&) noexcept = default;

const std::string& TaskServer::target() const {
  return impl_->target;
}

const TaskId& TaskServer::task() const {
  return impl_->task;
}

int TaskServer::port() const {
  return impl_->plane.port();
}

const std::string& TaskServer::cluster_id() const {
  return impl_->cluster_id;
}

std::string TaskServer::security_mode() const {
  return name_of(impl_->plane.security_mode());
}

void TaskServer::wait_for_all() {
  impl_->plane.wait_for_all();
}

std::uint64_t TaskServer::generation() const {
  return impl_->plane.run("the generation").generation;
}

std::map<TaskId, std::map<std::string, std::string>> TaskServer::offers() const {
  return impl_->plane.run("what the tasks offer").offers;
}

std::string TaskServer::data_key() const {
  return impl_->plane.run("the key of the data plane").data_key;
}

std::optional<PeerTask> TaskServer::peer(const TaskId& task) const {
  return impl_->plane.peer(task);
}

PeerTask TaskServer::wait_for_peer(const TaskId& task, std::chrono::milliseconds timeout) const {
  return impl_->plane.wait_for_peer(task, timeout);
}

std::string TaskServer::own_key() const {
  return impl_->plane.own_key();
}

void TaskServer::set_rounds(std::uint64_t rounds) {
  impl_->plane.set_rounds(rounds);
}

void TaskServer::set_progress(std::int64_t step, double examples_per_second) {
  impl_->plane.set_progress(step, examples_per_second);
}

void TaskServer::set_details(std::function<std::map<std::string, std::string>()> details) {
  impl_->plane.set_details(std::move(details));
}

void TaskServer::check() const {
  impl_->plane.check();
}

std::optional<LostTask> TaskServer::lost() const {
  return impl_->plane.lost();
}

void TaskServer::on_lost(std::function<void(const LostTask&)> listener) {
  impl_->plane.on_lost(std::move(listener));
}

void TaskServer::finish() {
  impl_->plane.finish();
}

void TaskServer::join() {
  impl_->plane.join();
}

void TaskServer::leave() {
  impl_->plane.leave();
}

}  // namespace tandem
