#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace tandem::internal::ps {

// Part of a device name: what a scope says, while the rest comes from elsewhere. "/job:ps" has a job alone.
// tandem::Device is a whole one.
struct DeviceSpec {
  std::optional<std::string> job = {};
  std::optional<int> replica = {};
  std::optional<int> task = {};
  std::optional<std::string> device = {};  // "GPU:0"

  // TensorFlow's spelling, "/job:ps/task:1/device:GPU:0"; empty if nothing is known.
  std::string name() const;

  // This one with the parts that `inner` names in place of its own.
  DeviceSpec merged(const DeviceSpec& inner) const;

  // Reads what parse_device() reads, and parts of it. Throws InvalidArgument for anything else.
  static DeviceSpec parse(std::string_view name);
};

}  // namespace tandem::internal::ps
