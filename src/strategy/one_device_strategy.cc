#include "tandem/one_device_strategy.h"

#include "strategy/strategy_impl.h"

namespace tandem {

OneDeviceStrategy::OneDeviceStrategy(const std::string& device, OneDeviceOptions options)
    : Strategy(std::make_shared<internal::StrategyImpl>(
          internal::StrategySetup{.name = "one_device",
                                  .devices = resolve_devices({device}),
                                  .threads_per_replica = options.threads_per_replica,
                                  .cross_device_ops = shared_memory_all_reduce()})) {}

}  // namespace tandem
