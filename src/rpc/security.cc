#include "rpc/security.h"

#include <fmt/format.h>

#include <filesystem>
#include <fstream>
#include <iterator>

#include "base/certificates.h"
#include "base/secret_file.h"
#include "tandem/error.h"

namespace tandem::internal {
namespace {

std::string read_certificate(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  if (!file) {
    throw NotFound(
        fmt::format("{} cannot be read: expected a folder made by `tandem certs issue`", path.string()));
  }
  return {std::istreambuf_iterator<char>(file), {}};
}

// The task's own folder, which may also be given itself: on its machine there is no other.
std::filesystem::path folder_of(const std::string& certs, const std::optional<TaskId>& task) {
  if (certs.empty()) {
    throw InvalidArgument(
        "security \"tls\" needs the folder with this task's certificate: --certs DIR, filled by `tandem "
        "certs init DIR && "
        "tandem certs issue DIR`");
  }
  const std::filesystem::path whole(certs);
  const auto own = whole / (task ? fmt::format("{}-{}", task->type, task->index) : std::string("operator"));
  return std::filesystem::exists(own / "cert.pem") ? own : whole;
}

}  // namespace

const char* name_of(Security::Mode mode) {
  switch (mode) {
    case Security::Mode::kToken:
      return "token";
    case Security::Mode::kTls:
      return "tls";
    case Security::Mode::kInsecure:
      break;
  }
  return "insecure";
}

Security load_security(const SecurityOptions& options, const std::optional<TaskId>& task, bool loopback) {
  Security security;
  if (options.mode == "token") {
    if (options.token_file.empty()) {
      throw InvalidArgument(
          "security \"token\" needs a file with the token: --token_file F, made by `tandem certs token F` "
          "and copied to "
          "every machine");
    }
    security.mode = Security::Mode::kToken;
    security.token = read_token(options.token_file);
    return security;
  }
  if (options.mode == "tls") {
    const auto folder = folder_of(options.certs, task);
    security.mode = Security::Mode::kTls;
    security.certificate = read_certificate(folder / "cert.pem");
    security.authority = read_certificate(folder / "ca.pem");
    security.key = read_secret((folder / "key.pem").string());
    check_certificate((folder / "cert.pem").string(), security.certificate, security.key, security.authority);
    return security;
  }
  if (!options.mode.empty() && options.mode != "insecure") {
    throw InvalidArgument(
        fmt::format("security \"{}\" is unknown: expected insecure, token or tls", options.mode));
  }
  if (!loopback && !options.insecure_network) {
    throw InvalidArgument(
        "this task listens beyond loopback, and anyone who reaches its port could join the run; choose one: "
        "`tandem certs init && tandem certs issue` with --security tls --certs DIR; "
        "`tandem certs token F` with --security token --token_file F; "
        "--insecure_network on a network that you trust");
  }
  return security;
}

std::shared_ptr<grpc::ServerCredentials> Security::server_credentials() const {
  if (mode != Mode::kTls) return grpc::InsecureServerCredentials();
  grpc::SslServerCredentialsOptions options(GRPC_SSL_REQUEST_AND_REQUIRE_CLIENT_CERTIFICATE_AND_VERIFY);
  options.pem_root_certs = authority;
  options.pem_key_cert_pairs.push_back({key, certificate});
  return grpc::SslServerCredentials(options);
}

std::shared_ptr<grpc::ChannelCredentials> Security::channel_credentials() const {
  if (mode != Mode::kTls) return grpc::InsecureChannelCredentials();
  return grpc::SslCredentials({authority, key, certificate});
}

}  // namespace tandem::internal
