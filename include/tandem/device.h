#pragma once

#include <compare>
#include <string>
#include <string_view>
#include <vector>

namespace tandem {

enum class DeviceType { kCpu, kGpu };

// A place where a replica runs. "/cpu:1" is a logical CPU device: one replica thread with its share of the
// cores. "/gpu:0" is a CUDA device, counted after CUDA_VISIBLE_DEVICES has been applied.
struct Device {
  DeviceType type = DeviceType::kCpu;
  int index = 0;
  // Set only for a device of a named task, as in "/job:worker/task:1/gpu:0".
  std::string job = {};
  int task = 0;

  // The short spelling that parse_device() reads back: "/cpu:0", "/job:worker/task:1/gpu:0".
  std::string name() const;

  friend auto operator<=>(const Device&, const Device&) = default;
};

// Reads TensorFlow's spellings: "/gpu:0", "GPU:0", "gpu:0", "/device:GPU:0",
// "/job:worker/replica:0/task:1/device:GPU:0"; without a number the index is 0.
// Throws InvalidArgument for anything else. Does not ask whether the device exists.
Device parse_device(std::string_view name);

// The devices of this process: every visible GPU, and the logical CPU devices. A logical CPU device is only a
// thread, so there are more of them than cores (64 at least).
std::vector<Device> list_devices();

// Parses each name and checks that it exists and is named once.
// Throws InvalidArgument with the names that do exist.
std::vector<Device> resolve_devices(const std::vector<std::string>& names);

// What a strategy uses when no device is named: every visible GPU, else one logical CPU device per usable
// core, 8 at most.
std::vector<Device> default_devices();

// The cores this process may run on (its affinity mask), at least 1.
int usable_cores();

}  // namespace tandem
