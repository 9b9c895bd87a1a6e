#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdlib>
#include <string>
#include <vector>

#include "comm/backends.h"
#include "support/running_program.h"

namespace tandem {
namespace {

using testing_support::adopt_orphans;
using testing_support::no_descendant_left;
using testing_support::RunningProgram;

const std::string kMember = TANDEM_BIN "/mpi_member";

bool has_mpirun() {
  return std::system("mpirun --version > /dev/null 2>&1") == 0;
}

// As many as asked for, whatever the number of cores; without a daemon to reach other machines with.
std::vector<std::string> mpirun(int members, const std::vector<std::string>& arguments = {}) {
  std::vector<std::string> command = {"mpirun",          "-n",        std::to_string(members),
                                      "--oversubscribe", "--mca",     "plm",
                                      "isolated",        "--bind-to", "none"};
  if (geteuid() == 0) command.push_back("--allow-run-as-root");
  command.push_back(kMember);
  command.insert(command.end(), arguments.begin(), arguments.end());
  return command;
}

class Mpi : public testing::Test {
 protected:
  void SetUp() override {
    if (!internal::mpi::available()) GTEST_SKIP() << "engine mpi is not in this build";
    if (!has_mpirun()) GTEST_SKIP() << "there is no mpirun (Debian: openmpi-bin)";
    adopt_orphans();
  }
  void TearDown() override { EXPECT_TRUE(no_descendant_left()); }
};

TEST_F(Mpi, DoesWhatTheOtherEnginesDo) {
  for (const int members : {2, 4}) {
    RunningProgram run(mpirun(members));
    EXPECT_EQ(run.wait(100), 0) << members << " members:\n" << run.out;
    EXPECT_EQ(run.count("[  PASSED  ]"), members) << run.out;
  }
}

TEST_F(Mpi, ThrowsAtTheDeadlineIfAMemberStaysAway) {
  RunningProgram run(mpirun(3, {"deadline"}));
  run.wait(30);  // mpirun calls it a failure that they end without MPI_Finalize
  for (const char* member : {"member 0: ", "member 1: "}) {
    EXPECT_EQ(run.count(member +
                        std::string("error 4: all_reduce \"gradients\" of engine mpi did not end in time")),
              1)
        << run.out;
  }
}

TEST_F(Mpi, WakesItsWaiterWhenItAborts) {
  RunningProgram run(mpirun(3, {"abort"}));
  run.wait(30);
  for (const char* member : {"member 0: ", "member 1: "}) {
    EXPECT_EQ(run.count(member + std::string("error 10: ")), 1) << run.out;
  }
  EXPECT_EQ(run.count("worker:9 is lost"), 2) << run.out;
}

TEST_F(Mpi, SaysHowToStartAsManyAsTheGroupHas) {
  RunningProgram alone({kMember, "deadline"});
  EXPECT_EQ(alone.wait(30), 2);
  EXPECT_NE(alone.out.find(
                "worker:0 is member 0 of 2, but rank 0 of 1 in MPI: start all tasks, in the cluster's order, "
                "with one mpirun -n 2 PROGRAM"),
            std::string::npos)
      << alone.out;
  RunningProgram too_few(mpirun(2, {"larger"}));
  EXPECT_NE(too_few.wait(30), 0);
  EXPECT_NE(too_few.out.find("mpirun -n 3 PROGRAM"), std::string::npos) << too_few.out;
}

}  // namespace
}  // namespace tandem
