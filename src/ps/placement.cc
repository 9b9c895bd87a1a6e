#include "tandem/placement.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include "cluster/text.h"
#include "ps/device_spec.h"
#include "tandem/error.h"

namespace tandem {
namespace {

using internal::ps::DeviceSpec;

void check_at_least_one(const char* what, std::int64_t value) {
  if (value < 1) throw InvalidArgument(fmt::format("{} is {}: expected at least 1", what, value));
}

constexpr std::int64_t kMost = std::numeric_limits<std::int64_t>::max();

// a * b, or the largest number if that is larger: sizes are only compared with limits.
std::int64_t times(std::int64_t a, std::int64_t b) {
  std::int64_t product = 0;
  return __builtin_mul_overflow(a, b, &product) ? kMost : product;
}

std::int64_t divide_up(std::int64_t a, std::int64_t b) {
  return a / b + (a % b != 0);
}

std::int64_t bytes_per_row(const std::vector<std::int64_t>& shape, int element_bytes) {
  return std::accumulate(shape.begin() + 1, shape.end(), std::int64_t{element_bytes}, times);
}

// `shards` pieces along the first axis, within what it allows.
std::vector<std::int64_t> along_first_axis(const std::vector<std::int64_t>& shape, std::int64_t shards) {
  std::vector<std::int64_t> pieces(shape.size(), 1);
  if (!shape.empty()) pieces[0] = std::clamp<std::int64_t>(shards, 1, std::max<std::int64_t>(shape[0], 1));
  return pieces;
}

void check_shape(const std::vector<std::int64_t>& shape, int element_bytes) {
  if (std::ranges::any_of(shape, [](std::int64_t size) { return size < 0; })) {
    throw InvalidArgument(
        fmt::format("a variable cannot have the shape [{}]: expected sizes from 0", fmt::join(shape, ", ")));
  }
  check_at_least_one("the bytes of an element", element_bytes);
}

}  // namespace

RoundRobin::RoundRobin(int num_tasks) : num_tasks_(num_tasks) {
  check_at_least_one("num_tasks", num_tasks);
}

int RoundRobin::operator()(const VariableToPlace&) {
  const int task = next_;
  next_ = (next_ + 1) % num_tasks_;
  return task;
}

GreedyLoadBalancing::GreedyLoadBalancing(int num_tasks, LoadFn load_fn) : load_fn_(std::move(load_fn)) {
  check_at_least_one("num_tasks", num_tasks);
  loads_.resize(static_cast<std::size_t>(num_tasks));
}

int GreedyLoadBalancing::operator()(const VariableToPlace& variable) {
  const double load = load_fn_ ? load_fn_(variable) : static_cast<double>(variable.bytes);
  if (!std::isfinite(load) || load < 0) {
    throw InvalidArgument(fmt::format("the load of variable {} is {}: expected a finite number from 0",
                                      internal::quote(variable.name), load));
  }
  const auto least = std::ranges::min_element(loads_);
  *least += load;
  return static_cast<int>(least - loads_.begin());
}

std::string ReplicaDeviceSetter::operator()(const VariableToPlace& variable) {
  if (tasks_.empty() || (!merge_devices_ && !variable.device.empty())) return variable.device;
  const DeviceSpec scope = DeviceSpec::parse(variable.device);
  DeviceSpec device = DeviceSpec::parse(ps_device_);
  // Without a job of its own, or inside another job, a task number would mean nothing.
  if (device.job && (!scope.job || scope.job == device.job)) {
    const int chosen = strategy_(variable);
    if (chosen < 0 || chosen >= static_cast<int>(tasks_.size())) {
      throw InvalidArgument(
          fmt::format("ps_strategy puts variable {} on ps task {}: expected a number from 0 to {}",
                      internal::quote(variable.name), chosen, tasks_.size() - 1));
    }
    device.task = tasks_[static_cast<std::size_t>(chosen)];
  }
  return device.merged(scope).name();
}

std::string ReplicaDeviceSetter::worker(const std::string& device) const {
  if (tasks_.empty() || (!merge_devices_ && !device.empty())) return device;
  return DeviceSpec::parse(worker_device_).merged(DeviceSpec::parse(device)).name();
}

ReplicaDeviceSetter::operator PsStrategy() const {
  return [place = *this](const VariableToPlace& variable) mutable {
    const std::string name = place(variable);
    const DeviceSpec device = DeviceSpec::parse(name);
    if (!device.job || device.job != DeviceSpec::parse(place.ps_device_).job || !device.task) {
      throw InvalidArgument(fmt::format(
          "replica_device_setter puts variable {} on {}: expected a ps task, which keeps it for all workers",
          internal::quote(variable.name), internal::quote(name)));
    }
    return *device.task;
  };
}

ReplicaDeviceSetter replica_device_setter(const ReplicaDeviceSetterOptions& options) {
  if (options.ps_tasks < 0) {
    throw InvalidArgument(fmt::format("ps_tasks is {}: expected a number from 0", options.ps_tasks));
  }
  ReplicaDeviceSetter setter;
  const DeviceSpec ps_device = DeviceSpec::parse(options.ps_device);
  DeviceSpec::parse(options.worker_device);
  if (options.cluster.empty()) {
    setter.tasks_.resize(static_cast<std::size_t>(options.ps_tasks));
    std::iota(setter.tasks_.begin(), setter.tasks_.end(), 0);
  } else if (ps_device.job && options.cluster.has_job(*ps_device.job)) {
    setter.tasks_ = options.cluster.task_indices(*ps_device.job);
  }
  if (setter.tasks_.empty()) return setter;
  setter.ps_device_ = options.ps_device;
  setter.worker_device_ = options.worker_device;
  setter.merge_devices_ = options.merge_devices;
  setter.strategy_ = options.ps_strategy ? options.ps_strategy
                                         : PsStrategy(RoundRobin(static_cast<int>(setter.tasks_.size())));
  return setter;
}

FixedShardsPartitioner::FixedShardsPartitioner(std::int64_t num_shards) : num_shards_(num_shards) {
  check_at_least_one("num_shards", num_shards);
}

std::vector<std::int64_t> FixedShardsPartitioner::operator()(const std::vector<std::int64_t>& shape,
                                                             int element_bytes) const {
  check_shape(shape, element_bytes);
  return along_first_axis(shape, num_shards_);
}

MinSizePartitioner::MinSizePartitioner(std::int64_t min_shard_bytes, std::int64_t max_shards)
    : min_shard_bytes_(min_shard_bytes), max_shards_(max_shards) {
  check_at_least_one("min_shard_bytes", min_shard_bytes);
  check_at_least_one("max_shards", max_shards);
}

std::vector<std::int64_t> MinSizePartitioner::operator()(const std::vector<std::int64_t>& shape,
                                                         int element_bytes) const {
  check_shape(shape, element_bytes);
  if (shape.empty()) return {};
  const std::int64_t bytes = times(bytes_per_row(shape, element_bytes), shape[0]);
  return along_first_axis(shape, std::min(divide_up(bytes, min_shard_bytes_), max_shards_));
}

MaxSizePartitioner::MaxSizePartitioner(std::int64_t max_shard_bytes, std::optional<std::int64_t> max_shards)
    : max_shard_bytes_(max_shard_bytes), max_shards_(max_shards) {
  check_at_least_one("max_shard_bytes", max_shard_bytes);
  if (max_shards) check_at_least_one("max_shards", *max_shards);
}

std::vector<std::int64_t> MaxSizePartitioner::operator()(const std::vector<std::int64_t>& shape,
                                                         int element_bytes) const {
  check_shape(shape, element_bytes);
  if (shape.empty()) return {};
  const std::int64_t row = std::max<std::int64_t>(bytes_per_row(shape, element_bytes), 1);
  const std::int64_t rows_per_shard = std::max<std::int64_t>(max_shard_bytes_ / row, 1);
  return along_first_axis(shape, std::min(divide_up(shape[0], rows_per_shard), max_shards_.value_or(kMost)));
}

}  // namespace tandem
