#pragma once

#include <fmt/format.h>

#include <memory>
#include <string>
#include <vector>

#include "ps/ps_client.h"
#include "ps/ps_service.h"
#include "ps_service/counting_model.h"
#include "ps_service/counting_store.h"
#include "tandem/placement.h"

namespace tandem::testing_support {

using internal::ps::at_addresses;
using internal::ps::PlacementPlan;
using internal::ps::PsClient;
using internal::ps::PsClientOptions;
using internal::ps::PsService;
using internal::ps::PsServiceOptions;
using internal::ps::PullTarget;
using internal::ps::Shard;

// Shards 0 and 1: "w" by rows; 2: "b"; 3: "d", of doubles.
inline PlacementPlan small_plan(int num_ps = 2) {
  return {{{"w", "F32", {6, 4}}, {"b", "F32", {5}}, {"d", "F64", {7}}},
          {.num_ps = num_ps, .partitioner = FixedShardsPartitioner(2)}};
}

template <typename T>
std::span<const std::byte> bytes_of(const std::vector<T>& values) {
  return std::as_bytes(std::span(values));
}

// A model's values on a worker, by shard.
struct Values {
  explicit Values(const PlacementPlan& plan, std::byte fill = {}) {
    for (const Shard& shard : plan.shards()) shards.emplace_back(shard.bytes, fill);
  }
  std::vector<std::span<const std::byte>> spans() const { return {shards.begin(), shards.end()}; }
  std::vector<PullTarget> targets() {
    std::vector<PullTarget> targets;
    for (std::size_t i = 0; i < shards.size(); ++i) targets.push_back({.shard = i, .values = shards[i]});
    return targets;
  }
  float* floats(std::size_t shard) { return reinterpret_cast<float*>(shards[shard].data()); }
  double* doubles(std::size_t shard) { return reinterpret_cast<double*>(shards[shard].data()); }

  std::vector<std::vector<std::byte>> shards;
};

// Some ps tasks in this process.
struct Servers {
  explicit Servers(int count, PsServiceOptions options = {}) {
    options.cluster_id = kClusterId;
    options.key = kKey;
    for (int ps = 0; ps < count; ++ps) {
      options.ps = ps;
      stores.push_back(std::make_unique<CountingStore>());
      services.push_back(std::make_unique<PsService>(*stores.back(), options));
      addresses.push_back(fmt::format("127.0.0.1:{}", services.back()->port()));
    }
  }
  std::unique_ptr<PsClient> client(const PlacementPlan& plan, int worker, PsClientOptions options = {}) {
    options.worker = worker;
    if (!options.locate) options.locate = at_addresses(addresses, kKey);
    options.cluster_id = kClusterId;
    options.connect_timeout = std::chrono::seconds(10);
    return std::make_unique<PsClient>(plan, options);
  }
  // The chief, having initialised with zeros.
  std::unique_ptr<PsClient> chief(const PlacementPlan& plan, PsClientOptions options = {}) {
    auto chief = client(plan, 0, options);
    chief->initialise("count", Values(plan).spans());
    return chief;
  }

  std::vector<std::unique_ptr<CountingStore>> stores;
  std::vector<std::unique_ptr<PsService>> services;
  std::vector<std::string> addresses;
};

}  // namespace tandem::testing_support
