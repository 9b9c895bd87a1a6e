#pragma once

#include <string>

namespace tandem::internal {

// Writes a file so that a reader finds the old contents or the new ones, whole: beside it, synced, then
// renamed over it. Throws Error naming the path and the system's reason; then nothing is left behind.
void replace_file(const std::string& path, const std::string& contents);

}  // namespace tandem::internal
