#include "cli/run_tool.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>

#include "base/file_descriptor.h"
#include "tandem/error.h"

namespace tandem::internal {
namespace {

// What to do in the child before it becomes the program.
class FileActions {
 public:
  FileActions() { posix_spawn_file_actions_init(&actions_); }
  ~FileActions() { posix_spawn_file_actions_destroy(&actions_); }
  FileActions(const FileActions&) = delete;
  FileActions& operator=(const FileActions&) = delete;

  posix_spawn_file_actions_t* get() { return &actions_; }

 private:
  posix_spawn_file_actions_t actions_;
};

std::string read_all(int descriptor) {
  std::string text;
  std::array<char, 4096> block;
  for (;;) {
    const ssize_t got = read(descriptor, block.data(), block.size());
    if (got > 0) text.append(block.data(), static_cast<std::size_t>(got));
    if (got == 0 || (got < 0 && errno != EINTR)) return text;
  }
}

}  // namespace

ToolResult run_tool(const std::vector<std::string>& arguments) {
  std::array<int, 2> ends{};
  if (pipe2(ends.data(), O_CLOEXEC) != 0) {
    throw Error(ErrorCode::kInternal, fmt::format("cannot make a pipe: {}", std::strerror(errno)));
  }
  const FileDescriptor read_end(ends[0]);
  FileDescriptor write_end(ends[1]);
  FileActions actions;
  posix_spawn_file_actions_addopen(actions.get(), STDIN_FILENO, "/dev/null", O_RDONLY, 0);
  posix_spawn_file_actions_adddup2(actions.get(), write_end.get(), STDOUT_FILENO);
  std::vector<char*> argv;
  for (const std::string& argument : arguments) argv.push_back(const_cast<char*>(argument.c_str()));
  argv.push_back(nullptr);
  pid_t id = -1;
  const int error = posix_spawnp(&id, argv[0], actions.get(), nullptr, argv.data(), environ);
  if (error == ENOENT) {
    throw NotFound(fmt::format("the program \"{}\" is not installed (on Debian: apt install {})",
                               arguments[0], arguments[0]));
  }
  if (error != 0) {
    throw Error(ErrorCode::kInternal,
                fmt::format("cannot start \"{}\": {}", arguments[0], std::strerror(error)));
  }
  write_end.reset();
  ToolResult result{.out = read_all(read_end.get())};
  int status = 0;
  while (waitpid(id, &status, 0) < 0 && errno == EINTR) continue;
  result.exit_code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  return result;
}

}  // namespace tandem::internal
