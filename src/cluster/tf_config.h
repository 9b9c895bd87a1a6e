#pragma once

#include <string>

#include "tandem/cluster_resolver.h"

namespace tandem::internal {

// Reads and checks the JSON of TF_CONFIG. `source` begins every message. Throws nothing but InvalidArgument.
ResolvedCluster read_tf_config(const std::string& text, const std::string& source,
                               const TaskOverrides& overrides = {});

// The TF_CONFIG of a task of this cluster, on one line and in UTF-8; read_tf_config() gives the same back.
std::string make_tf_config(const ResolvedCluster& resolved);

}  // namespace tandem::internal
