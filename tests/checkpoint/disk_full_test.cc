// Disks that are really full.
#include <gtest/gtest.h>
#include <sched.h>
#include <signal.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <functional>

#include "checkpoint/support.h"
#include "support/temp_folder.h"

namespace tandem::internal {
namespace {

using testing_support::holds;
using testing_support::State;
using testing_support::TempFolder;

constexpr int kNotPermitted = 77;

// In a process of its own, since limits and mounts stay. 0, or what body returned; 99 for an exception.
int in_a_process(const std::function<int()>& body) {
  std::fflush(nullptr);
  const pid_t child = fork();
  if (child == 0) {
    int code = 99;
    try {
      code = body();
    } catch (const std::exception& error) {
      std::fprintf(stderr, "%s\n", error.what());
    }
    std::fflush(nullptr);
    _exit(code);
  }
  int status = 0;
  waitpid(child, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

int expect(bool holds, const char* what) {
  if (!holds) std::fprintf(stderr, "this does not hold: %s\n", what);
  return holds ? 0 : 1;
}

bool newest_is(const CheckpointStore& store, std::int64_t step) {
  const auto restored = store.restore([&](const Checkpoint& checkpoint) {
    if (!holds(checkpoint, State(static_cast<std::uint64_t>(checkpoint.id().step), 256)))
      throw DataLoss("wrong");
  });
  return restored && restored->warnings.empty() && restored->id.step == step;
}

// 1 MiB a save into 3 MiB.
int fill_the_disk(const std::string& folder) {
  CheckpointStore store(folder, {.keep = 1});
  int wrong = 0;
  std::int64_t step = 1;
  SaveResult result;
  for (; step < 10; ++step) {
    result = store.save({step, 1}, State(static_cast<std::uint64_t>(step), 256).bytes(), "{}");
    if (!result.ok()) break;
  }
  std::printf("%s\n", result.error.c_str());
  wrong += expect(step == 3, "the third does not fit");
  wrong += expect(result.error.find("No space left on device") != std::string::npos, "the reason is told");
  wrong += expect(store.counts().failed == 1, "it is counted");
  wrong += expect(newest_is(store, 2), "the last good one can be read");
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    wrong += expect(!entry.path().filename().string().starts_with("."), "the temporary is gone");
  }
  // Training goes on; with room there are checkpoints again.
  wrong += expect(store.prune().removed.size() == 1, "the old one goes");
  wrong += expect(store.save({4, 1}, State(4, 256).bytes(), "{}").ok(), "the next one fits");
  wrong += expect(newest_is(store, 4), "the next one can be read");
  return wrong;
}

TEST(DiskFull, OnASmallFileSystemTheLastGoodOneStays) {
  const TempFolder folder;
  const int code = in_a_process([&] {
    const int spaces = CLONE_NEWNS | (geteuid() == 0 ? 0 : CLONE_NEWUSER);
    if (unshare(spaces) != 0 || mount(nullptr, "/", nullptr, MS_REC | MS_PRIVATE, nullptr) != 0 ||
        mount("none", folder.path().c_str(), "tmpfs", 0, "size=3m") != 0) {
      std::printf("no small file system here: %s; the limit of the next test and the disk in memory do\n",
                  std::strerror(errno));
      return kNotPermitted;
    }
    return fill_the_disk(folder.path() + "/run");
  });
  EXPECT_TRUE(code == 0 || code == kNotPermitted) << code;
}

TEST(DiskFull, UnderALimitOfTheFileSizeTheLastGoodOneStays) {
  const TempFolder folder;
  EXPECT_EQ(in_a_process([&] {
              CheckpointStore store(folder.path());
              int wrong = expect(store.save({1, 1}, State(1, 256).bytes(), "{}").ok(), "the first one fits");
              signal(SIGXFSZ, SIG_IGN);
              const rlimit limit{600'000, 600'000};
              setrlimit(RLIMIT_FSIZE, &limit);
              const SaveResult result = store.save({2, 1}, State(2, 256).bytes(), "{}");
              std::printf("%s\n", result.error.c_str());
              wrong += expect(result.error.find("File too large") != std::string::npos, "the reason is told");
              wrong += expect(newest_is(store, 1), "the last good one can be read");
              return wrong;
            }),
            0);
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(folder.path()), {}), 2);
}

}  // namespace
}  // namespace tandem::internal
