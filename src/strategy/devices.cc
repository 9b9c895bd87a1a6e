#include <fmt/format.h>
#include <torch/torch.h>

#include <algorithm>
#include <set>

#include "tandem/device.h"
#include "tandem/error.h"

namespace tandem {
namespace {

constexpr int kLogicalCpus = 64;
constexpr int kDefaultCpus = 8;

int logical_cpus() {
  return std::max(kLogicalCpus, usable_cores());
}
int visible_gpus() {
  return static_cast<int>(torch::cuda::device_count());
}

std::string range(const char* type, int count) {
  return count == 1 ? fmt::format("/{}:0", type) : fmt::format("/{0}:0 to /{0}:{1}", type, count - 1);
}

std::string describe_devices() {
  const int gpus = visible_gpus();
  return fmt::format("{} (logical, {} cores) and {}", range("cpu", logical_cpus()), usable_cores(),
                     gpus > 0 ? range("gpu", gpus) : "no GPU");
}

}  // namespace

std::vector<Device> list_devices() {
  std::vector<Device> devices;
  for (int i = 0; i < visible_gpus(); ++i) devices.push_back({DeviceType::kGpu, i});
  for (int i = 0; i < logical_cpus(); ++i) devices.push_back({DeviceType::kCpu, i});
  return devices;
}

std::vector<Device> default_devices() {
  std::vector<Device> devices;
  for (int i = 0; i < visible_gpus(); ++i) devices.push_back({DeviceType::kGpu, i});
  if (!devices.empty()) return devices;
  for (int i = 0; i < std::min(usable_cores(), kDefaultCpus); ++i) devices.push_back({DeviceType::kCpu, i});
  return devices;
}

std::vector<Device> resolve_devices(const std::vector<std::string>& names) {
  const std::vector<Device> existing = list_devices();
  std::set<Device> seen;
  std::vector<Device> devices;
  for (const auto& name : names) {
    const Device device = parse_device(name);
    if (!device.job.empty()) {
      throw InvalidArgument(
          fmt::format("device \"{}\" belongs to a task; this process has {}", name, describe_devices()));
    }
    if (std::find(existing.begin(), existing.end(), device) == existing.end()) {
      const bool cpu_instead = device.type == DeviceType::kGpu && visible_gpus() == 0;
      throw InvalidArgument(fmt::format("there is no device \"{}\": this process has {}{}", name,
                                        describe_devices(),
                                        cpu_instead ? fmt::format("; use \"/cpu:{}\"", device.index) : ""));
    }
    if (!seen.insert(device).second) {
      throw InvalidArgument(
          fmt::format("device \"{}\" is named twice: each replica needs a device of its own", name));
    }
    devices.push_back(device);
  }
  return devices;
}

}  // namespace tandem
