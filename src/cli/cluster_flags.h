#pragma once

#include <CLI/CLI.hpp>

#include "tandem/cluster_resolver.h"
#include "tandem/task_server.h"

namespace tandem::internal {

// The flags with which every program of a cluster is told about it.
struct ClusterProgramFlags {
  ClusterFlags cluster = {};
  ServerOptions server = {};
  double join_timeout_seconds = 600;

  // Which cluster, and which task of it this is.
  void add_cluster_flags(CLI::App& app);
  // How tasks know each other.
  void add_security_flags(CLI::App& app);
  // Where to listen, how long to wait.
  void add_server_flags(CLI::App& app);

  // Throws InvalidArgument, naming the flag.
  ServerOptions server_options() const;
};

}  // namespace tandem::internal
