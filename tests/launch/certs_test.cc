// `tandem certs` as a user has it. What is in the certificates is tested with the room base.

#include <gtest/gtest.h>
#include <stdlib.h>
#include <sys/stat.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <set>

#include "base/certificates.h"
#include "base/secret_file.h"
#include "support/running_program.h"
#include "support/process.h"
#include "support/temp_folder.h"

namespace tandem {
namespace {

using testing_support::no_descendant_left;
using testing_support::ProcessResult;
using testing_support::run_process;
using testing_support::RunningProgram;
using testing_support::TempFolder;

const std::string kTool = std::string(TANDEM_BIN) + "/tandem";
const std::string kCluster =
    R"({"cluster": {"worker": ["10.0.0.1:2222", "[fd00::2]:2222"], "ps": ["localhost:2222"]}})";

ProcessResult certs(std::vector<std::string> flags) {
  flags.insert(flags.begin(), {kTool, "certs"});
  return run_process(flags);
}

void expect_refusal(const ProcessResult& result, const std::string& part) {
  EXPECT_EQ(result.exit_code, 2) << result.err;
  EXPECT_EQ(result.out, "");
  EXPECT_EQ(std::count(result.err.begin(), result.err.end(), '\n'), 1) << result.err;
  EXPECT_EQ(result.err.find("tandem: "), 0u) << result.err;
  EXPECT_NE(result.err.find(part), std::string::npos) << result.err;
}

std::set<std::string> entries(const std::string& folder) {
  std::set<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) names.insert(entry.path().filename());
  return names;
}

std::string read(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

class Certs : public testing::Test {
 protected:
  void SetUp() override {
    unsetenv("TF_CONFIG");
    std::ofstream(folder.file("cluster.json")) << kCluster;
  }
  void TearDown() override { unsetenv("TF_CONFIG"); }

  TempFolder folder;
  std::string dir = folder.file("certs");
  std::string cluster_file = folder.file("cluster.json");
};

TEST_F(Certs, OfEveryTaskComeFromOneAuthority) {
  EXPECT_EQ(certs({"init", dir}).exit_code, 0);
  EXPECT_EQ(entries(dir), std::set<std::string>{"ca"});
  const ProcessResult result = certs({"issue", dir, "--cluster_file", cluster_file, "--days", "30"});
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_EQ(entries(dir), (std::set<std::string>{"ca", "worker-0", "worker-1", "ps-0"}));
  for (const std::string task : {"worker-0", "worker-1", "ps-0"}) {
    EXPECT_EQ(entries(dir + "/" + task), (std::set<std::string>{"ca.pem", "cert.pem", "key.pem"}));
    EXPECT_EQ(read(dir + "/" + task + "/ca.pem"), read(dir + "/ca/cert.pem"));
    EXPECT_NE(internal::read_secret(dir + "/" + task + "/key.pem").find("BEGIN PRIVATE KEY"),
              std::string::npos);
  }
  EXPECT_NE(result.out.find("scp -rp " + dir + "/worker-0 10.0.0.1:\n"), std::string::npos) << result.out;
  EXPECT_NE(result.out.find("scp -rp " + dir + "/worker-1 '[fd00::2]:'\n"), std::string::npos) << result.out;
  EXPECT_NE(result.out.find(dir + "/ps-0 stays on this machine\n"), std::string::npos) << result.out;
  EXPECT_EQ((result.out + result.err).find("PRIVATE"), std::string::npos) << "a key must not be shown";
}

TEST_F(Certs, CanBeOfSomeTasksOnly) {
  certs({"init", dir});
  EXPECT_EQ(certs({"issue", dir, "--cluster_file", cluster_file, "--task", "worker:1"}).exit_code, 0);
  EXPECT_EQ(entries(dir), (std::set<std::string>{"ca", "worker-1"}));
  EXPECT_EQ(certs({"issue", dir, "--cluster_file", cluster_file, "--operator"}).exit_code, 0);
  EXPECT_EQ(entries(dir), (std::set<std::string>{"ca", "worker-1", "operator"}));
  const std::string id(32, 'a');
  EXPECT_EQ(certs({"issue", "--cluster_id", id, "--task", "ps:0", "--task", "ps:1", dir}).exit_code, 0);
  EXPECT_EQ(entries(dir), (std::set<std::string>{"ca", "worker-1", "operator", "ps-0", "ps-1"}));
}

TEST_F(Certs, AreOfTheClusterThatTfConfigTells) {
  certs({"init", dir});
  const std::string config =
      R"({"cluster": {"worker": ["a:1", "b:1"]}, "task": {"type": "worker", "index": 1}})";
  setenv("TF_CONFIG", config.c_str(), 1);
  EXPECT_EQ(certs({"issue", dir}).exit_code, 0);
  EXPECT_EQ(entries(dir), (std::set<std::string>{"ca", "worker-0", "worker-1"}));
}

TEST_F(Certs, CanBeRenewed) {
  certs({"init", dir});
  certs({"issue", dir, "--cluster_file", cluster_file});
  const std::string before = read(dir + "/worker-0/cert.pem");
  EXPECT_EQ(certs({"issue", dir, "--cluster_file", cluster_file}).exit_code, 0);
  EXPECT_NE(read(dir + "/worker-0/cert.pem"), before);
  EXPECT_EQ(entries(dir), (std::set<std::string>{"ca", "worker-0", "worker-1", "ps-0"}));
}

TEST_F(Certs, LeaveAnExistingAuthorityAlone) {
  certs({"init", dir});
  const std::string before = read(dir + "/ca/key.pem");
  expect_refusal(certs({"init", dir}), "to start over: mv " + dir + " " + dir + ".old");
  EXPECT_EQ(read(dir + "/ca/key.pem"), before);
}

TEST_F(Certs, RefuseWithOneLine) {
  expect_refusal(certs({"issue", dir, "--cluster_file", cluster_file}), "tandem certs init makes one");
  EXPECT_FALSE(std::filesystem::exists(dir));
  certs({"init", dir});
  expect_refusal(certs({"issue", dir}), "for which cluster?");
  expect_refusal(certs({"issue", dir, "--cluster_id", std::string(32, 'a')}), "--task worker:0");
  expect_refusal(certs({"issue", dir, "--cluster_id", "xyz", "--operator"}), "32 hexadecimal digits");
  expect_refusal(certs({"issue", dir, "--cluster_id", "a", "--cluster_file", "b"}), "excludes");
  expect_refusal(certs({"issue", dir, "--cluster_file", cluster_file, "--task", "worker:7"}),
                 "--task worker:7: the cluster has worker:0, worker:1, ps:0");
  expect_refusal(certs({"issue", dir, "--cluster_file", cluster_file, "--task", "worker"}), "e.g. worker:1");
  expect_refusal(certs({"issue", dir, "--cluster_file", cluster_file, "--task", "worker:1x"}),
                 "e.g. worker:1");
  expect_refusal(certs({"issue", dir, "--cluster_file", cluster_file, "--days", "0"}), "days is 0");
  expect_refusal(certs({"issue", dir, "--cluster_file", cluster_file, "--days", "9999"}), "good until");
  expect_refusal(certs({"issue", dir, "--cluster_file", folder.file("none")}), "none");
  expect_refusal(certs({"init", folder.file("no/such")}), "no/such");
  expect_refusal(certs({}), "subcommand is required");
  chmod((dir + "/ca/key.pem").c_str(), 0640);
  expect_refusal(certs({"issue", dir, "--cluster_file", cluster_file}), "chmod 600");
  EXPECT_EQ(entries(dir), std::set<std::string>{"ca"});
}

TEST_F(Certs, TokenIsNewAndReadableByItsOwnerAlone) {
  const std::string file = folder.file("token");
  const ProcessResult result = certs({"token", file});
  EXPECT_EQ(result.exit_code, 0) << result.err;
  const std::string token = internal::read_token(file);
  EXPECT_EQ(token.size(), 44u);
  EXPECT_EQ(result.out.find(token), std::string::npos) << "a token must not be shown";
  expect_refusal(certs({"token", file}), "exists already");
  EXPECT_EQ(internal::read_token(file), token);
  certs({"token", folder.file("other")});
  EXPECT_NE(internal::read_token(folder.file("other")), token);
}

TEST_F(Certs, LeaveNothingHalfMadeWhenInterrupted) {
  certs({"init", dir});
  std::vector<std::string> command = {kTool, "certs", "issue", dir, "--cluster_id", std::string(32, 'a')};
  for (int i = 0; i < 40; ++i) command.insert(command.end(), {"--task", "worker:" + std::to_string(i)});
  // Interrupted at different moments, from before it begins to after it ends.
  for (int round = 0; round < 30; ++round) {
    RunningProgram issuing(command);
    usleep(static_cast<useconds_t>(round) * 1000);
    issuing.send(SIGINT);
    const int exit_code = issuing.wait();
    EXPECT_TRUE(exit_code == 0 || exit_code == 130) << exit_code;
    for (const auto& name : entries(dir)) {
      EXPECT_EQ(name.find(".tmp"), std::string::npos) << name;
      EXPECT_EQ(entries(dir + "/" + name).size(), name == "ca" ? 2u : 3u) << name;
    }
  }
  EXPECT_TRUE(no_descendant_left());
}

}  // namespace
}  // namespace tandem
