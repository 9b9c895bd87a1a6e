#pragma once

#include <string>

namespace tandem::internal {

// Keys and tokens come from files that only their owner can read, never from a command line or a variable,
// which every process of the machine can see.

// The file as it stands. Throws InvalidArgument, with the command that mends it, unless it is a regular file
// (not a symbolic link) of this user or root, of mode 0600 or stricter, of at most 64 KiB; NotFound if it
// cannot be opened.
std::string read_secret(const std::string& path);

// A shared token: read_secret() without the line end; must have 16 to 4096 bytes.
std::string read_token(const std::string& path);

// A new token: 32 random bytes in base64.
std::string make_token();

// Writes a new file of mode 0600, whole or not at all. Throws InvalidArgument if the name is taken.
void write_secret(const std::string& path, const std::string& secret);

}  // namespace tandem::internal
