// The strict part of ClusterSpec. It stands apart because it alone knows what training needs of a cluster.
#include <arpa/inet.h>
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <map>
#include <utility>

#include "cluster/job_types.h"
#include "cluster/text.h"
#include "tandem/cluster_spec.h"
#include "tandem/error.h"

namespace tandem {
namespace {

using internal::quote;

// job_tasks() has one place for each index up to the highest, so a typing error must not cost gigabytes.
constexpr int kHighestIndex = 999'999;

// Two spellings of one place are equal here: letters of either case, "::1" and "0:0::1", "2222" and "02222".
std::pair<std::string, int> place(const HostPort& address) {
  std::string host = address.host;
  std::transform(host.begin(), host.end(), host.begin(),
                 [](char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c; });
  in6_addr v6{};
  if (inet_pton(AF_INET6, host.c_str(), &v6) == 1) {
    std::array<char, INET6_ADDRSTRLEN> text{};
    host = inet_ntop(AF_INET6, &v6, text.data(), text.size());
  }
  return {host, address.port};
}

void check_job(const std::string& job, int tasks, int highest) {
  const auto& types = internal::job_types();
  if (std::find(types.begin(), types.end(), job) == types.end()) {
    throw InvalidArgument(
        fmt::format("cluster has the job {}{}: expected {}, as in "
                    "{{\"worker\": [\"10.0.0.1:2222\"]}}",
                    quote(job), internal::did_you_mean(job, types), fmt::join(types, ", ")));
  }
  if (tasks == 0) {
    throw InvalidArgument(
        fmt::format("cluster.{0} has no tasks: leave the job out, or give it some, as in "
                    "{{\"{0}\": [\"10.0.0.1:2222\"]}}",
                    job));
  }
  if (tasks > 1 && job != "worker" && job != "ps") {
    throw InvalidArgument(
        fmt::format("cluster.{0} has {1} tasks: expected one, as in "
                    "{{\"{0}\": [\"10.0.0.1:2222\"]}}",
                    job, tasks));
  }
  if (highest > kHighestIndex) {
    throw InvalidArgument(
        fmt::format("cluster.{0} has the task index {1}: expected 0 to {2}, as in "
                    "{{\"{0}\": {{\"0\": \"10.0.0.1:2222\"}}}}",
                    job, highest, kHighestIndex));
  }
}

}  // namespace

void ClusterSpec::check() const {
  std::map<std::pair<std::string, int>, TaskId> taken;
  for (const auto& [job, tasks] : jobs_) {
    const auto& addresses = tasks.addresses();
    check_job(job, static_cast<int>(addresses.size()), addresses.empty() ? 0 : addresses.rbegin()->first);
    for (const auto& [index, address] : addresses) {
      const auto where = place(parse_address(address, fmt::format("cluster.{}[{}]", job, index)));
      const auto [other, is_new] = taken.emplace(where, TaskId{job, index});
      if (!is_new) {
        throw InvalidArgument(fmt::format(
            "cluster.{}[{}] is {}, which {} has too: every task needs an address of its own, such as {}", job,
            index, quote(address), other->second.name(),
            quote(fmt::format("{}:{}", address.substr(0, address.rfind(':')),
                              where.second < 65535 ? where.second + 1 : where.second - 1))));
      }
    }
  }
  if (has_job("chief") && has_job("master")) {
    throw InvalidArgument(
        "cluster has both \"chief\" and \"master\", its old name: expected one of them, as in "
        "{\"chief\": [\"10.0.0.1:2222\"]}");
  }
}

}  // namespace tandem
