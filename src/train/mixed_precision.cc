#include "train/mixed_precision.h"

#include <ATen/autocast_mode.h>
#include <fmt/format.h>
#include <torch/torch.h>
#include <torch/version.h>

#include "base/log.h"
#include "tandem/error.h"

namespace tandem::internal {
namespace {

// libtorch's switches for one type of device. They are the thread's own, and changed their names in 2.4.
#if TORCH_VERSION_MAJOR > 2 || (TORCH_VERSION_MAJOR == 2 && TORCH_VERSION_MINOR >= 4)
bool autocast_enabled(at::DeviceType type) {
  return at::autocast::is_autocast_enabled(type);
}
void enable_autocast(at::DeviceType type, bool enabled) {
  at::autocast::set_autocast_enabled(type, enabled);
}
at::ScalarType autocast_dtype(at::DeviceType type) {
  return at::autocast::get_autocast_dtype(type);
}
void set_autocast_dtype(at::DeviceType type, at::ScalarType dtype) {
  at::autocast::set_autocast_dtype(type, dtype);
}
#else
bool autocast_enabled(at::DeviceType type) {
  return type == at::kCPU ? at::autocast::is_cpu_enabled() : at::autocast::is_enabled();
}
void enable_autocast(at::DeviceType type, bool enabled) {
  type == at::kCPU ? at::autocast::set_cpu_enabled(enabled) : at::autocast::set_enabled(enabled);
}
at::ScalarType autocast_dtype(at::DeviceType type) {
  return type == at::kCPU ? at::autocast::get_autocast_cpu_dtype() : at::autocast::get_autocast_gpu_dtype();
}
void set_autocast_dtype(at::DeviceType type, at::ScalarType dtype) {
  type == at::kCPU ? at::autocast::set_autocast_cpu_dtype(dtype)
                   : at::autocast::set_autocast_gpu_dtype(dtype);
}
#endif

// Autocast on this thread while it lives. Without libtorch's cache of cast weights: replicas of newer
// versions would share one, with one graph in it, and a weight is mostly used once in a step.
class AutocastScope {
 public:
  AutocastScope(at::DeviceType type, at::ScalarType dtype)
      : type_(type),
        enabled_(autocast_enabled(type)),
        dtype_(autocast_dtype(type)),
        cache_(at::autocast::is_autocast_cache_enabled()) {
    enable_autocast(type, true);
    set_autocast_dtype(type, dtype);
    at::autocast::set_autocast_cache_enabled(false);
  }
  ~AutocastScope() {
    at::autocast::set_autocast_cache_enabled(cache_);
    set_autocast_dtype(type_, dtype_);
    enable_autocast(type_, enabled_);
  }
  AutocastScope(const AutocastScope&) = delete;
  AutocastScope& operator=(const AutocastScope&) = delete;

 private:
  at::DeviceType type_;
  bool enabled_;
  at::ScalarType dtype_;
  bool cache_;
};

}  // namespace

Network with_policy(const Network& network, const Policy& policy, const Device& device) {
  const at::DeviceType type = device.type == DeviceType::kGpu ? at::kCUDA : at::kCPU;
  return Network(network.shared_module(), [network, type, dtype = policy.compute_dtype()](const Tensors& x) {
    const AutocastScope scope(type, dtype);
    const at::Tensor y = network(x);
    return y.scalar_type() == dtype ? y.to(at::kFloat) : y;
  });
}

void check_policy(const Policy& policy, const std::vector<Device>& devices, bool cpu_has_bfloat16) {
  bool on_cpu = false;
  for (const Device& device : devices) on_cpu = on_cpu || device.type == DeviceType::kCpu;
  if (!on_cpu || !policy.is_mixed()) return;
  if (policy.compute_dtype() == at::kHalf) {
    throw InvalidArgument(
        "mixed_float16 needs GPUs, and this strategy has replicas on the CPU: use mixed_bfloat16 or float32");
  }
  if (!cpu_has_bfloat16) {
    log_info("{}: this CPU has no bfloat16 instructions, so float32 would be faster", policy.name());
  }
}

}  // namespace tandem::internal
