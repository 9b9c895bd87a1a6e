#pragma once

#include <string>

namespace tandem::internal {

// A file that somebody publishes, and how to tell that it came whole.
struct PublishedFile {
  std::string name;
  std::string sha256;  // lower-case hexadecimal
};

// In lower-case hexadecimal. Throws NotFound with the system's reason.
std::string sha256_of_file(const std::string& path);

// Throws DataLoss unless the file at `path` is that one.
void check_published(const std::string& path, const PublishedFile& file);

// Gets a file from `base_url`/name into `folder`; if the right one is there already, it stays. What has come
// of a file is kept as name.partial when the transfer breaks off, and the next call goes on from there. With
// a progress bar on a terminal.
//
// The program `curl` does it: it brings certificates, proxies, redirections and resuming, and a launcher of
// processes needs none of them built in.
//
// Throws Unavailable, naming the address, without a network, for a server that cannot be reached, is silent
// for a minute or breaks off; NotFound if it has no such file or curl is not installed; DataLoss if what came
// is another file, which is then removed.
void fetch(const PublishedFile& file, const std::string& base_url, const std::string& folder);

}  // namespace tandem::internal
