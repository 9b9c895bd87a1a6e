#pragma once

#include <gtest/gtest.h>
#include <torch/torch.h>

#include <cstdint>
#include <filesystem>
#include <fstream>
#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "support/errors.h"
#include "support/temp_folder.h"
#include "tandem/dataset.h"

namespace tandem {

using testing_support::message_of;
using testing_support::TempFolder;

inline void write_file(const std::filesystem::path& path, const std::string& bytes) {
  std::filesystem::create_directories(path.parent_path());
  std::ofstream(path, std::ios::binary) << bytes;
}

// The examples 0 to n - 1: x is the number, y ten times it.
inline Dataset numbers(std::int64_t n) {
  return Dataset::from_function(n, [](std::int64_t index) {
    return Batch{at::Tensor(torch::tensor(index)), at::Tensor(torch::tensor(10 * index))};
  });
}

// A generator of the same x.
inline std::function<std::optional<Batch>()> count_to(std::int64_t n) {
  return [n, next = std::int64_t{0}]() mutable -> std::optional<Batch> {
    if (next == n) return {};
    return Batch{at::Tensor(torch::tensor(next++))};
  };
}

inline Dataset counted(std::int64_t n, std::int64_t cardinality = Dataset::kUnknown) {
  return Dataset::from_generator([n] { return count_to(n); }, cardinality);
}

// All values of x, one vector per element, in order.
inline std::vector<std::vector<std::int64_t>> rest_of(DatasetIterator& elements) {
  std::vector<std::vector<std::int64_t>> values;
  while (const auto element = elements.next()) {
    const at::Tensor x = element->x.tensor().to(torch::kLong).contiguous();
    values.emplace_back(x.data_ptr<std::int64_t>(), x.data_ptr<std::int64_t>() + x.numel());
  }
  return values;
}

inline std::vector<std::vector<std::int64_t>> batches_of(const Dataset& dataset,
                                                         IterateOptions options = {}) {
  auto elements = dataset.iterate(options);
  return rest_of(elements);
}

inline std::vector<std::int64_t> values_of(const Dataset& dataset, IterateOptions options = {}) {
  std::vector<std::int64_t> values;
  for (const auto& element : batches_of(dataset, options))
    values.insert(values.end(), element.begin(), element.end());
  return values;
}

}  // namespace tandem
