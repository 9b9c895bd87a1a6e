#pragma once

#include <torch/torch.h>

namespace tandem::models {

struct MobileNetV2Options {
  std::int64_t classes = 1000;
  // Times the channels of every layer, each rounded to a multiple of 8; the last layer before the classes
  // never has fewer than 1280. 1 has 3,504,872 parameters for 1000 classes; 0.35 is a fifth of the work.
  double width = 1.0;
  // Of the dropout before the classes.
  double dropout = 0.2;
};

// MobileNetV2 (Sandler et al.), as torchvision has it. For [rows, 3, height, width], 32x32 or larger, by
// habit 224x224. The names of parameters and buffers are torchvision's, so its weights, saved as a
// safetensors file, load with Model::load_weights(); with skip_mismatch also for other classes, whose last
// layer then begins anew. Channels-last inside.
class MobileNetV2Impl : public torch::nn::Module {
 public:
  // Throws InvalidArgument unless classes and width are more than 0 and dropout is in [0, 1).
  explicit MobileNetV2Impl(MobileNetV2Options options = {});

  at::Tensor forward(const at::Tensor& x);

 private:
  torch::nn::Sequential features_{nullptr}, classifier_{nullptr};
};
TORCH_MODULE(MobileNetV2);

}  // namespace tandem::models
