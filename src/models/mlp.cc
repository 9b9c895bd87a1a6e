#include "tandem/models/mlp.h"

#include <fmt/format.h>

#include "tandem/error.h"

namespace tandem::models {

MLPImpl::MLPImpl(MLPOptions options) : dropout_(options.dropout) {
  if (!(dropout_ >= 0 && dropout_ < 1)) {
    throw InvalidArgument(
        fmt::format("an MLP with dropout {}: expected 0 or more, less than 1", options.dropout));
  }
  std::vector<std::int64_t> units{options.inputs};
  units.insert(units.end(), options.hidden.begin(), options.hidden.end());
  units.push_back(options.classes);
  for (std::size_t i = 0; i < units.size(); ++i) {
    if (units[i] < 1) {
      throw InvalidArgument(fmt::format("an MLP with {} units in layer {}: expected 1 or more", units[i], i));
    }
    if (i > 0) {
      layers_.push_back(register_module(fmt::format("fc{}", i), torch::nn::Linear(units[i - 1], units[i])));
    }
  }
}

at::Tensor MLPImpl::forward(const at::Tensor& x) {
  at::Tensor h = x.flatten(1);
  for (std::size_t i = 0; i + 1 < layers_.size(); ++i) {
    h = at::relu(layers_[i](h));
    if (dropout_ > 0) h = at::dropout(h, dropout_, is_training());
  }
  return layers_.back()(h);
}

}  // namespace tandem::models
