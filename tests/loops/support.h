#pragma once

#include <torch/torch.h>

#include "support/training.h"
#include "tandem/tandem.h"

namespace tandem::testing_support {

// y = 3 x + 2, `rows` times; no two rows alike.
inline Dataset line_data(std::int64_t rows) {
  const at::Tensor x = torch::linspace(-1, 1, rows).unsqueeze(1);
  return Dataset::from_tensors(x, 3 * x + 2);
}

inline Model line_model(const Strategy& strategy, double learning_rate = 0.2) {
  return strategy.scope([&] {
    Model model([] { return torch::nn::Linear(1, 1); }, {.seed = 1});
    model.compile({.optimizer = optimizers::SGD({.learning_rate = learning_rate}),
                   .loss = losses::mean_squared_error()});
    return model;
  });
}

}  // namespace tandem::testing_support
