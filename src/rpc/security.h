#pragma once

#include <grpcpp/security/credentials.h>
#include <grpcpp/security/server_credentials.h>

#include <memory>
#include <optional>
#include <string>

#include "tandem/cluster_spec.h"
#include "tandem/task_server.h"

namespace tandem::internal {

// How this process proves who it is, and what it asks of others. Read once, from files; a value.
struct Security {
  enum class Mode { kInsecure, kToken, kTls };

  Mode mode = Mode::kInsecure;
  std::string token = {};
  // PEM.
  std::string certificate = {};
  std::string key = {};
  std::string authority = {};

  std::shared_ptr<grpc::ServerCredentials> server_credentials() const;
  std::shared_ptr<grpc::ChannelCredentials> channel_credentials() const;
};

// "insecure", "token" or "tls", as the options call it.
const char* name_of(Security::Mode mode);

// Checks the options and reads the files. `task`: empty for an operator, who is no task. `loopback`: whether
// the peers can only be of this machine. Throws InvalidArgument or NotFound in one line; off loopback without
// a choice it shows the three ways, to be copied.
Security load_security(const SecurityOptions& options, const std::optional<TaskId>& task, bool loopback);

}  // namespace tandem::internal
