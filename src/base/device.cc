#include "tandem/device.h"

#include <fmt/format.h>
#include <sched.h>

#include <algorithm>
#include <cctype>
#include <charconv>
#include <optional>

#include "tandem/error.h"

namespace tandem {
namespace {

std::string lower(std::string_view text) {
  std::string out(text);
  std::transform(out.begin(), out.end(), out.begin(), [](unsigned char c) { return std::tolower(c); });
  return out;
}

std::optional<int> parse_index(std::string_view text) {
  int value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size() || value < 0) return std::nullopt;
  return value;
}

// "key:value" at the front of `rest`, up to the next '/'.
struct Field {
  std::string key;
  std::string value;
};

Field next_field(std::string_view& rest) {
  if (rest.starts_with('/')) rest.remove_prefix(1);
  const std::string_view part = rest.substr(0, rest.find('/'));
  rest.remove_prefix(part.size());
  const auto colon = part.find(':');
  if (colon == std::string_view::npos) return {lower(part), ""};
  return {lower(part.substr(0, colon)), std::string(part.substr(colon + 1))};
}

}  // namespace

std::string Device::name() const {
  const std::string local = fmt::format("/{}:{}", type == DeviceType::kCpu ? "cpu" : "gpu", index);
  return job.empty() ? local : fmt::format("/job:{}/task:{}{}", job, task, local);
}

Device parse_device(std::string_view name) {
  const auto refuse = [&] {
    return InvalidArgument(fmt::format(
        "\"{}\" is not a device name: expected \"/cpu:N\" or \"/gpu:N\" with N from 0, e.g. \"/cpu:0\"",
        name));
  };
  Device device;
  bool has_type = false;
  std::string_view rest = name;
  while (!rest.empty()) {
    Field field = next_field(rest);
    if (field.key == "device") {  // "/device:GPU:0": the type and index are inside the value
      std::string_view inner = field.value;
      field = next_field(inner);
    }
    if (field.key == "job" && !field.value.empty()) {
      device.job = field.value;
    } else if (field.key == "replica" && parse_index(field.value) == 0) {
      // TensorFlow's full names carry it; it is always 0.
    } else if (field.key == "task" && parse_index(field.value)) {
      device.task = *parse_index(field.value);
    } else if ((field.key == "cpu" || field.key == "gpu") && !has_type) {
      has_type = true;
      device.type = field.key == "cpu" ? DeviceType::kCpu : DeviceType::kGpu;
      const auto index = field.value.empty() ? std::optional(0) : parse_index(field.value);
      if (!index) throw refuse();
      device.index = *index;
    } else {
      throw refuse();
    }
  }
  if (!has_type) throw refuse();
  return device;
}

int usable_cores() {
  cpu_set_t set;
  CPU_ZERO(&set);
  if (sched_getaffinity(0, sizeof(set), &set) != 0) return 1;
  return std::max(1, CPU_COUNT(&set));
}

}  // namespace tandem
