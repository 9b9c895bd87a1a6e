#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>

#include "base/sha256.h"
#include "support/http_server.h"
#include "support/process.h"
#include "support/temp_folder.h"

namespace tandem {
namespace {

namespace fs = std::filesystem;
using testing_support::HttpServer;
using testing_support::ProcessResult;
using testing_support::run_process;
using testing_support::TempFolder;

ProcessResult data(std::vector<std::string> arguments) {
  arguments.insert(arguments.begin(), {std::string(TANDEM_BIN) + "/tandem", "data"});
  return run_process(arguments, 60);
}

std::string contents(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

std::string sha256(const std::string& bytes) {
  internal::Sha256 digest;
  digest.update(bytes.data(), bytes.size());
  return digest.hex();
}

// Small sets to fetch, generated once, and the checksums that go with them.
class DataCommand : public testing::Test {
 protected:
  DataCommand() {
    setenv("no_proxy", "127.0.0.1", 1);  // a proxy of the machine's is none of this test's business
    EXPECT_EQ(data({"mnist", source_.file("mnist"), "--generate", "--examples", "50"}).exit_code, 0);
    for (const auto& entry : fs::directory_iterator(source_.file("mnist"))) {
      files_[entry.path().filename()] = contents(entry.path());
    }
    write_checksums();
  }

  void write_checksums() {
    std::ofstream sums(source_.file("sums"));
    for (const auto& [name, bytes] : files_) sums << sha256(bytes) << "  " << name << "\n";
  }

  ProcessResult fetch(const std::string& url) {
    return data({"mnist", target_.path(), "--url", url, "--checksums", source_.file("sums")});
  }

  // Exit code, one line that begins with the program's name, and a part of it.
  static void expect_refusal(const ProcessResult& result, int exit_code, const std::string& part) {
    EXPECT_EQ(result.exit_code, exit_code) << result.err;
    EXPECT_EQ(std::count(result.err.begin(), result.err.end(), '\n'), 1) << result.err;
    EXPECT_EQ(result.err.find("tandem: "), 0u) << result.err;
    EXPECT_NE(result.err.find(part), std::string::npos) << result.err;
  }

  static constexpr const char* kImages = "train-images-idx3-ubyte.gz";

  TempFolder source_;
  TempFolder target_;
  std::map<std::string, std::string> files_;
};

TEST_F(DataCommand, GeneratesTheSameFilesAgain) {
  EXPECT_EQ(files_.size(), 4u);
  const TempFolder again;
  EXPECT_EQ(data({"mnist", again.path(), "--generate", "--examples", "50"}).exit_code, 0);
  EXPECT_TRUE(contents(again.file(kImages)) == files_[kImages]);
  EXPECT_EQ(data({"mnist", again.path(), "--generate", "--examples", "50", "--seed", "1"}).exit_code, 0);
  EXPECT_FALSE(contents(again.file(kImages)) == files_[kImages]);
}

TEST_F(DataCommand, FetchesWhatIsPublishedAndNothingTwice) {
  HttpServer server(files_);
  ProcessResult result = fetch(server.url());
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_NE(result.out.find("mnist is ready"), std::string::npos) << result.out;
  for (const auto& [name, bytes] : files_) EXPECT_TRUE(contents(target_.file(name)) == bytes) << name;
  EXPECT_EQ(server.requests().size(), 4u);
  EXPECT_EQ(fetch(server.url() + "/").exit_code, 0);
  EXPECT_EQ(server.requests().size(), 4u);
}

TEST_F(DataCommand, GoesOnWhereATransferBrokeOff) {
  HttpServer server(files_);
  server.break_off_after(1000);
  expect_refusal(fetch(server.url()), 75, "broke off after 1000 bytes: start the same command again");
  EXPECT_TRUE(contents(target_.file(std::string(kImages) + ".partial")) == files_[kImages].substr(0, 1000));
  EXPECT_EQ(fetch(server.url()).exit_code, 0);
  EXPECT_EQ(server.requests()[1], std::string(kImages) + "@1000");
  EXPECT_TRUE(contents(target_.file(kImages)) == files_[kImages]);
}

TEST_F(DataCommand, BeginsAgainWhereThePartIsLongerThanTheFile) {
  std::ofstream(target_.file(std::string(kImages) + ".partial")) << files_[kImages] << "and more";
  HttpServer server(files_);
  EXPECT_EQ(fetch(server.url()).exit_code, 0);
  EXPECT_TRUE(contents(target_.file(kImages)) == files_[kImages]);
}

TEST_F(DataCommand, BeginsAgainWhereTheServerCannotGoOnInTheMiddle) {
  std::ofstream(target_.file(std::string(kImages) + ".partial")) << files_[kImages].substr(0, 1000);
  HttpServer server(files_);
  server.ignore_ranges();
  EXPECT_EQ(fetch(server.url()).exit_code, 0);
  EXPECT_EQ(server.requests()[0], std::string(kImages) + "@1000");
  EXPECT_EQ(server.requests()[1], kImages);
  EXPECT_TRUE(contents(target_.file(kImages)) == files_[kImages]);
}

TEST_F(DataCommand, RemovesWhatIsNotThePublishedFile) {
  auto changed = files_;
  changed[kImages][500] ^= 1;
  HttpServer server(changed);
  expect_refusal(fetch(server.url()), 2, "is not the train-images-idx3-ubyte.gz that was published");
  EXPECT_TRUE(fs::is_empty(target_.path()));
}

TEST_F(DataCommand, SaysPlainlyThatTheFileOrTheServerIsNotThere) {
  {
    HttpServer server({});
    expect_refusal(fetch(server.url()), 2, "the server answers 404; get the file elsewhere");
  }
  std::string nobody;
  {
    HttpServer gone({});
    nobody = gone.url();
  }
  const std::string elsewhere = "; get the file elsewhere and give it with --from, or use --generate\n";
  EXPECT_EQ(fetch(nobody).err, "tandem: cannot fetch " + nobody + "/" + kImages +
                                   ": there is no network here, or the server refuses" + elsewhere);
  const ProcessResult offline = fetch("http://no-such-host.invalid");
  EXPECT_EQ(offline.exit_code, 75);
  EXPECT_EQ(offline.err, "tandem: cannot fetch http://no-such-host.invalid/" + std::string(kImages) +
                             ": there is no network here, or no such host" + elsewhere);
  EXPECT_TRUE(fs::is_empty(target_.path()));
}

TEST_F(DataCommand, TakesFilesAtHand) {
  EXPECT_EQ(
      data({"mnist", target_.path(), "--from", source_.file("mnist"), "--checksums", source_.file("sums")})
          .exit_code,
      0);
  EXPECT_TRUE(contents(target_.file(kImages)) == files_[kImages]);
  expect_refusal(data({"mnist", target_.path(), "--from", source_.file("mnist")}), 2,
                 "that was published: its SHA-256 is");
}

TEST_F(DataCommand, UnpacksAnArchiveWholeOrNotAtAll) {
  EXPECT_EQ(data({"cifar10", source_.path(), "--generate", "--examples", "50"}).exit_code, 0);
  const std::string archive = source_.file("cifar-10-binary.tar.gz");
  const std::string inside = "cifar-10-batches-bin";
  ASSERT_EQ(run_process({"/usr/bin/env", "tar", "-czf", archive, "-C", source_.path(), inside}, 30).exit_code,
            0);
  files_ = {{"cifar-10-binary.tar.gz", contents(archive)}};
  write_checksums();
  const std::vector<std::string> command{"cifar10", target_.path(), "--from",
                                         archive,   "--checksums",  source_.file("sums")};
  ASSERT_EQ(data(command).exit_code, 0);
  EXPECT_EQ(data(command).exit_code, 0);  // in place of the first
  {
    HttpServer server(files_);
    const TempFolder fetched;
    const ProcessResult result =
        data({"cifar10", fetched.path(), "--url", server.url(), "--checksums", source_.file("sums")});
    EXPECT_EQ(result.exit_code, 0) << result.err;
    EXPECT_TRUE(contents(fetched.file(inside + "/test_batch.bin")) ==
                contents(source_.file(inside + "/test_batch.bin")));
  }
  for (const char* name : {"data_batch_1.bin", "data_batch_5.bin", "test_batch.bin"}) {
    EXPECT_EQ(fs::file_size(target_.file(inside + "/" + name)), 10u * 3073) << name;
    EXPECT_TRUE(contents(target_.file(inside + "/" + name)) == contents(source_.file(inside + "/" + name)));
  }

  fs::remove(source_.file(inside + "/data_batch_3.bin"));
  ASSERT_EQ(run_process({"/usr/bin/env", "tar", "-czf", archive, "-C", source_.path(), inside}, 30).exit_code,
            0);
  files_ = {{"cifar-10-binary.tar.gz", contents(archive)}};
  write_checksums();
  expect_refusal(data(command), 2, "holds no data_batch_3.bin with whole records");
  EXPECT_TRUE(fs::exists(target_.file(inside + "/data_batch_3.bin")));  // of the first
}

TEST_F(DataCommand, RefusesFlagsThatCannotMeanAnything) {
  expect_refusal(data({"imagenet", target_.path()}), 2, "expected cifar10, mnist, fashion_mnist");
  expect_refusal(data({"mnist", target_.path(), "--generate", "--examples", "3"}), 2, "--examples is 3");
  expect_refusal(data({"cifar10", target_.path(), "--generate", "--examples", "52"}), 2,
                 "expected a multiple of 5");
  expect_refusal(data({"mnist", target_.path(), "--examples", "50"}), 2, "--generate");
  expect_refusal(data({"mnist", target_.path(), "--from", source_.file("mnist/" + std::string(kImages))}), 2,
                 "give the folder that holds them");
  expect_refusal(data({"mnist", target_.path(), "--checksums", source_.file("none")}), 2, "cannot read");
}

}  // namespace
}  // namespace tandem
