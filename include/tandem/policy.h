#pragma once

#include <c10/core/ScalarType.h>

#include <string>

namespace tandem {

// In what numbers a model computes, as Keras's mixed_precision.Policy:
//
//   float32         everything
//   mixed_bfloat16  convolutions and matrix products in bfloat16
//   mixed_float16   the same in float16, which has little range: gradients need a LossScaleOptimizer, and
//                   Model::compile() makes one of any other. GPUs only
//
// Parameters, their gradients, the optimizer, what the model gives, losses and metrics are float32 under all
// of them; so checkpoints of one load under another. Which operations compute in less is libtorch's choice
// (autocast).
class Policy {
 public:
  // Throws InvalidArgument for another name.
  Policy(const std::string& name = "float32");  // NOLINT: implicit by intent
  Policy(const char* name) : Policy(std::string(name)) {}

  const std::string& name() const { return name_; }
  c10::ScalarType compute_dtype() const { return compute_dtype_; }
  c10::ScalarType variable_dtype() const { return c10::ScalarType::Float; }
  bool is_mixed() const { return compute_dtype_ != variable_dtype(); }

 private:
  std::string name_;
  c10::ScalarType compute_dtype_;
};

}  // namespace tandem
