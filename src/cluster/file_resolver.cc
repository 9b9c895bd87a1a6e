#include <fmt/format.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>

#include "cluster/text.h"
#include "cluster/tf_config.h"
#include "tandem/cluster_resolver.h"
#include "tandem/error.h"

namespace tandem {
namespace {

// More than a TF_CONFIG may have is not read: the file could be anything.
constexpr std::size_t kMostBytes = (std::size_t{1} << 20) + 1;

std::string read_file(const std::string& path, const std::string& source) {
  std::error_code ignored;
  if (std::filesystem::is_directory(path, ignored)) {
    throw NotFound(fmt::format("{} is a folder: expected a file with the JSON of TF_CONFIG", source));
  }
  errno = 0;
  std::ifstream file(path, std::ios::binary);
  std::string text(kMostBytes, '\0');
  file.read(text.data(), static_cast<std::streamsize>(text.size()));
  if (!file && !file.eof()) {
    throw NotFound(fmt::format("cannot read {}: {}", source, std::strerror(errno != 0 ? errno : EIO)));
  }
  text.resize(static_cast<std::size_t>(file.gcount()));
  return text;
}

}  // namespace

FileClusterResolver::FileClusterResolver(TaskOverrides overrides, Environment environment)
    : overrides_(std::move(overrides)), environment_(std::move(environment)) {}

FileClusterResolver::FileClusterResolver(std::string path, TaskOverrides overrides)
    : path_(std::move(path)), overrides_(std::move(overrides)) {}

std::optional<ResolvedCluster> FileClusterResolver::resolve() const {
  const auto path = path_ ? path_ : environment_("TANDEM_CLUSTER_FILE");
  if (!path) return std::nullopt;
  const std::string source = fmt::format("cluster file {}", internal::quote(*path));
  return internal::read_tf_config(read_file(*path, source), source, overrides_);
}

}  // namespace tandem
