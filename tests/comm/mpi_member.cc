// One member of a group whose engine is MPI; mpi_test starts it with mpirun.
//   mpi_member           every check that the other engines pass, too
//   mpi_member deadline  the last member stays away from a collective
//   mpi_member abort     the last member stays away, and the others give up
//   mpi_member larger    the group has one member more than mpirun has started
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cstdio>
#include <cstdlib>
#include <string>
#include <thread>

#include "comm/collectives.h"
#include "comm/group.h"
#include "tandem/error.h"

namespace tandem {
namespace {

using namespace testing_support;

// What Open MPI's mpirun tells its processes; without it the first of two.
int from_mpirun(const char* name, int otherwise) {
  const char* value = std::getenv(name);
  return value ? std::atoi(value) : otherwise;
}
int rank() {
  return from_mpirun("OMPI_COMM_WORLD_RANK", 0);
}
int size() {
  return from_mpirun("OMPI_COMM_WORLD_SIZE", 2);
}

Communicator join(int size, CommunicationOptions options = {}) {
  internal::GroupSetup setup{.rank = rank()};
  for (int member = 0; member < size; ++member) {
    setup.members.push_back({.name = fmt::format("worker:{}", member), .host = "localhost"});
  }
  options.engine = "mpi";
  return internal::join_group(std::move(setup), options);
}

TEST(Mpi, SumsEveryType) {
  Communicator group = join(size());
  EXPECT_EQ(group.engine(), "mpi");
  check_all_reduce(group);
}

class EveryOperation : public testing::TestWithParam<Check> {};

INSTANTIATE_TEST_SUITE_P(Mpi, EveryOperation, testing::ValuesIn(kChecks),
                         [](const auto& info) { return std::string(info.param.name); });

TEST_P(EveryOperation, DoesWhatItSays) {
  Communicator group = join(size());
  GetParam().run(group);
}

constexpr auto kMoment = std::chrono::milliseconds(300);

// What the members print, the last one stays away.
void all_reduce_without_the_last(CommunicationOptions options, bool abort) {
  Communicator group = join(size(), options);
  group.barrier("all are there");
  if (rank() == size() - 1) {
    std::this_thread::sleep_for(4 * kMoment);
    return;
  }
  Values values = Values::of_member(rank(), ElementType::kFloat32, 100003);
  const Pending pending = group.all_reduce_async("gradients", values.elements());
  if (abort) {
    std::this_thread::sleep_for(kMoment);
    group.abort("worker:9 is lost");
  }
  try {
    pending.wait(std::chrono::seconds(10));
    fmt::print("member {}: nothing was thrown\n", rank());
  } catch (const Error& error) {
    fmt::print("member {}: error {}: {}\n", rank(), static_cast<int>(error.code()), error.what());
  }
  std::fflush(stdout);
}

}  // namespace
}  // namespace tandem

int main(int argc, char** argv) {
  testing::InitGoogleTest(&argc, argv);
  const std::string what = argc > 1 ? argv[1] : "";
  try {
    if (what.empty()) return RUN_ALL_TESTS();
    if (what == "deadline") tandem::all_reduce_without_the_last({.timeout = tandem::kMoment}, false);
    if (what == "abort") tandem::all_reduce_without_the_last({}, true);
    if (what == "larger") tandem::join(tandem::size() + 1);
    return 0;
  } catch (const tandem::Error& error) {
    fmt::print("member {}: {}\n", tandem::rank(), error.what());
    return 2;
  }
}
