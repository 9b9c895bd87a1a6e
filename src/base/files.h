#pragma once

#include <sys/types.h>

#include <string>

namespace tandem::internal {

// Writes a file so that a reader finds the old contents or the new ones, whole: beside it, synced, then
// renamed over it. Throws Error naming the path and the system's reason; then nothing is left behind.
void replace_file(const std::string& path, const std::string& contents);

// Writes a new file, whole or not at all, with exactly these permissions. Throws InvalidArgument if the name
// is taken, NotFound with the system's reason if it cannot be written; then nothing is left behind.
void create_file(const std::string& path, const std::string& contents, mode_t mode);

}  // namespace tandem::internal
