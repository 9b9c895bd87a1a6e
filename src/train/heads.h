#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "tandem/batch.h"
#include "tandem/losses.h"
#include "tandem/metrics.h"

namespace tandem::internal {

// What a canned estimator's model is compared with, and what is told of it: TensorFlow's heads.
struct Head {
  std::int64_t outputs = 1;  // of the model, for each row
  Loss loss = {};
  std::vector<Metric> metrics = {};
  // What predict() tells of the outputs.
  std::function<Tensors::Map(const at::Tensor&)> predictions = {};
  // Of the labels of a batch, those that the loss is given.
  std::function<at::Tensor(const at::Tensor&)> labels = [](const at::Tensor& given) { return given; };
};

// Both throw InvalidArgument for numbers that make no sense.
Head regression_head(std::int64_t label_dimension);
// With a vocabulary labels are texts, one for each class; without, numbers from 0.
Head classification_head(std::int64_t n_classes, const std::vector<std::string>& vocabulary);

}  // namespace tandem::internal
