#include <gtest/gtest.h>
#include <torch/torch.h>

#include "support/errors.h"
#include "tandem/device.h"
#include "tandem/error.h"
#include "tandem/mirrored_strategy.h"
#include "tandem/one_device_strategy.h"

namespace tandem {
namespace {

using testing_support::message_of;

TEST(Devices, ResolveInTheOrderTheyAreNamed) {
  const auto devices = resolve_devices({"/cpu:1", "CPU:0"});
  ASSERT_EQ(devices.size(), 2u);
  EXPECT_EQ(devices[0].name(), "/cpu:1");
  EXPECT_EQ(devices[1].name(), "/cpu:0");
}

TEST(Devices, AnUnknownNameListsThoseThatExist) {
  const std::string message = message_of<InvalidArgument>([] { resolve_devices({"/cpu:100000"}); });
  EXPECT_NE(message.find("there is no device \"/cpu:100000\": this process has /cpu:0 to /cpu:"),
            std::string::npos)
      << message;
}

TEST(Devices, AGpuWithoutCudaNamesTheCpuSpelling) {
  if (torch::cuda::device_count() > 0) GTEST_SKIP() << "this machine has a GPU";
  const std::string message = message_of<InvalidArgument>([] {
    MirroredStrategy({.devices = {"/gpu:0", "/gpu:1"}});
  });
  EXPECT_NE(message.find("no GPU; use \"/cpu:0\""), std::string::npos) << message;
}

TEST(Devices, NamedTwiceAreRefused) {
  EXPECT_EQ(message_of<InvalidArgument>([] {
              MirroredStrategy({.devices = {"/cpu:0", "/device:CPU:0"}});
            }),
            "device \"/device:CPU:0\" is named twice: each replica needs a device of its own");
}

TEST(Devices, OfAnotherTaskAreRefused) {
  EXPECT_NE(message_of<InvalidArgument>([] {
              OneDeviceStrategy("/job:worker/task:1/cpu:0");
            }).find("belongs to a task"),
            std::string::npos);
}

TEST(Devices, DefaultToOnePerCore) {
  if (torch::cuda::device_count() > 0) GTEST_SKIP() << "this machine has a GPU";
  EXPECT_EQ(default_devices().size(), static_cast<std::size_t>(std::min(usable_cores(), 8)));
}

TEST(Threads, AreAnEqualShareOfTheCoresUnlessTold) {
  const MirroredStrategy two({.devices = {"/cpu:0", "/cpu:1"}});
  EXPECT_EQ(two.threads_per_replica(), std::max(1, usable_cores() / 2));
  const MirroredStrategy told({.devices = {"/cpu:0", "/cpu:1"}, .threads_per_replica = 3});
  EXPECT_EQ(told.threads_per_replica(), 3);
  const auto seen = told.run([](ReplicaContext&) { return at::get_num_threads(); });
  EXPECT_EQ(seen[0], 3);
  EXPECT_EQ(seen[1], 3);
  EXPECT_THROW(MirroredStrategy({.threads_per_replica = -1}), InvalidArgument);
}

TEST(StrategyFromFlag, KnowsTheWordsOfTheFlag) {
  EXPECT_EQ(strategy_from_flag("off").num_replicas_in_sync(), 1);
  EXPECT_EQ(strategy_from_flag("one_device").threads_per_replica(), usable_cores());
  EXPECT_EQ(strategy_from_flag("mirrored", {.num_cpus = 3}).num_replicas_in_sync(), 3);
  EXPECT_NE(message_of<InvalidArgument>([] {
              strategy_from_flag("miror");
            }).find("expected one of off, one_device, mirrored, central_storage"),
            std::string::npos);
  EXPECT_NE(message_of<InvalidArgument>([] {
              strategy_from_flag("one_device", {.num_cpus = 2});
            }).find("use \"mirrored\""),
            std::string::npos);
  EXPECT_NE(message_of<InvalidArgument>([] {
              strategy_from_flag("mirrored", {.num_cpus = -1});
            }).find("num_cpus is -1"),
            std::string::npos);
  EXPECT_NE(
      message_of<InvalidArgument>([] { strategy_from_flag("mirrored", {.num_cpus = 1000}); }).find("/cpu:"),
      std::string::npos);
  EXPECT_EQ(message_of<Unimplemented>([] { strategy_from_flag("tpu"); }),
            "TPUStrategy is not built, this version has no TPU devices: use MirroredStrategy "
            "(--distribution_strategy mirrored) on one machine, MultiWorkerMirroredStrategy "
            "(multi_worker_mirrored) on several");
  EXPECT_THROW(strategy_from_flag("parameter_server"), InvalidArgument);  // without a cluster
}

TEST(StrategyFromFlag, GpusWithoutCudaNameNumCpus) {
  if (torch::cuda::device_count() > 0) GTEST_SKIP() << "this machine has a GPU";
  EXPECT_EQ(message_of<InvalidArgument>([] { strategy_from_flag("mirrored", {.num_gpus = 8}); }),
            "num_gpus is 8 but 0 GPUs are visible: use num_cpus 8 for as many replicas on the CPU");
}

}  // namespace
}  // namespace tandem
