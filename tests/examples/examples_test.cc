#include <fmt/format.h>
#include <gtest/gtest.h>
#include <signal.h>

#include <cmath>
#include <filesystem>
#include <fstream>
#include <random>

#include "support/running_program.h"
#include "support/temp_folder.h"

namespace tandem {
namespace {

using testing_support::RunningProgram;
using testing_support::TempFolder;

constexpr int kSeconds = 60;

// What it prints until its end, which must be a good one.
std::string output(std::vector<std::string> command) {
  command.front() = TANDEM_BIN "/" + command.front();
  RunningProgram program(command);
  EXPECT_EQ(program.wait(kSeconds), 0) << program.out;
  return program.out;
}

double number_after(const std::string& out, const std::string& text) {
  const auto at = out.rfind(text);
  EXPECT_NE(at, std::string::npos) << out;
  return at == std::string::npos ? NAN : std::stod(out.substr(at + text.size()));
}

TEST(Examples, fit_mirrored) {
  const std::string out = output({"fit_mirrored", "2"});
  EXPECT_NE(out.find("2 replicas, 100 steps: "), std::string::npos) << out;
  EXPECT_GT(number_after(out, "accuracy "), 0.3);
}

TEST(Examples, custom_loop) {
  const TempFolder folder;
  const std::string out = output({"custom_loop", folder.path()});
  EXPECT_LT(number_after(out, "step 400: validation loss "), 0.01);
  EXPECT_TRUE(std::filesystem::exists(folder / "checkpoints"));
  // All is done: started again it finds that out.
  const std::string again = output({"custom_loop", folder.path()});
  EXPECT_NE(again.find("going on after step 400"), std::string::npos) << again;
}

// y = 4 a - 2 b + noise, and 3 more for "red"; some a are missing.
TEST(Examples, linear_regressor) {
  const TempFolder folder;
  std::mt19937 random(1);
  std::normal_distribution<double> normal;
  std::ofstream file(folder.file("table.csv"));
  file << "a,b,colour,y\n";
  for (int i = 0; i < 500; ++i) {
    const double a = 5 + 2 * normal(random), b = normal(random);
    const bool red = random() % 2 == 0;
    const bool missing = i % 100 == 0;
    file << (missing ? "" : fmt::format("{}", a)) << "," << b << "," << (red ? "red" : "blue") << ","
         << 4 * (missing ? 5 : a) - 2 * b + (red ? 3 : 0) + 0.1 * normal(random) << "\n";
  }
  file.close();
  const std::string out = output({"linear_regressor", folder.file("table.csv"), "--label", "y", "--numeric",
                                  "a", "b", "--category", "colour", "--steps", "1000"});
  EXPECT_NE(out.find("400 records, 3 columns"), std::string::npos) << out;
  EXPECT_LT(number_after(out, "test mean squared error "), 0.05) << out;
}

TEST(Examples, estimator_cluster) {
  const TempFolder folder;
  const std::string out = output({"tandem", "launch", "--workers", "2", "--evaluator", "--",
                                  TANDEM_BIN "/estimator_cluster", folder.path()});
  EXPECT_NE(out.find("step 300: y = 3.00 x + 2.00"), std::string::npos) << out;
}

TEST(Examples, monitored_ps) {
  const TempFolder folder;
  const std::string out = output({"tandem", "launch", "--ps", "1", "--workers", "2", "--",
                                  TANDEM_BIN "/monitored_ps", "--checkpoint_dir", folder.path()});
  EXPECT_NE(out.find("after 400 steps: y = 3.00 x + 2.00"), std::string::npos) << out;
  EXPECT_TRUE(std::filesystem::exists(folder / "latest"));
}

TEST(Examples, supervisor) {
  const TempFolder folder;
  {
    // Killed once it has saved something after its beginning.
    RunningProgram program({TANDEM_BIN "/supervisor", folder.path(), "100000000"});
    const auto saved = [&] {
      std::error_code none;
      for (const auto& entry : std::filesystem::directory_iterator(folder.path(), none)) {
        const std::string name = entry.path().filename().string();
        if (name.starts_with("step-") && !name.starts_with("step-000000000000.")) return true;
      }
      return false;
    };
    const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(kSeconds);
    while (!saved() && std::chrono::steady_clock::now() < deadline) usleep(10000);
    program.send(SIGKILL);
    EXPECT_EQ(program.wait(kSeconds), 128 + SIGKILL);
  }
  const std::string out = output({"supervisor", folder.path()});
  EXPECT_NE(out.find("going on after step "), std::string::npos) << out;
  EXPECT_NE(out.find("y = 3.00 x + 2.00"), std::string::npos) << out;
}

}  // namespace
}  // namespace tandem
