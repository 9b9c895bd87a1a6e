#include "ps/device_spec.h"

#include <fmt/format.h>

#include <algorithm>

#include "cluster/text.h"
#include "tandem/device.h"
#include "tandem/error.h"

namespace tandem::internal::ps {
namespace {

InvalidArgument refusal(std::string_view name) {
  return InvalidArgument(fmt::format(
      "{} is not a device name or part of one: expected e.g. \"/job:ps\", \"/job:ps/task:1\" or \"/gpu:0\"",
      quote(name)));
}

// "GPU:0" out of any spelling of the device inside a task.
std::optional<std::string> local_device(std::string_view text) {
  try {
    const Device device = parse_device(text);
    return fmt::format("{}:{}", device.type == DeviceType::kCpu ? "CPU" : "GPU", device.index);
  } catch (const InvalidArgument&) {
    return std::nullopt;
  }
}

}  // namespace

std::string DeviceSpec::name() const {
  std::string text;
  if (job) text += fmt::format("/job:{}", *job);
  if (replica) text += fmt::format("/replica:{}", *replica);
  if (task) text += fmt::format("/task:{}", *task);
  if (device) text += fmt::format("/device:{}", *device);
  return text;
}

DeviceSpec DeviceSpec::merged(const DeviceSpec& inner) const {
  DeviceSpec both = *this;
  if (inner.job) both.job = inner.job;
  if (inner.replica) both.replica = inner.replica;
  if (inner.task) both.task = inner.task;
  if (inner.device) both.device = inner.device;
  return both;
}

DeviceSpec DeviceSpec::parse(std::string_view name) {
  DeviceSpec spec;
  std::string_view rest = name;
  while (!rest.empty()) {
    if (rest.starts_with('/')) rest.remove_prefix(1);
    const std::string_view part = rest.substr(0, rest.find('/'));
    rest.remove_prefix(part.size());
    const std::size_t colon = std::min(part.find(':'), part.size());
    const std::string_view key = part.substr(0, colon);
    const std::string_view value = part.substr(std::min(colon + 1, part.size()));
    const std::optional<int> number = parse_int(value);
    if (key == "job" && !spec.job && is_printable_name(value) && !value.empty()) {
      spec.job = std::string(value);
    } else if (key == "replica" && !spec.replica && number && *number >= 0) {
      spec.replica = number;
    } else if (key == "task" && !spec.task && number && *number >= 0) {
      spec.task = number;
    } else if (const auto local = local_device(part); local && !spec.device) {
      spec.device = local;
    } else {
      throw refusal(name);
    }
  }
  return spec;
}

}  // namespace tandem::internal::ps
