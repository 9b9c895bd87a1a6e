#include "cli/fetch.h"

#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <iostream>
#include <system_error>
#include <vector>

#include "base/byte_source.h"
#include "base/sha256.h"
#include "cli/output.h"
#include "cli/run_tool.h"
#include "tandem/error.h"

namespace fs = std::filesystem;

namespace tandem::internal {
namespace {

// curl's own exit codes.
constexpr int kNoSuchHost = 6;
constexpr int kNoConnection = 7;
constexpr int kBrokeOff = 18;
constexpr int kHttpError = 22;
constexpr int kCannotWrite = 23;
constexpr int kTimedOut = 28;
constexpr int kRangeRefused = 33;
constexpr int kNothingCame = 52;
constexpr int kReceiveFailed = 56;

std::uintmax_t size_or_zero(const std::string& path) {
  std::error_code error;
  const std::uintmax_t size = fs::file_size(path, error);
  return error ? 0 : size;
}

bool is_published(const std::string& path, const PublishedFile& file) {
  return fs::is_regular_file(path) && sha256_of_file(path) == file.sha256;
}

void put_in_place(const std::string& partial, const std::string& path) {
  if (std::rename(partial.c_str(), path.c_str()) != 0) {
    throw NotFound(fmt::format("cannot rename \"{}\": {}", partial, std::strerror(errno)));
  }
}

ToolResult run_curl(const std::string& url, const std::string& partial) {
  std::vector<std::string> command{
      "curl", "--fail", "--location", "--continue-at", "-", "--connect-timeout", "20",
      // Less than this many bytes a second, for so long.
      "--speed-limit", "100", "--speed-time", "60", "--output", partial, "--write-out", "%{http_code}"};
  command.push_back(is_terminal(STDERR_FILENO) ? "--progress-bar" : "--silent");
  command.push_back("--");
  command.push_back(url);
  return run_tool(command);
}

[[noreturn]] void refuse(const ToolResult& result, const std::string& url, const std::string& partial) {
  const std::string elsewhere = "get the file elsewhere and give it with --from, or use --generate";
  switch (result.exit_code) {
    case kNoSuchHost:
      throw Unavailable(
          fmt::format("cannot fetch {}: there is no network here, or no such host; {}", url, elsewhere));
    case kNoConnection:
      throw Unavailable(fmt::format("cannot fetch {}: there is no network here, or the server refuses; {}",
                                    url, elsewhere));
    case kTimedOut:
      throw Unavailable(
          fmt::format("cannot fetch {}: no answer for too long; start the same command again to go on, or {}",
                      url, elsewhere));
    case kHttpError:
      throw NotFound(fmt::format("cannot fetch {}: the server answers {}; {}", url,
                                 result.out.empty() ? "with an error" : result.out, elsewhere));
    case kCannotWrite:
      throw NotFound(fmt::format("cannot write \"{}\": is the disk full?", partial));
    case kBrokeOff:
    case kNothingCame:
    case kReceiveFailed:
      throw Unavailable(
          fmt::format("{} broke off after {} bytes: start the same command again to go on from there", url,
                      size_or_zero(partial)));
    default:
      throw Unavailable(fmt::format("cannot fetch {}: curl ended with {}", url, result.exit_code));
  }
}

}  // namespace

std::string sha256_of_file(const std::string& path) {
  const ByteSource source = file_source(path);
  Sha256 digest;
  std::vector<char> block(1 << 20);
  while (const std::size_t got = source(block.data(), block.size())) digest.update(block.data(), got);
  return digest.hex();
}

void check_published(const std::string& path, const PublishedFile& file) {
  const std::string digest = sha256_of_file(path);
  if (digest == file.sha256) return;
  throw DataLoss(fmt::format("\"{}\" is not the {} that was published: its SHA-256 is {}, expected {}", path,
                             file.name, digest, file.sha256));
}

void fetch(const PublishedFile& file, const std::string& base_url, const std::string& folder) {
  const std::string path = folder + "/" + file.name;
  const std::string partial = path + ".partial";
  if (is_published(path, file)) return;
  // All of it had come, and nobody could say so any more.
  if (is_published(partial, file)) return put_in_place(partial, path);

  const std::string url = base_url + "/" + file.name;
  const std::uintmax_t had = size_or_zero(partial);
  std::cout << (had == 0 ? fmt::format("fetching {}\n", url)
                         : fmt::format("fetching {}, from byte {} on\n", url, had))
            << std::flush;
  ToolResult result = run_curl(url, partial);
  // What was there is no part of the file, or the server cannot go on in the middle: once more from the
  // start.
  const bool no_range =
      result.exit_code == kRangeRefused || (result.exit_code == kHttpError && result.out == "416");
  if (had > 0 && (no_range || (result.exit_code == 0 && !is_published(partial, file)))) {
    fs::remove(partial);
    result = run_curl(url, partial);
  }
  if (result.exit_code != 0) refuse(result, url, partial);
  try {
    check_published(partial, file);
  } catch (const DataLoss& error) {
    fs::remove(partial);
    throw DataLoss(fmt::format("{}; it was removed, start the same command again", error.what()));
  }
  put_in_place(partial, path);
}

}  // namespace tandem::internal
