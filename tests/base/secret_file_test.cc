#include "base/secret_file.h"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "support/errors.h"
#include "support/temp_folder.h"
#include "tandem/error.h"

namespace tandem::internal {
namespace {

using testing_support::message_of;
using testing_support::TempFolder;

const std::string kSecret = "0123456789abcdef";

mode_t mode_of(const std::string& path) {
  struct stat status {};
  EXPECT_EQ(stat(path.c_str(), &status), 0);
  return status.st_mode & 07777;
}

std::string refusal(const std::string& path) {
  const std::string message = message_of<InvalidArgument>([&] { read_secret(path); });
  EXPECT_EQ(message.find(kSecret), std::string::npos) << "a message must not show the secret";
  EXPECT_EQ(message.find('\n'), std::string::npos);
  return message;
}

TEST(SecretFile, IsWrittenForItsOwnerAloneAndReadBack) {
  const TempFolder folder;
  const mode_t umask_before = umask(0);
  write_secret(folder.file("key"), kSecret);
  umask(umask_before);
  EXPECT_EQ(mode_of(folder.file("key")), 0600u);
  EXPECT_EQ(read_secret(folder.file("key")), kSecret);
  chmod(folder.file("key").c_str(), 0400);
  EXPECT_EQ(read_secret(folder.file("key")), kSecret);
}

TEST(SecretFile, IsNotOverwritten) {
  const TempFolder folder;
  write_secret(folder.file("key"), kSecret);
  EXPECT_NE(
      message_of<InvalidArgument>([&] { write_secret(folder.file("key"), "other"); }).find("exists already"),
      std::string::npos);
  EXPECT_EQ(read_secret(folder.file("key")), kSecret);
  const std::filesystem::directory_iterator all(folder.path());
  EXPECT_EQ(std::distance(begin(all), end(all)), 1);
}

TEST(SecretFile, IsRefusedWhenOthersCanReadIt) {
  const TempFolder folder;
  write_secret(folder.file("key"), kSecret);
  for (const mode_t mode : {0640u, 0604u, 0620u, 0644u, 0666u, 0700u, 04600u}) {
    chmod(folder.file("key").c_str(), mode);
    EXPECT_NE(refusal(folder.file("key")).find("(chmod 600 '" + folder.file("key") + "')"), std::string::npos)
        << mode;
  }
}

TEST(SecretFile, MustBeARegularFileOfOurs) {
  const TempFolder folder;
  write_secret(folder.file("key"), kSecret);
  std::filesystem::create_symlink(folder.file("key"), folder.file("link"));
  EXPECT_NE(refusal(folder.file("link")).find("symbolic link"), std::string::npos);
  ASSERT_EQ(mkfifo(folder.file("fifo").c_str(), 0600), 0);
  EXPECT_NE(refusal(folder.file("fifo")).find("not a regular file"), std::string::npos);
  EXPECT_NE(refusal(folder.path()).find("not a regular file"), std::string::npos);
  EXPECT_NE(message_of<NotFound>([&] { read_secret(folder.file("none")); }).find("No such file"),
            std::string::npos);
  if (geteuid() == 0) {  // only root can give a file away
    ASSERT_EQ(chown(folder.file("key").c_str(), 12345, static_cast<gid_t>(-1)), 0);
    EXPECT_NE(refusal(folder.file("key")).find("belongs to user 12345"), std::string::npos);
  }
}

TEST(SecretFile, HasALimit) {
  const TempFolder folder;
  write_secret(folder.file("key"), std::string(70000, 'x'));
  EXPECT_NE(refusal(folder.file("key")).find("more than 65536 bytes"), std::string::npos);
}

TEST(Token, LosesOneLineEndAndNothingElse) {
  const TempFolder folder;
  for (const std::string end : {"", "\n", "\r\n"}) {
    const std::string path = folder.file("token" + std::to_string(end.size()));
    write_secret(path, " " + kSecret + " " + end);
    EXPECT_EQ(read_token(path), " " + kSecret + " ");
  }
}

TEST(Token, MustHaveSixteenToFourThousandBytes) {
  const TempFolder folder;
  write_secret(folder.file("short"), kSecret.substr(1) + "\n");
  EXPECT_NE(
      message_of<InvalidArgument>([&] { read_token(folder.file("short")); }).find("15 bytes: expected 16"),
      std::string::npos);
  write_secret(folder.file("long"), std::string(4097, 'x'));
  EXPECT_NE(message_of<InvalidArgument>([&] { read_token(folder.file("long")); }).find("4097 bytes"),
            std::string::npos);
  write_secret(folder.file("longest"), std::string(4096, 'x') + "\n");
  EXPECT_EQ(read_token(folder.file("longest")).size(), 4096u);
}

}  // namespace
}  // namespace tandem::internal
