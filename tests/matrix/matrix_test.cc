// Every way to write a training under every strategy: trains the same problem in each cell, in as many real
// processes as the strategy has tasks, and compares the results.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>
#include <fstream>
#include <map>
#include <sstream>

#include "support/running_program.h"
#include "support/temp_folder.h"

namespace tandem {
namespace {

using testing_support::RunningProgram;
using testing_support::TempFolder;

struct Row {
  std::string strategy;               // of --distribution_strategy
  std::string title;                  // of the table
  std::vector<std::string> tasks;     // flags of `tandem launch`; none: one process
  std::vector<std::string> flags;     // of the program
  bool in_sync = true;                // whether the result is that of one replica, to rounding
  bool one_loop_per_cluster = false;  // whether each way needs a cluster of its own
};

const std::vector<Row>& rows() {
  static const std::vector<Row> kRows{
      {"one_device", "`OneDeviceStrategy`", {}, {}},
      {"mirrored", "`MirroredStrategy`, 2 replicas", {}, {"--num_cpus", "2"}},
      {"central_storage", "`CentralStorageStrategy`, 2 replicas", {}, {"--num_cpus", "2"}},
      {"multi_worker_mirrored", "`MultiWorkerMirroredStrategy`, 2 workers", {"--workers", "2"}, {}},
      // One model at a time lives on the ps tasks of a cluster.
      {.strategy = "parameter_server",
       .title = "`ParameterServerStrategy`, 1 ps, 2 workers",
       .tasks = {"--ps", "1", "--workers", "2"},
       .flags = {},
       .in_sync = false,
       .one_loop_per_cluster = true},
  };
  return kRows;
}

struct Loop {
  std::string name;
  std::string title;
};
const std::vector<Loop> kLoops{{"fit", "`fit`"},
                               {"custom_loop", "custom loop"},
                               {"estimator", "`Estimator`"},
                               {"monitored_session", "`MonitoredTrainingSession`"}};

using Coefficients = std::vector<double>;
const Coefficients kTrue{1, -2, 3, 0.5};

double distance(const Coefficients& a, const Coefficients& b) {
  double largest = 0;
  for (std::size_t i = 0; i < a.size(); ++i) largest = std::max(largest, std::abs(a[i] - b[i]));
  return largest;
}

// What the program printed of each way.
std::map<std::string, Coefficients> run(const Row& row, const std::string& loop) {
  const TempFolder folder;
  std::vector<std::string> command;
  if (!row.tasks.empty()) {
    command = {TANDEM_BIN "/tandem", "launch"};
    command.insert(command.end(), row.tasks.begin(), row.tasks.end());
    command.emplace_back("--");
  }
  command.insert(command.end(), {TANDEM_BIN "/matrix_task", "--distribution_strategy", row.strategy,
                                 "--model_dir", folder.path()});
  command.insert(command.end(), row.flags.begin(), row.flags.end());
  if (!loop.empty()) command.insert(command.end(), {"--loop", loop});
  RunningProgram program(command);
  EXPECT_EQ(program.wait(60), 0) << program.out;
  std::map<std::string, Coefficients> found;
  std::istringstream lines(program.out);
  for (std::string line; std::getline(lines, line);) {
    const auto at = line.find("cell ");
    if (at == std::string::npos) continue;
    std::istringstream words(line.substr(at + 5));
    std::string name;
    words >> name;
    Coefficients& values = found[name];
    for (double value = 0; words >> value;) values.push_back(value);
  }
  return found;
}

class Matrix : public testing::TestWithParam<Row> {
 protected:
  static std::map<std::string, Coefficients> results(const Row& row) {
    if (!row.one_loop_per_cluster) return run(row, "");
    std::map<std::string, Coefficients> all;
    for (const Loop& loop : kLoops) all.merge(run(row, loop.name));
    return all;
  }
  // Whether a cell holds, by strategy and way: what the table shows.
  static std::map<std::pair<std::string, std::string>, bool> cells_;
  static Coefficients reference_;  // of fit on one device

  static void TearDownTestSuite();
};
std::map<std::pair<std::string, std::string>, bool> Matrix::cells_;
Coefficients Matrix::reference_;

TEST_P(Matrix, FindsTheCoefficientsInEveryWay) {
  const Row& row = GetParam();
  const auto found = results(row);
  for (const Loop& loop : kLoops) {
    ASSERT_TRUE(found.contains(loop.name)) << loop.name;
    const Coefficients& values = found.at(loop.name);
    ASSERT_EQ(values.size(), kTrue.size()) << loop.name;
    if (reference_.empty()) reference_ = values;
    const bool recovered = distance(values, kTrue) < (row.in_sync ? 1e-3 : 2e-2);
    const bool same = !row.in_sync || distance(values, reference_) < 1e-12;
    EXPECT_TRUE(recovered) << loop.name << " is off by " << distance(values, kTrue);
    EXPECT_TRUE(same) << loop.name << " differs from one device by " << distance(values, reference_);
    cells_[{row.strategy, loop.name}] = recovered && same;
  }
}

INSTANTIATE_TEST_SUITE_P(Strategies, Matrix, testing::ValuesIn(rows()),
                         [](const auto& info) { return info.param.strategy; });

// The table that README and docs show.
std::string table(const std::map<std::pair<std::string, std::string>, bool>& cells) {
  std::string text = "| |";
  for (const Loop& loop : kLoops) text += " " + loop.title + " |";
  text += "\n|---|";
  for (std::size_t i = 0; i < kLoops.size(); ++i) text += "---|";
  text += "\n";
  for (const Row& row : rows()) {
    text += "| " + row.title + " |";
    for (const Loop& loop : kLoops) {
      const auto cell = cells.find({row.strategy, loop.name});
      text += cell != cells.end() && cell->second ? " ✓ |" : " – |";
    }
    text += "\n";
  }
  return text;
}

// What stands in docs/from-tensorflow.md must be what was found; scripts/update_matrix puts it there.
void Matrix::TearDownTestSuite() {
  if (cells_.size() != rows().size() * kLoops.size()) return;  // only some were run, or one has failed
  const std::string found = table(cells_);
  if (const char* out = std::getenv("TANDEM_MATRIX_TABLE")) {
    std::ofstream(out) << found;
    return;
  }
  std::ifstream file(TANDEM_TEST_FILES "/../docs/from-tensorflow.md");
  std::stringstream page;
  page << file.rdbuf();
  EXPECT_NE(page.str().find(found), std::string::npos)
      << "docs/from-tensorflow.md does not show this table: run scripts/update_matrix\n"
      << found;
}

}  // namespace
}  // namespace tandem
