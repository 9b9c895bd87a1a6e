#pragma once

#include <ATen/core/Tensor.h>

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "strategy/replica_pool.h"
#include "strategy/variables.h"
#include "tandem/cross_device_ops.h"
#include "tandem/device.h"
#include "tandem/replica.h"

namespace tandem::internal {

class Updater;
struct OptimizerSpec;

struct StrategySetup {
  std::string name;
  std::vector<Device> devices;
  int threads_per_replica = 0;  // 0: the usable cores divided by the replicas
  std::shared_ptr<CrossDeviceOps> cross_device_ops;
  Placement placement = Placement::kMirrored;
};

// What stands behind a Strategy: the replica threads, and how gradients meet. The one-process strategies
// differ only in their setup; the others override.
class StrategyImpl {
 public:
  explicit StrategyImpl(StrategySetup setup);
  virtual ~StrategyImpl();
  StrategyImpl(const StrategyImpl&) = delete;
  StrategyImpl& operator=(const StrategyImpl&) = delete;

  const std::string& name() const { return setup_.name; }
  const std::vector<Device>& devices() const { return setup_.devices; }
  int num_local_replicas() const { return static_cast<int>(setup_.devices.size()); }
  Placement placement() const { return setup_.placement; }
  int threads_per_replica() const { return pool_.threads_per_replica(); }
  virtual int num_replicas_in_sync() const { return num_local_replicas(); }

  void run(const std::function<void(ReplicaContext&)>& fn, const DistributedBatch* batch);
  void seed_random(std::uint64_t seed, std::int64_t step);

  Meeting& meeting() { return pool_.meeting(); }
  CrossDeviceOps& cross_device_ops() { return *setup_.cross_device_ops; }

  // The replica that runs on this thread, or null.
  static ReplicaContext* current_replica();

  // How an optimizer's step reaches these variables. Called in cross-replica context.
  virtual std::unique_ptr<Updater> make_updater(std::shared_ptr<Variables> variables,
                                                const OptimizerSpec& optimizer);

  // The variables created under this strategy that still live, for an optimizer that was not told which to
  // update.
  void add_variables(const std::shared_ptr<Variables>& variables);
  std::vector<std::shared_ptr<Variables>> variables();

 private:
  StrategySetup setup_;
  ReplicaPool pool_;
  std::uint64_t seed_ = 0;
  std::int64_t step_ = 0;
  std::vector<std::weak_ptr<Variables>> variables_;
};

}  // namespace tandem::internal
