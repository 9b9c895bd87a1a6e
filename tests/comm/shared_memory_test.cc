#include "comm/local/shared_memory.h"

#include <gtest/gtest.h>
#include <torch/torch.h>

#include <functional>
#include <thread>

#include "base/meeting.h"
#include "tandem/cross_device_ops.h"
#include "tandem/error.h"

namespace tandem::internal {
namespace {

std::vector<at::Tensor> random_tensors(int count, std::int64_t elements, at::ScalarType dtype) {
  std::vector<at::Tensor> tensors;
  for (int i = 0; i < count; ++i) tensors.push_back(torch::randn({elements}).mul(100).to(dtype));
  return tensors;
}

at::Tensor sum_in_order(const std::vector<at::Tensor>& tensors) {
  at::Tensor sum = tensors[0].clone();
  for (std::size_t i = 1; i < tensors.size(); ++i) sum = sum + tensors[i];
  return sum;
}

// Runs all_reduce on one thread per tensor; rethrows an error, if there is one, but not that of a thread that
// was only woken by another's.
void all_reduce(std::vector<at::Tensor>& tensors, int rounds = 1,
                const std::shared_ptr<CrossDeviceOps>& ops = shared_memory_all_reduce()) {
  Meeting meeting(static_cast<int>(tensors.size()));
  std::vector<std::exception_ptr> errors(tensors.size());
  std::vector<std::thread> threads;
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    threads.emplace_back([&, i] {
      try {
        for (int round = 0; round < rounds; ++round)
          ops->all_reduce(meeting, static_cast<int>(i), tensors[i]);
      } catch (const MeetingAborted&) {
      } catch (...) {
        errors[i] = std::current_exception();
        meeting.abort();
      }
      meeting.leave(static_cast<int>(i));
    });
  }
  for (auto& thread : threads) thread.join();
  for (const auto& error : errors) {
    if (error) std::rethrow_exception(error);
  }
}

class AllReduceOf : public testing::TestWithParam<std::tuple<int, std::int64_t, at::ScalarType>> {};

INSTANTIATE_TEST_SUITE_P(
    ReplicasElementsDtype, AllReduceOf,
    testing::Combine(testing::Values(1, 2, 3, 4, 7), testing::Values(0, 1, 63, 64, 65, 1000, 300007),
                     testing::Values(at::kFloat, at::kDouble, at::kBFloat16, at::kLong)));

TEST_P(AllReduceOf, GivesEveryReplicaTheSumInReplicaOrder) {
  const auto [replicas, elements, dtype] = GetParam();
  torch::manual_seed(replicas + elements);
  for (const auto& ops : {shared_memory_all_reduce(), reduction_to_one_device(), nccl_all_reduce()}) {
    auto tensors = random_tensors(replicas, elements, dtype);
    const at::Tensor expected = sum_in_order(tensors);
    all_reduce(tensors, 1, ops);
    for (const auto& tensor : tensors) EXPECT_TRUE(tensor.equal(expected)) << ops->name();
  }
}

TEST(AllReduce, CanBeRepeatedWithoutPause) {
  std::vector<at::Tensor> tensors = {torch::ones({100}), torch::ones({100}), torch::ones({100})};
  all_reduce(tensors, 20);
  for (const auto& tensor : tensors) EXPECT_TRUE(tensor.eq(std::pow(3.0, 20)).all().item<bool>());
}

TEST(AllReduce, NamesBothSidesOfAMismatch) {
  std::vector<at::Tensor> tensors = {torch::ones({10}), torch::ones({11})};
  try {
    all_reduce(tensors);
    FAIL();
  } catch (const Error& error) {
    EXPECT_STREQ(
        error.what(),
        "all_reduce of different tensors: replica 0 has 10 elements of Float, replica 1 has 11 elements of "
        "Float");
  }
}

TEST(Nccl, IsReplacedByWhatWorksHere) {
  if (torch::cuda::is_available()) GTEST_SKIP() << "this machine has a GPU";
  EXPECT_EQ(nccl_all_reduce()->name(), "shared memory");
}

TEST(ShareOf, CoversEveryElementOnceAtCacheLines) {
  for (const std::int64_t elements : {0, 1, 64, 65, 1000, 123457}) {
    for (const int seats : {1, 2, 3, 8}) {
      std::int64_t next = 0;
      for (int seat = 0; seat < seats; ++seat) {
        const auto [begin, end] = share_of(elements, seat, seats);
        EXPECT_EQ(begin, next);
        EXPECT_TRUE(begin % 64 == 0 || begin == elements);
        next = end;
      }
      EXPECT_EQ(next, elements);
    }
  }
}

}  // namespace
}  // namespace tandem::internal
