#pragma once

#include <ATen/core/Tensor.h>

#include <memory>
#include <string>
#include <vector>

namespace torch::optim {
class Optimizer;
}

namespace tandem::internal {

// An optimizer as a text that travels: a parameter server makes the same one from it, without the program
// that made the model.

// What an optimizer is and the options of each of its parameter groups, as JSON. Throws InvalidArgument for
// one that is not SGD, Adam, AdamW, RMSprop, Adagrad or Ftrl.
std::string describe_optimizer(const torch::optim::Optimizer& optimizer);

// The same optimizer over other tensors, which are all in its parameter group `group`. Throws InvalidArgument
// for a text that describe_optimizer() did not write, and for a group that it does not have.
std::unique_ptr<torch::optim::Optimizer> optimizer_from_description(const std::string& description, int group,
                                                                    std::vector<at::Tensor> tensors);

}  // namespace tandem::internal
