#include "tandem/server.h"

#include <fmt/format.h>

#include "base/log.h"
#include "base/net.h"
#include "ps/ps_service.h"
#include "strategy/ps_session.h"
#include "strategy/task_group.h"
#include "strategy/torch_shard_store.h"
#include "tandem/error.h"

namespace tandem {
namespace {

using namespace internal;

constexpr std::chrono::milliseconds kJoinPoll{1000};

void check_service(const ParameterServiceOptions& options) {
  if (options.max_staleness && *options.max_staleness < 0) {
    throw InvalidArgument(
        fmt::format("max_staleness is {}: expected 0 or more, or none", *options.max_staleness));
  }
  if (options.aggregate && (*options.aggregate < 1 || options.max_staleness != 0)) {
    throw InvalidArgument(
        fmt::format("aggregate is {}: expected 1 or more, and max_staleness 0 with it", *options.aggregate));
  }
  if (options.snapshot_interval.count() < 1 || options.snapshot_updates < 1) {
    throw InvalidArgument("the snapshots of a ps need an interval and a number of updates above 0");
  }
}

}  // namespace

struct Server::Service {
  explicit Service(ParameterServiceOptions service_options) : options(std::move(service_options)) {
    check_service(options);
  }

  const ParameterServiceOptions options;
  TorchShardStore store = {};
  std::optional<ps::PsService> service = {};

  // Begins to serve, and returns where.
  std::string start(const ClusterSpec& cluster, int index, const ServerOptions& server,
                    const std::string& key) {
    const std::string host =
        parse_address(cluster.task_address("ps", index), fmt::format("cluster.ps[{}]", index)).host;
    ps::PsServiceOptions service_options{.ps = index,
                                         .host = server.bind.empty() ? host : server.bind,
                                         .port = options.data_port,
                                         .cluster_id = cluster.id(),
                                         .key = key,
                                         .encrypt = server.security.mode == "tls",
                                         .workers = static_cast<int>(training_tasks(cluster).size()),
                                         .reject_not_finite = options.reject_not_finite,
                                         .snapshot_every = options.snapshot_interval,
                                         .snapshot_updates = options.snapshot_updates};
    if (options.max_staleness) service_options.staleness = static_cast<std::uint64_t>(*options.max_staleness);
    if (options.aggregate) service_options.aggregate = static_cast<std::size_t>(*options.aggregate);
    if (!options.snapshot_dir.empty()) {
      service_options.snapshot_folder = fmt::format("{}/ps-{}", options.snapshot_dir, index);
    }
    service.emplace(store, std::move(service_options));
    return join_host_port(host, service->port());
  }
};

namespace {

// A ps listens for gradients before anyone can hear of it.
ServerOptions with_service(
    ServerOptions options, std::optional<int> index,
    std::function<std::string(int index, const ServerOptions&, const std::string& key)> start) {
  options.offer_with_key = [base = options, index, start = std::move(start)](const std::string& key) {
    return std::map<std::string, std::string>{{kPsAddress, start(index.value_or(0), base, key)}};
  };
  return options;
}

bool is_ps(const ClusterSpec& cluster, const std::string& job) {
  return job == "ps" || (job.empty() && cluster.jobs() == std::vector<std::string>{"ps"});
}

}  // namespace

Server::Server(const ClusterSpec& cluster, const std::string& job, std::optional<int> index,
               ServerOptions options, ParameterServiceOptions service)
    : Server(cluster, job, index, std::move(options),
             is_ps(cluster, job) ? std::make_unique<Service>(std::move(service)) : nullptr) {}

Server::Server(const ClusterSpec& cluster, const std::string& job, std::optional<int> index,
               ServerOptions options, std::unique_ptr<Service> service)
    : TaskServer(cluster, job, index,
                 service ? with_service(
                               ps_server_options(cluster, std::move(options), service->options.max_staleness,
                                                 service->options.aggregate),
                               index,
                               [&](int ps, const ServerOptions& server, const std::string& key) {
                                 return service->start(cluster, ps, server, key);
                               })
                         : std::move(options)),
      service_(std::move(service)) {}

Server::~Server() = default;
Server::Server(Server&&) noexcept = default;
Server& Server::operator=(Server&&) noexcept = default;

void Server::join() {
  if (!service_) return TaskServer::join();
  ps::PsService& service = *service_->service;
  log_info("{}: serves parameters{}", task().name(),
           service.counters().resumed
               ? fmt::format(", from a snapshot with {} updates", service.counters().updates)
               : "");
  set_details([&service] { return ps::details_of(service.counters()); });
  while (!service.join(kJoinPoll)) {
    const ps::PsCounters counters = service.counters();
    set_progress(static_cast<std::int64_t>(counters.updates), 0);
  }
  set_details({});
  const ps::PsCounters counters = service.counters();
  log_info("{}: the training is over after {} updates and {} pulls of {} bytes of variables", task().name(),
           counters.updates, counters.pulls, counters.bytes);
  finish();
}

}  // namespace tandem
