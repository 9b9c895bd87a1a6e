#include <fmt/format.h>
#include <gtest/gtest.h>
#include <signal.h>

#include <cctype>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <random>
#include <sstream>

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

std::string read_file(const std::string& path) {
  std::ifstream file(path);
  EXPECT_TRUE(file) << path;
  return {std::istreambuf_iterator<char>(file), {}};
}

std::string without_blanks(std::string text) {
  std::erase_if(text, [](unsigned char c) { return std::isspace(c); });
  return text;
}

// What a page shows in C++ under a heading that ends with `file` is in that file, but for blanks; "..."
// stands for what is left out. Returns how many pieces were compared.
int compare_listings(const std::string& name) {
  std::istringstream page(read_file(TANDEM_ROOT "/docs/" + name));
  std::string heading, source, part;
  bool in_listing = false;
  int compared = 0;
  for (std::string line; std::getline(page, line);) {
    if (line.starts_with("##")) {
      heading = line;
      const auto end = line.rfind('`'), begin = line.rfind('`', end - 1);
      source = line.ends_with(".cc`")
                   ? without_blanks(read_file(TANDEM_ROOT "/" + line.substr(begin + 1, end - begin - 1)))
                   : "";
    } else if (line == "```cpp") {
      in_listing = true;
      EXPECT_NE(source, "") << heading << " does not say where its C++ is from";
    } else if (in_listing && (line == "..." || line == "```")) {
      EXPECT_NE(source.find(without_blanks(part)), std::string::npos) << heading << " has not:\n" << part;
      part.clear();
      ++compared;
      in_listing = line == "...";
    } else if (in_listing) {
      part += line + "\n";
    }
  }
  return compared;
}

TEST(Listings, AreWhatTheProgramsHave) {
  EXPECT_GT(compare_listings("from-tensorflow.md"), 20);
  EXPECT_GE(compare_listings("model-parallel.md"), 3);
}

TEST(Examples, fit_mirrored) {
  const std::string out = output({"fit_mirrored", "2"});
  EXPECT_NE(out.find("2 replicas, 100 steps: "), std::string::npos) << out;
  EXPECT_GT(number_after(out, "accuracy "), 0.3);
}

TEST(Examples, two_workers) {
  const TempFolder folder;
  output({"tandem", "data", "mnist", folder.path(), "--generate"});
  const std::string out =
      output({"tandem", "launch", "--workers", "2", "--", TANDEM_BIN "/two_workers", folder.path(), "12"});
  // At the tutorial's learning rate of 0.001 so few steps change little: ten classes have 2.3.
  EXPECT_LT(number_after(out, "1 epochs on 2 workers: loss "), 2.5) << out;
}

TEST(Examples, custom_loop) {
  const TempFolder folder;
  const std::string out = output({"custom_loop", folder.path()});
  EXPECT_LT(number_after(out, "step 400: validation loss "), 0.05);  // as drawn: 0.003 to 0.010
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
  // Asynchronously up to one step of the other worker comes after the last.
  const std::string ps = output({"tandem", "launch", "--ps", "1", "--workers", "2", "--evaluator", "--",
                                 TANDEM_BIN "/estimator_cluster", folder.file("ps"),
                                 "--distribution_strategy", "parameter_server"});
  EXPECT_NE(ps.find(": y = 3.00 x + 2.00, loss 0.0000"), std::string::npos) << ps;
}

TEST(Examples, monitored_ps) {
  const TempFolder folder;
  const std::string out = output({"tandem", "launch", "--ps", "1", "--workers", "2", "--",
                                  TANDEM_BIN "/monitored_ps", "--checkpoint_dir", folder.path()});
  EXPECT_NE(out.find("after 400 steps: y = 3.00 x + 2.00"), std::string::npos) << out;
  EXPECT_TRUE(std::filesystem::exists(folder / "latest"));
}

TEST(Examples, model_parallel) {
  const std::string out =
      output({"tandem", "launch", "--ps", "2", "--workers", "2", "--", TANDEM_BIN "/model_parallel"});
  // Each ps says what it was given: its part of the table and of the layer's weights, and one bias or two.
  EXPECT_GE(number_after(out, " ps 0: "), 3) << out;
  EXPECT_GE(number_after(out, " ps 1: "), 3) << out;
  EXPECT_NE(out.find("this worker has 2177 of 322177 values"), std::string::npos) << out;
  EXPECT_GT(number_after(out, "values: loss "), 0.8) << out;
  EXPECT_LT(number_after(out, "before, "), 0.1) << out;
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
