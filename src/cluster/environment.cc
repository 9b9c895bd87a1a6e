#include "cluster/environment.h"

#include <cstdlib>

namespace tandem::internal {

std::optional<std::string> tf_config_variable() {
  const char* value = std::getenv("TF_CONFIG");
  if (!value || !*value) return std::nullopt;
  return value;
}

}  // namespace tandem::internal
