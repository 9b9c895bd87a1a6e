#include <gtest/gtest.h>

#include "summary/support.h"
#include "support/process.h"
#include "support/temp_folder.h"

namespace tandem::internal {
namespace {

using testing_support::run_process;
using testing_support::TempFolder;

TEST(SummariesProgram, WritesARunForEachTrial) {
  const TempFolder folder;
  const auto result = run_process(
      {TANDEM_BIN "/summaries", "--log_dir", folder.path(), "--steps", "20", "--learning_rates", "0.1,0.5"});
  ASSERT_EQ(result.exit_code, 0) << result.err;
  EXPECT_EQ(result.out.substr(0, result.out.find(':')), "rate_0.1");
  for (const std::string run : {"rate_0.1", "rate_0.5"}) {
    EXPECT_NE(result.out.find("51 summaries in " + folder.file(run) + "\n"), std::string::npos) << result.out;
    EXPECT_EQ(read_values(folder.file(run)).size(), 51u);
  }
  EXPECT_EQ(read_values(folder.path()).at(0).value.tag, "_hparams_/experiment");
}

}  // namespace
}  // namespace tandem::internal
