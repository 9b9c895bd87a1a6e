#pragma once

#include <string>

#include "tandem/cluster_resolver.h"

namespace tandem::internal {

// The jobs, their tasks and addresses as a tree of text; marks the chief and this task.
std::string text_picture(const ResolvedCluster& resolved);

// The same as a graph in the language DOT, with an edge for each pair of tasks that exchange gradients: every
// worker and every ps, or without ps a ring of workers.
std::string dot_picture(const ResolvedCluster& resolved);

}  // namespace tandem::internal
