#pragma once

#include <gtest/gtest.h>
#include <torch/torch.h>

#include <nlohmann/json.hpp>
#include <vector>

namespace tandem::testing_support {

inline at::Tensor row(const nlohmann::json& values) {
  return torch::tensor(values.get<std::vector<float>>());
}

inline at::Tensor rows(const nlohmann::json& values) {
  std::vector<at::Tensor> all;
  for (const auto& one : values) all.push_back(row(one));
  return torch::stack(all);
}

// Equal shapes, and values within the tolerance; says where they differ.
inline testing::AssertionResult near(const at::Tensor& actual, const at::Tensor& expected,
                                     double tolerance = 1e-6) {
  if (actual.sizes() != expected.sizes()) {
    return testing::AssertionFailure() << "shape " << actual.sizes() << ", expected " << expected.sizes();
  }
  if (torch::allclose(actual.to(torch::kDouble), expected.to(torch::kDouble), tolerance, tolerance)) {
    return testing::AssertionSuccess();
  }
  return testing::AssertionFailure() << actual << "\nexpected\n" << expected;
}

}  // namespace tandem::testing_support
