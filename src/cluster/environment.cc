#include "cluster/environment.h"

#include <fmt/format.h>

#include <cstdlib>

#include "cluster/text.h"
#include "tandem/error.h"

namespace tandem {

Environment process_environment() {
  return [](const char* name) -> std::optional<std::string> {
    const char* value = std::getenv(name);
    if (!value || !*value) return std::nullopt;
    return value;
  };
}

namespace internal {

std::optional<std::string> tf_config_variable() {
  return process_environment()("TF_CONFIG");
}

std::optional<int> int_variable(const Environment& environment, const char* name, int lowest) {
  const auto text = environment(name);
  if (!text) return std::nullopt;
  const auto value = parse_int(*text);
  if (!value || *value < lowest) {
    throw InvalidArgument(fmt::format("{0} is {1}: expected a whole number from {2} on, such as {0}={2}",
                                      name, quote(*text), lowest));
  }
  return value;
}

}  // namespace internal
}  // namespace tandem
