#include "cluster/tf_config.h"
#include "tandem/cluster_resolver.h"

namespace tandem {

TFConfigClusterResolver::TFConfigClusterResolver(TaskOverrides overrides, Environment environment)
    : overrides_(std::move(overrides)), environment_(std::move(environment)) {}

TFConfigClusterResolver::TFConfigClusterResolver(std::string text, TaskOverrides overrides)
    : text_(std::move(text)), overrides_(std::move(overrides)) {}

std::optional<ResolvedCluster> TFConfigClusterResolver::resolve() const {
  const auto text = text_ ? text_ : environment_("TF_CONFIG");
  if (!text) return std::nullopt;
  return internal::read_tf_config(*text, name(), overrides_);
}

}  // namespace tandem
