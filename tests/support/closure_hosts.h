#pragma once

#include <fmt/format.h>

#include <chrono>
#include <functional>
#include <future>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/hmac.h"
#include "strategy/closure_host.h"
#include "tandem/coordinator.h"

namespace tandem::testing_support {

inline constexpr const char* kHostsCluster = "fedcba9876543210fedcba9876543210";

// What a control plane would tell the coordinator: where the newest process of each worker is.
class ClosureDirectory {
 public:
  void put(int worker, internal::ps::ClosureEndpoint endpoint) {
    const std::lock_guard lock(mutex_);
    endpoints_[worker] = std::move(endpoint);
  }
  std::optional<internal::ps::ClosureEndpoint> get(int worker) {
    const std::lock_guard lock(mutex_);
    const auto found = endpoints_.find(worker);
    if (found == endpoints_.end()) return std::nullopt;
    return found->second;
  }

 private:
  std::mutex mutex_;
  std::map<int, internal::ps::ClosureEndpoint> endpoints_;
};

// The coordinator or a worker of a cluster that consists of threads of this process.
class ThreadHost final : public internal::ClosureHost {
 public:
  // `worker` -1: the coordinator.
  ThreadHost(ClosureDirectory& directory, int workers, int worker = -1)
      : directory_(directory), workers_(workers), worker_(worker) {
    if (worker < 0) return;
    std::string key(32, '\0');
    internal::random_bytes(key.data(), key.size());
    server_ = std::make_unique<internal::ps::ClosureServer>(
        internal::ps::ClosureServerOptions{.worker = worker, .cluster_id = kHostsCluster, .key = key});
    directory.put(worker, {server_->address(), key});
  }

  bool is_coordinator() const override { return worker_ < 0; }
  int num_workers() const override { return workers_; }
  std::string worker_name(int worker) const override { return fmt::format("worker:{}", worker); }
  std::optional<internal::ps::ClosureEndpoint> locate(int worker, std::string& why) override {
    why = "has not come yet";
    return directory_.get(worker);
  }
  std::string cluster_id() const override { return kHostsCluster; }
  bool encrypts() const override { return false; }
  std::uint64_t first_closure() override { return 1; }
  int worker() const override { return worker_; }
  internal::ps::ClosureServer& closure_server() override { return *server_; }
  void set_closure(std::uint64_t closure, std::uint64_t settled_below) override {
    closures_set.emplace_back(closure, settled_below);
  }

  std::vector<std::pair<std::uint64_t, std::uint64_t>> closures_set;  // on a worker

 private:
  ClosureDirectory& directory_;
  int workers_;
  int worker_;
  std::unique_ptr<internal::ps::ClosureServer> server_;
};

// A cluster of threads, one for each worker. Every task registers the same functions and datasets.
class ThreadCluster {
 public:
  using Register = std::function<void(ClusterCoordinator& coordinator)>;

  ThreadCluster(int workers, Register add, std::function<Strategy()> make_strategy)
      : chief_host_(directory_, workers) {
    for (int worker = 0; worker < workers; ++worker) {
      hosts_.push_back(std::make_unique<ThreadHost>(directory_, workers, worker));
      served_.push_back(std::async(std::launch::async, [add, make_strategy, host = hosts_.back().get()] {
        ClusterCoordinator coordinator(make_strategy(), *host,
                                       {.coordinator_timeout = std::chrono::seconds(20)});
        add(coordinator);
        coordinator.serve();
      }));
    }
    coordinator = std::make_unique<ClusterCoordinator>(
        make_strategy(), chief_host_,
        ClusterCoordinatorOptions{.all_workers_timeout = std::chrono::seconds(20)});
    add(*coordinator);
  }
  ~ThreadCluster() { coordinator.reset(); }

  // After the coordinator is gone: throws what serve() threw there.
  void wait_for_worker(int worker) { served_[static_cast<std::size_t>(worker)].get(); }
  const ThreadHost& host(int worker) const { return *hosts_[static_cast<std::size_t>(worker)]; }

 private:
  ClosureDirectory directory_;
  ThreadHost chief_host_;
  std::vector<std::unique_ptr<ThreadHost>> hosts_;
  std::vector<std::future<void>> served_;

 public:
  std::unique_ptr<ClusterCoordinator> coordinator;  // of this thread
};

}  // namespace tandem::testing_support
