#include "cli/cluster_flags.h"

#include <fmt/format.h>

#include "tandem/error.h"

namespace tandem::internal {

void ClusterProgramFlags::add_cluster_flags(CLI::App& app) {
  app.add_option("--cluster_file", cluster.cluster_file,
                 "File with the JSON of TF_CONFIG (default: the variable)");
  app.add_option("--worker_hosts", cluster.worker_hosts, "Addresses of the workers, host:port,host:port");
  app.add_option("--task_type", cluster.task_type, "chief, worker, ps or evaluator");
  app.add_option("--task_index", cluster.task_index, "Which task of its job this process is");
}

void ClusterProgramFlags::add_security_flags(CLI::App& app) {
  app.add_option("--security", server.security.mode,
                 "insecure, token or tls (default: insecure on loopback only)");
  app.add_option("--token_file", server.security.token_file, "For token: the file of `tandem certs token`");
  app.add_option("--certs", server.security.certs, "For tls: the folder of `tandem certs issue`");
  app.add_flag("--insecure_network", server.security.insecure_network, "Allows insecure beyond loopback");
}

void ClusterProgramFlags::add_server_flags(CLI::App& app) {
  app.add_option("--bind", server.bind, "Address to listen at (default: this task's host in the cluster)");
  app.add_option("--join_timeout", join_timeout_seconds, "Seconds to wait for the other tasks")
      ->capture_default_str();
}

ServerOptions ClusterProgramFlags::server_options() const {
  if (!(join_timeout_seconds > 0) || join_timeout_seconds > 1e6) {
    throw InvalidArgument(
        fmt::format("--join_timeout is {}: expected seconds above 0", join_timeout_seconds));
  }
  ServerOptions options = server;
  options.join_timeout = std::chrono::milliseconds(static_cast<std::int64_t>(join_timeout_seconds * 1000));
  return options;
}

}  // namespace tandem::internal
