#include "tandem/callbacks.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <ranges>

#include "tandem/error.h"

namespace tandem {

void Logs::set(const std::string& name, double value) {
  const auto found = std::ranges::find(values_, name, &std::pair<std::string, double>::first);
  if (found == values_.end()) {
    values_.emplace_back(name, value);
  } else {
    found->second = value;
  }
}

bool Logs::has(const std::string& name) const {
  return std::ranges::find(values_, name, &std::pair<std::string, double>::first) != values_.end();
}

double Logs::at(const std::string& name) const {
  const auto found = std::ranges::find(values_, name, &std::pair<std::string, double>::first);
  if (found == values_.end()) {
    throw NotFound(fmt::format(
        "the logs have no \"{}\"; there are: {}", name,
        values_.empty() ? "none" : fmt::format("{}", fmt::join(values_ | std::views::keys, ", "))));
  }
  return found->second;
}

}  // namespace tandem
