#pragma once

#include <fmt/format.h>

#include <cstdio>
#include <fstream>
#include <optional>
#include <sstream>
#include <string>

#include "ps/closure_dispatcher.h"

namespace tandem::testing_support {

inline constexpr const char* kClosureCluster = "0123456789abcdef0123456789abcdef";

// Where a worker is, told through a file as a control plane would tell it.
inline std::string where_file(const std::string& folder, int worker) {
  return fmt::format("{}/worker{}", folder, worker);
}

inline void tell_where(const std::string& folder, int worker, const internal::ps::ClosureEndpoint& endpoint) {
  const std::string file = where_file(folder, worker);
  std::ofstream(file + ".new", std::ios::binary) << endpoint.address << '\n' << endpoint.key;
  std::rename((file + ".new").c_str(), file.c_str());
}

inline std::optional<internal::ps::ClosureEndpoint> ask_where(const std::string& folder, int worker,
                                                              std::string& why) {
  std::ifstream file(where_file(folder, worker), std::ios::binary);
  internal::ps::ClosureEndpoint endpoint;
  std::ostringstream rest;
  if (!std::getline(file, endpoint.address) || !(rest << file.rdbuf())) {
    why = "has not come yet";
    return std::nullopt;
  }
  endpoint.key = rest.str();
  return endpoint;
}

// To workers that say there where they are.
inline internal::ps::ClosureDispatcherOptions dispatch_to(const std::string& folder, int workers) {
  internal::ps::ClosureDispatcherOptions options{.cluster_id = kClosureCluster};
  for (int worker = 0; worker < workers; ++worker)
    options.workers.push_back(fmt::format("worker:{}", worker));
  options.locate = [folder](int worker, std::string& why) { return ask_where(folder, worker, why); };
  return options;
}

}  // namespace tandem::testing_support
