#include "base/files.h"

#include <gtest/gtest.h>
#include <sys/stat.h>

#include <fstream>
#include <iterator>

#include "support/errors.h"
#include "support/temp_folder.h"
#include "tandem/error.h"

namespace tandem::internal {
namespace {

using testing_support::message_of;
using testing_support::TempFolder;

std::string read(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

std::size_t entries(const TempFolder& folder) {
  const std::filesystem::directory_iterator all(folder.path());
  return static_cast<std::size_t>(std::distance(begin(all), end(all)));
}

TEST(ReplaceFile, WritesAndOverwritesWhole) {
  const TempFolder folder;
  replace_file(folder.file("a"), std::string(100000, 'x'));
  EXPECT_EQ(read(folder.file("a")).size(), 100000u);
  replace_file(folder.file("a"), "short");
  EXPECT_EQ(read(folder.file("a")), "short");
  EXPECT_EQ(entries(folder), 1u);
}

TEST(ReplaceFile, LeavesNothingBehindWhenItCannotWrite) {
  const TempFolder folder;
  EXPECT_NE(message_of<NotFound>([&] {
              replace_file(folder.file("no/such/a"), "x");
            }).find("no/such/a\": open: No such file"),
            std::string::npos);
  std::filesystem::create_directories(folder / "taken" / "inside");
  EXPECT_NE(message_of<NotFound>([&] { replace_file(folder.file("taken"), "x"); }).find("rename"),
            std::string::npos);
  EXPECT_EQ(entries(folder), 1u);
}

}  // namespace
}  // namespace tandem::internal
