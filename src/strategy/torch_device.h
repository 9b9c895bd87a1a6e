#pragma once

#include <c10/core/Device.h>

#include "tandem/device.h"

namespace tandem::internal {

inline c10::Device torch_device(const Device& device) {
  if (device.type == DeviceType::kCpu) return c10::Device(c10::kCPU);
  return c10::Device(c10::kCUDA, static_cast<c10::DeviceIndex>(device.index));
}

}  // namespace tandem::internal
