#pragma once

#include <string>

#include "tandem/strategy.h"

namespace tandem {

struct OneDeviceOptions {
  // Intra-op threads of the replica. 0: every usable core.
  int threads_per_replica = 0;
};

// One replica on the named device: to try a program before scaling it.
class OneDeviceStrategy final : public Strategy {
 public:
  // Throws InvalidArgument if there is no such device.
  explicit OneDeviceStrategy(const std::string& device = "/cpu:0", OneDeviceOptions options = {});
};

}  // namespace tandem
