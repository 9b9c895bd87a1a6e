#include "cluster/ranks.h"

#include <fmt/format.h>

#include "cluster/environment.h"
#include "tandem/error.h"

namespace tandem::internal {
namespace {

std::vector<std::string> local_addresses(const RankVariables& variables, int size, int port_base) {
  if (port_base < 1 || port_base > 65536 - size) {
    throw InvalidArgument(
        fmt::format("{}: {} tasks do not fit on the ports from {} to 65535: expected a lower first "
                    "port, such as 8888",
                    variables.launcher, size, port_base));
  }
  std::vector<std::string> addresses;
  for (int rank = 0; rank < size; ++rank) addresses.push_back(fmt::format("localhost:{}", port_base + rank));
  return addresses;
}

}  // namespace

std::optional<ResolvedCluster> workers_by_rank(const RankVariables& variables, const RankOptions& options,
                                               int port_base) {
  const auto rank = int_variable(options.environment, variables.rank, 0);
  const auto size = int_variable(options.environment, variables.size, 1);
  if (!rank || !size) return std::nullopt;
  if (*rank >= *size) {
    throw InvalidArgument(fmt::format("{}: {} is {}, but {} is {}: expected 0 to {}", variables.launcher,
                                      variables.rank, *rank, variables.size, *size, *size - 1));
  }
  std::vector<std::string> addresses = options.hosts;
  if (addresses.empty()) {
    const auto local_size = int_variable(options.environment, variables.local_size, 1);
    if (*size > 1 && local_size != size) {
      throw InvalidArgument(
          fmt::format("{}: {} is {} and {} is {}, so some tasks run on machines that these variables do not "
                      "name: give the "
                      "address of each rank, as in --worker_hosts 10.0.0.1:2222,10.0.0.2:2222, or TF_CONFIG",
                      variables.launcher, variables.size, *size, variables.local_size,
                      local_size ? std::to_string(*local_size) : "missing"));
    }
    addresses = local_addresses(variables, *size, port_base);
  } else if (addresses.size() != static_cast<std::size_t>(*size)) {
    throw InvalidArgument(
        fmt::format("{}: {} is {}, but {} addresses are given: expected one for each rank, as in "
                    "10.0.0.1:2222,10.0.0.2:2222",
                    variables.launcher, variables.size, *size, addresses.size()));
  }
  ResolvedCluster resolved;
  resolved.cluster = ClusterSpec({{"worker", JobTasks(addresses)}});
  resolved.task = TaskId{"worker", *rank};
  resolved.source = variables.launcher;
  try {
    resolved.check();
  } catch (const InvalidArgument& error) {
    throw InvalidArgument(fmt::format("{}: {}", variables.launcher, error.what()));
  }
  return resolved;
}

}  // namespace tandem::internal
