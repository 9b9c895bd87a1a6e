#pragma once

#include <torch/torch.h>

#include <string>
#include <type_traits>

namespace tandem::internal {

// libtorch keys its state by the tensor's address: as text up to 2.0, as a pointer since.
template <typename Optimizer>
auto state_key(Optimizer& optimizer, const at::Tensor& parameter) {
  using Key = std::decay_t<decltype(optimizer.state())>::key_type;
  if constexpr (std::is_same_v<Key, std::string>) {
    return c10::guts::to_string(parameter.unsafeGetTensorImpl());
  } else {
    return static_cast<Key>(parameter.unsafeGetTensorImpl());
  }
}

}  // namespace tandem::internal
