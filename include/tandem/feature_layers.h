#pragma once

#include <torch/torch.h>

#include <map>
#include <string>
#include <vector>

#include "tandem/feature_column.h"

namespace tandem {

// TensorFlow's DenseFeatures: a map of features in, [rows, width()] out: the numbers of every column, in the
// order of the columns' names. Tables of embeddings are its parameters, "<column>_table".
class DenseFeaturesImpl : public torch::nn::Module {
 public:
  // Throws InvalidArgument for two columns of one name, and for one of categories that nothing makes numbers
  // of.
  explicit DenseFeaturesImpl(std::vector<FeatureColumn> columns);

  at::Tensor forward(const std::map<std::string, at::Tensor>& features);
  std::int64_t width() const;

 private:
  std::vector<FeatureColumn> columns_;  // by name
  std::vector<at::Tensor> tables_;      // by column; undefined where there is none
};
TORCH_MODULE(DenseFeatures);

struct LinearModelOptions {
  // Outputs.
  std::int64_t units = 1;
};

// TensorFlow's linear model: for each output the sum over the columns of weight x number, or of the weight of
// each category, and a bias. All begin with 0. Parameters: "<column>_weights" and "bias".
class LinearModelImpl : public torch::nn::Module {
 public:
  // Throws InvalidArgument for two columns of one name, and for none.
  explicit LinearModelImpl(std::vector<FeatureColumn> columns, LinearModelOptions options = {});

  // [rows, units]
  at::Tensor forward(const std::map<std::string, at::Tensor>& features);

 private:
  std::vector<FeatureColumn> columns_;  // by name
  std::vector<at::Tensor> tables_;
  std::vector<at::Tensor> weights_;  // by column
  at::Tensor bias_;
};
TORCH_MODULE(LinearModel);

}  // namespace tandem
