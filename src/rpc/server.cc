#include "tandem/server.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "base/hmac.h"
#include "base/net.h"
#include "rpc/control_plane.h"
#include "rpc/security.h"
#include "tandem/error.h"

namespace tandem {
namespace {

using namespace internal;

constexpr const char* kLocalJob = "localhost";

TaskId own_task(const ClusterSpec& cluster, const std::string& job, std::optional<int> index) {
  if (cluster.empty()) throw InvalidArgument("a Server needs a cluster with at least one task");
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

Offer make_offer(std::map<std::string, std::string> entries) {
  const std::string fault = fault_of(entries);
  if (!fault.empty()) throw InvalidArgument(fmt::format("ServerOptions::offer {}", fault));
  return {.entries = std::move(entries), .key_share = random_nonce()};
}

}  // namespace

struct Server::Impl {
  Impl(const ClusterSpec& cluster, TaskId own, const HostPort& address, ServerOptions options)
      : task(std::move(own)),
        cluster_id(cluster.id()),
        plane(
            {.identity = {.cluster = cluster,
                          .task = task,
                          .incarnation = new_incarnation(),
                          .program = std::move(options.program),
                          .offer = make_offer(std::move(options.offer)),
                          .security = load_security(options.security, task, is_loopback_host(address.host))},
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

Server::Server(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}

Server::Server(const ClusterSpec& cluster, const std::string& job, std::optional<int> index,
               ServerOptions options) {
  cluster.check();
  TaskId task = own_task(cluster, job, index);
  const HostPort address =
      parse_address(cluster.task_address(task), fmt::format("cluster.{}[{}]", task.type, task.index));
  const HostPort listen{options.bind.empty() ? address.host : options.bind, address.port};
  impl_ = std::make_unique<Impl>(cluster, std::move(task), listen, std::move(options));
  impl_->target = "grpc://" + join_host_port(address.host, impl_->plane.port());
}

Server Server::create_local_server(ServerOptions options) {
  const HostPort address{"127.0.0.1", 0};
  auto impl = std::make_unique<Impl>(ClusterSpec({{kLocalJob, {"127.0.0.1:0"}}}), TaskId{kLocalJob, 0},
                                     address, std::move(options));
  impl->target = "grpc://" + join_host_port(address.host, impl->plane.port());
  return Server(std::move(impl));
}

Server::~Server() = default;
Server::Server(Server&&) noexcept = default;
Server& Server::operator=(Server&&) noexcept = default;

const std::string& Server::target() const {
  return impl_->target;
}

const TaskId& Server::task() const {
  return impl_->task;
}

int Server::port() const {
  return impl_->plane.port();
}

const std::string& Server::cluster_id() const {
  return impl_->cluster_id;
}

std::string Server::security_mode() const {
  return name_of(impl_->plane.security_mode());
}

void Server::wait_for_all() {
  impl_->plane.wait_for_all();
}

std::uint64_t Server::generation() const {
  return impl_->plane.run("the generation").generation;
}

std::map<TaskId, std::map<std::string, std::string>> Server::offers() const {
  return impl_->plane.run("what the tasks offer").offers;
}

std::string Server::data_key() const {
  return impl_->plane.run("the key of the data plane").data_key;
}

void Server::set_progress(std::int64_t step, double examples_per_second) {
  impl_->plane.set_progress(step, examples_per_second);
}

void Server::set_details(std::function<std::map<std::string, std::string>()> details) {
  impl_->plane.set_details(std::move(details));
}

void Server::check() const {
  impl_->plane.check();
}

std::optional<LostTask> Server::lost() const {
  return impl_->plane.lost();
}

void Server::on_lost(std::function<void(const LostTask&)> listener) {
  impl_->plane.on_lost(std::move(listener));
}

void Server::finish() {
  impl_->plane.finish();
}

void Server::join() {
  impl_->plane.join();
}

void Server::leave() {
  impl_->plane.leave();
}

}  // namespace tandem
