#include "base/append_file.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <iterator>

#include "support/errors.h"
#include "support/file_size_limit.h"
#include "support/temp_folder.h"
#include "tandem/error.h"

namespace tandem::internal {
namespace {

using testing_support::FileSizeLimit;
using testing_support::message_of;
using testing_support::TempFolder;

std::string read(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

TEST(AppendFile, GrowsByPieces) {
  const TempFolder folder;
  AppendFile file(folder.file("a"), Existing::kRefuse);
  file.append("one ");
  file.append("");
  file.append("two");
  EXPECT_EQ(read(folder.file("a")), "one two");
  EXPECT_EQ(file.size(), 7u);
}

TEST(AppendFile, KeepsRefusesOrTruncatesWhatIsThere) {
  const TempFolder folder;
  AppendFile(folder.file("a"), Existing::kRefuse).append("old");
  EXPECT_EQ(message_of<NotFound>([&] { AppendFile(folder.file("a"), Existing::kRefuse); }),
            "cannot write \"" + folder.file("a") + "\": open: File exists");
  AppendFile kept(folder.file("a"), Existing::kKeep);
  EXPECT_EQ(kept.size(), 3u);
  kept.append(" new");
  EXPECT_EQ(read(folder.file("a")), "old new");
  AppendFile(folder.file("a"), Existing::kTruncate).append("newer");
  EXPECT_EQ(read(folder.file("a")), "newer");
}

TEST(AppendFile, TakesBackAPieceThatDoesNotFit) {
  const TempFolder folder;
  AppendFile file(folder.file("a"), Existing::kRefuse);
  file.append("kept|");
  {
    const FileSizeLimit limit(8);
    EXPECT_EQ(message_of<NotFound>([&] { file.append("too long"); }),
              "cannot write \"" + folder.file("a") + "\": write: File too large");
    EXPECT_EQ(read(folder.file("a")), "kept|");
    EXPECT_FALSE(file.broken());
    file.append("fit");
  }
  file.append("|too long");
  EXPECT_EQ(read(folder.file("a")), "kept|fit|too long");
}

TEST(AppendFile, NoticesThatItWasRemoved) {
  const TempFolder folder;
  const AppendFile file(folder.file("a"), Existing::kRefuse);
  EXPECT_TRUE(file.still_there());
  std::filesystem::remove(folder / "a");
  EXPECT_FALSE(file.still_there());
}

}  // namespace
}  // namespace tandem::internal
