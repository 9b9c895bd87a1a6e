#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <vector>

namespace torch::optim {
class Optimizer;
class OptimizerParamState;
}  // namespace torch::optim

namespace tandem::internal {

// libtorch keeps an optimizer's state behind a type per optimizer. This is the one place that knows them.

// Whether the optimizer's update of an element depends on that element alone, so that it may run on any range
// of a flat buffer: SGD, Adam, AdamW, RMSprop, Adagrad, Ftrl.
bool is_element_wise(const torch::optim::Optimizer& optimizer);

// "SGD", "Adam", ...; empty for one that is not element-wise.
std::string kind_of(const torch::optim::Optimizer& optimizer);

// Whether the optimizer calls its closure many times in one step, which no step of replicas can offer.
bool needs_closure(const torch::optim::Optimizer& optimizer);

// What an element-wise optimizer remembers of one tensor: tensors of its shape ("momentum_buffer", "exp_avg")
// and counters
// ("step"). Empty before its first update.
struct OptimizerSlots {
  std::map<std::string, at::Tensor> tensors;
  std::map<std::string, std::int64_t> counters;

  bool empty() const { return tensors.empty() && counters.empty(); }
};

OptimizerSlots get_slots(torch::optim::Optimizer& optimizer, const at::Tensor& parameter);

// Replaces what it remembers; the tensors are taken as they are, not copied. Empty slots: as before the first
// update.
void set_slots(torch::optim::Optimizer& optimizer, const at::Tensor& parameter, const OptimizerSlots& slots);

}  // namespace tandem::internal
