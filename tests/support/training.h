#pragma once

#include <gtest/gtest.h>
#include <torch/torch.h>

#include <map>
#include <string>
#include <vector>

#include "tandem/mirrored_strategy.h"
#include "tandem/model.h"

namespace tandem::testing_support {

inline MirroredStrategy mirrored(int replicas, int threads = 1) {
  std::vector<std::string> devices;
  for (int i = 0; i < replicas; ++i) devices.push_back("/cpu:" + std::to_string(i));
  return MirroredStrategy({.devices = devices, .threads_per_replica = threads});
}

// ||a - b|| / ||b|| of one tensor.
inline double distance(const at::Tensor& a, const at::Tensor& b) {
  const double norm = b.to(torch::kDouble).norm().item<double>();
  return (a - b).to(torch::kDouble).norm().item<double>() / (norm > 0 ? norm : 1);
}

using Values = std::map<std::string, at::Tensor>;

inline void expect_near(const Values& actual, const Values& expected, double tolerance) {
  ASSERT_EQ(actual.size(), expected.size());
  for (const auto& [name, value] : expected) EXPECT_LT(distance(actual.at(name), value), tolerance) << name;
}

}  // namespace tandem::testing_support
