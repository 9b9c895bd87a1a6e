#include "tandem/device.h"

#include <gtest/gtest.h>

#include "tandem/error.h"

namespace tandem {
namespace {

TEST(ParseDevice, ReadsEverySpellingOfTensorFlow) {
  for (const char* name : {"/gpu:1", "gpu:1", "GPU:1", "/device:GPU:1", "device:gpu:1"}) {
    const Device device = parse_device(name);
    EXPECT_EQ(device.type, DeviceType::kGpu) << name;
    EXPECT_EQ(device.index, 1) << name;
    EXPECT_EQ(device.name(), "/gpu:1") << name;
  }
}

TEST(ParseDevice, ReadsTheTaskOfAFullName) {
  const Device device = parse_device("/job:worker/replica:0/task:3/device:CPU:2");
  EXPECT_EQ(device.job, "worker");
  EXPECT_EQ(device.task, 3);
  EXPECT_EQ(device.name(), "/job:worker/task:3/cpu:2");
  EXPECT_EQ(parse_device(device.name()), device);
}

TEST(ParseDevice, TakesIndexZeroWithoutANumber) {
  EXPECT_EQ(parse_device("/cpu").name(), "/cpu:0");
}

TEST(ParseDevice, RefusesWhatIsNoDevice) {
  for (const char* name : {"", "/", "/tpu:0", "/cpu:-1", "/cpu:x", "/cpu:0x1", "/cpu:0/gpu:0", "cpu:0:1",
                           "/job:/cpu:0", "/task:a/cpu:0", "/cpu:99999999999"}) {
    EXPECT_THROW(parse_device(name), InvalidArgument) << name;
  }
}

TEST(UsableCores, IsAtLeastOne) {
  EXPECT_GE(usable_cores(), 1);
}

}  // namespace
}  // namespace tandem
