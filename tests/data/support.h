#pragma once

#include <gtest/gtest.h>
#include <torch/torch.h>

#include <cstdint>
#include <filesystem>
#include <fstream>
#include <functional>
#include <memory>
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

// For map(): x becomes a random number.
inline Batch draw(Batch batch, ExampleRandom& random) {
  batch.x = torch::tensor(random.uniform_int(1000000));
  return batch;
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

// Files of numbers on disk, one a line: file f has lengths[f] of them, 100 f and on.
class NumberFiles {
 public:
  explicit NumberFiles(const std::vector<std::int64_t>& lengths) {
    for (std::size_t file = 0; file < lengths.size(); ++file) {
      std::string lines;
      for (std::int64_t i = 0; i < lengths[file]; ++i) {
        lines += std::to_string(100 * static_cast<std::int64_t>(file) + i) + "\n";
      }
      names_.push_back(folder_.file("numbers-" + std::to_string(file) + ".txt"));
      write_file(names_.back(), lines);
    }
  }

  const std::vector<std::string>& names() const { return names_; }

  // A line at a time: nobody knows how many there are.
  static Dataset read_lines(const std::string& name) {
    return Dataset::from_generator([name] {
      auto file = std::make_shared<std::ifstream>(name);
      return [file]() -> std::optional<Batch> {
        std::int64_t number = 0;
        if (!(*file >> number)) return {};
        return Batch{at::Tensor(torch::tensor(number))};
      };
    });
  }

  // All at once.
  static Dataset load(const std::string& name) {
    std::vector<std::int64_t> values;
    std::ifstream file(name);
    for (std::int64_t number = 0; file >> number;) values.push_back(number);
    return Dataset::from_tensors(torch::tensor(values, torch::kLong));
  }

  static std::int64_t count_lines(const std::string& name) {
    std::ifstream file(name);
    std::int64_t lines = 0;
    for (std::string line; std::getline(file, line);) ++lines;
    return lines;
  }

  Dataset dataset(FilesOptions options = {}) const {
    return Dataset::from_files(names_, read_lines, std::move(options));
  }

 private:
  TempFolder folder_;
  std::vector<std::string> names_;
};

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
