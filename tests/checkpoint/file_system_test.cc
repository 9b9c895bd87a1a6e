#include "checkpoint/file_system.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>

#include "support/errors.h"
#include "support/memory_disk.h"
#include "support/temp_folder.h"

namespace tandem::internal {
namespace {

using testing_support::Crash;
using testing_support::MemoryDisk;
using testing_support::message_of;
using testing_support::TempFolder;

void write(FileSystem& files, const std::string& path, const std::string& text) {
  const Bytes bytes = std::as_bytes(std::span(text));
  const auto file = files.create_file(path);
  file->append({&bytes, 1});
  file->sync();
}

std::string read(FileSystem& files, const std::string& path) {
  return read_whole_file(files, path, 1 << 20);
}

int reason_of(const std::function<void()>& call) {
  try {
    call();
  } catch (const FileError& error) {
    return error.reason();
  }
  return 0;
}

std::vector<std::string> names(FileSystem& files, const std::string& path) {
  std::vector<std::string> all;
  for (const FolderEntry& entry : files.list(path)) all.push_back(entry.name);
  std::ranges::sort(all);
  return all;
}

// What holds for the real one holds for the one in memory, else the tests over it prove nothing.
class EveryFileSystem : public testing::TestWithParam<const char*> {
 protected:
  EveryFileSystem() {
    if (std::string(GetParam()) == "posix") {
      files_ = std::make_unique<PosixFileSystem>();
      root_ = folder_.path();
    } else {
      files_ = std::make_unique<MemoryDisk>();
      files_->create_folder("/root");
      root_ = "/root";
    }
  }

  std::string at(const std::string& name) const { return root_ + "/" + name; }

  TempFolder folder_;
  std::unique_ptr<FileSystem> files_;
  std::string root_;
};

TEST_P(EveryFileSystem, WritesAndReadsFiles) {
  const std::string a(100'000, 'a'), b = "b";
  const std::vector<Bytes> pieces{std::as_bytes(std::span(a)), {}, std::as_bytes(std::span(b))};
  {
    const auto file = files_->create_file(at("f"));
    file->append(pieces);
    file->append({});
    file->append(pieces);
    file->sync();
  }
  EXPECT_EQ(read(*files_, at("f")), a + b + a + b);
  const auto file = files_->open_file(at("f"));
  EXPECT_EQ(file->size(), 200'002u);
  file->forget_cached();
  std::array<std::byte, 4> four{};
  EXPECT_EQ(file->read_at(99'999, four), 4u);
  EXPECT_EQ(four[1], std::byte{'b'});
  EXPECT_EQ(file->read_at(200'000, four), 2u);
  EXPECT_EQ(file->read_at(300'000, four), 0u);
  EXPECT_TRUE(message_of<DataLoss>([&] { read_whole_file(*files_, at("f"), 10); }).find("at most 10") !=
              std::string::npos);
}

// More pieces than one call to the system takes.
TEST_P(EveryFileSystem, WritesManyPieces) {
  std::vector<std::string> texts;
  std::string whole;
  for (int i = 0; i < 1000; ++i)
    whole += texts.emplace_back(static_cast<std::size_t>(i % 7), static_cast<char>('a' + i % 26));
  std::vector<Bytes> pieces;
  for (const std::string& text : texts) pieces.push_back(std::as_bytes(std::span(text)));
  files_->create_file(at("f"))->append(pieces);
  EXPECT_EQ(read(*files_, at("f")), whole);
}

TEST_P(EveryFileSystem, SaysWhyACallFailed) {
  write(*files_, at("f"), "x");
  create_folders(*files_, at("full"));
  write(*files_, at("full/f"), "x");
  EXPECT_EQ(reason_of([&] { files_->create_file(at("f")); }), EEXIST);
  EXPECT_EQ(reason_of([&] { files_->create_file(at("no/f")); }), ENOENT);
  EXPECT_EQ(reason_of([&] { files_->create_file(at("f/f")); }), ENOTDIR);
  EXPECT_EQ(reason_of([&] { files_->open_file(at("no")); }), ENOENT);
  EXPECT_EQ(reason_of([&] { files_->open_file(at("full")); }), EISDIR);
  EXPECT_EQ(reason_of([&] { files_->create_folder(at("f")); }), EEXIST);
  EXPECT_EQ(reason_of([&] { files_->create_folder(at("a/b")); }), ENOENT);
  EXPECT_EQ(reason_of([&] { files_->rename(at("no"), at("f")); }), ENOENT);
  EXPECT_EQ(reason_of([&] { files_->exchange(at("no"), at("f")); }), ENOENT);
  EXPECT_EQ(reason_of([&] { files_->remove_folder(at("full")); }), ENOTEMPTY);
  EXPECT_EQ(reason_of([&] { files_->remove_folder(at("f")); }), ENOTDIR);
  EXPECT_EQ(reason_of([&] { files_->remove_file(at("no")); }), ENOENT);
  EXPECT_EQ(reason_of([&] { files_->list(at("no")); }), ENOENT);
  EXPECT_EQ(reason_of([&] { files_->list(at("f")); }), ENOTDIR);
  create_folders(*files_, at("other"));
  EXPECT_EQ(reason_of([&] { files_->rename(at("other"), at("full")); }), ENOTEMPTY);
  EXPECT_EQ(reason_of([&] { files_->rename(at("f"), at("full")); }) != 0, true);
}

TEST_P(EveryFileSystem, RenamesAndExchanges) {
  write(*files_, at("a"), "of a");
  write(*files_, at("b"), "of b");
  files_->rename(at("a"), at("b"));
  EXPECT_EQ(read(*files_, at("b")), "of a");
  EXPECT_EQ(names(*files_, root_), (std::vector<std::string>{"b"}));
  for (const char* name : {"x", "y"}) {
    files_->create_folder(at(name));
    write(*files_, at(name) + "/f", std::string("of ") + name);
  }
  ASSERT_TRUE(files_->exchange(at("x"), at("y")));
  EXPECT_EQ(read(*files_, at("x/f")), "of y");
  EXPECT_EQ(read(*files_, at("y/f")), "of x");
  files_->create_folder(at("empty"));
  files_->rename(at("x"), at("empty"));
  EXPECT_EQ(read(*files_, at("empty/f")), "of y");
}

TEST_P(EveryFileSystem, MakesAndRemovesTrees) {
  create_folders(*files_, at("a/b/c"));
  create_folders(*files_, at("a/b/c"));
  write(*files_, at("a/b/f"), "x");
  write(*files_, at("a/f"), "x");
  remove_tree(*files_, {"a", FolderEntry::Kind::kFolder}, at("a"));
  EXPECT_TRUE(names(*files_, root_).empty());
}

INSTANTIATE_TEST_SUITE_P(All, EveryFileSystem, testing::Values("posix", "memory"),
                         [](const auto& one) { return std::string(one.param); });

TEST(PosixFileSystemTest, RemovesSymbolicLinksWithoutFollowingThem) {
  const TempFolder folder;
  PosixFileSystem files;
  std::filesystem::create_directories(folder / "outside");
  write(files, folder.file("outside/f"), "x");
  std::filesystem::create_directories(folder / "inside");
  std::filesystem::create_directory_symlink(folder.file("outside"), folder.file("inside/link"));
  EXPECT_EQ(files.list(folder.file("inside"))[0].kind, FolderEntry::Kind::kOther);
  remove_tree(files, {"inside", FolderEntry::Kind::kFolder}, folder.file("inside"));
  EXPECT_EQ(read(files, folder.file("outside/f")), "x");
  EXPECT_FALSE(std::filesystem::exists(folder / "inside"));
}

TEST(MemoryDiskTest, LosesWhatWasNotSynced) {
  using Unsynced = MemoryDisk::Unsynced;
  MemoryDisk disk;
  write(disk, "/named", "old");
  disk.sync_folder("/");
  write(disk, "/unnamed", "synced, but its name is not");
  const std::string text = "more";
  const Bytes bytes = std::as_bytes(std::span(text));
  const auto file = disk.create_file("/unsynced");
  file->append({&bytes, 1});
  disk.rename("/named", "/renamed");

  const auto lost = disk.after_crash(Unsynced::kLost);
  EXPECT_EQ(names(*lost, "/"), (std::vector<std::string>{"named"}));
  EXPECT_EQ(lost->contents("/named"), "old");
  const auto kept = disk.after_crash(Unsynced::kKept);
  EXPECT_EQ(names(*kept, "/"), (std::vector<std::string>{"renamed", "unnamed", "unsynced"}));
  EXPECT_EQ(kept->contents("/unsynced"), "more");
  bool with_name_without_contents = false, with_both_names = false;
  for (std::uint64_t seed = 0; seed < 200; ++seed) {
    const auto some = disk.after_crash(Unsynced::kSome, seed);
    with_both_names |= some->exists("/named") && some->exists("/renamed");
    EXPECT_TRUE(some->exists("/named") || some->exists("/renamed")) << "a rename loses nothing";
    with_name_without_contents |= some->exists("/unsynced") && some->contents("/unsynced").empty();
  }
  EXPECT_FALSE(with_both_names);
  EXPECT_TRUE(with_name_without_contents);
}

TEST(MemoryDiskTest, StopsWhenTheMachineStops) {
  MemoryDisk disk;
  disk.crash_after(2);
  const auto file = disk.create_file("/a");
  EXPECT_THROW(file->sync(), Crash);
  EXPECT_THROW(disk.sync_folder("/"), Crash);
  EXPECT_THROW(disk.list("/"), Crash);
  EXPECT_EQ(disk.calls(), 2);
}

}  // namespace
}  // namespace tandem::internal
