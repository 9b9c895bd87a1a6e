#include "cluster/visible_cpus.h"

#include <gtest/gtest.h>
#include <sched.h>

#include <thread>

#include "tandem/error.h"

namespace tandem::internal {
namespace {

Environment with(const std::string& value) {
  return [value](const char*) { return std::optional<std::string>(value); };
}

TEST(VisibleCpus, AreListedAsNumbersAndRanges) {
  EXPECT_EQ(parse_cpu_list("0"), std::set<int>({0}));
  EXPECT_EQ(parse_cpu_list("4,0-2"), std::set<int>({0, 1, 2, 4}));
}

TEST(VisibleCpus, AnythingElseIsRefused) {
  for (const char* wrong : {"x", "1,", "-1", "2-1", "0;1", "99999", " 0"}) {
    EXPECT_THROW(parse_cpu_list(wrong), InvalidArgument) << wrong;
  }
}

TEST(VisibleCpus, AThreadAndThoseItStartsKeepToThem) {
  // In a thread of its own, so that the other tests keep their cores.
  std::thread([] {
    cpu_set_t before;
    sched_getaffinity(0, sizeof before, &before);
    int first = 0;
    while (!CPU_ISSET(first, &before)) ++first;
    keep_to_visible_cpus(with(std::to_string(first)));
    std::thread([first] {
      cpu_set_t after;
      sched_getaffinity(0, sizeof after, &after);
      EXPECT_EQ(CPU_COUNT(&after), 1);
      EXPECT_TRUE(CPU_ISSET(first, &after));
    }).join();
  }).join();
}

TEST(VisibleCpus, ACoreThatIsNotThereIsNamed) {
  try {
    keep_to_visible_cpus(with("1000"));
    FAIL();
  } catch (const InvalidArgument& error) {
    EXPECT_NE(std::string(error.what()).find("has no core 1000"), std::string::npos) << error.what();
  }
}

}  // namespace
}  // namespace tandem::internal
