#pragma once

#include <gtest/gtest.h>
#include <torch/torch.h>
#include <unistd.h>

#include <cstdint>
#include <filesystem>
#include <fstream>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "tandem/dataset.h"

namespace tandem {

// A folder that is gone after the test.
class TempDir {
 public:
  TempDir() {
    std::string name = (std::filesystem::temp_directory_path() / "tandem-data-XXXXXX").string();
    if (!mkdtemp(name.data())) throw std::runtime_error("no temporary folder");
    path_ = name;
  }
  ~TempDir() { std::filesystem::remove_all(path_); }
  TempDir(const TempDir&) = delete;
  TempDir& operator=(const TempDir&) = delete;

  std::filesystem::path operator/(const std::string& name) const { return path_ / name; }
  std::string string() const { return path_.string(); }

 private:
  std::filesystem::path path_;
};

inline void write_file(const std::filesystem::path& path, const std::string& bytes) {
  std::filesystem::create_directories(path.parent_path());
  std::ofstream(path, std::ios::binary) << bytes;
}

// What the Error that fn throws says.
template <typename Error, typename Fn>
std::string message_of(Fn&& fn) {
  try {
    std::forward<Fn>(fn)();
  } catch (const Error& error) {
    return error.what();
  }
  ADD_FAILURE() << "nothing was thrown";
  return {};
}

// The examples 0 to n - 1: x is the number, y ten times it.
inline Dataset numbers(std::int64_t n) {
  return Dataset::from_function(n, [](std::int64_t index) {
    return Batch{at::Tensor(torch::tensor(index)), at::Tensor(torch::tensor(10 * index))};
  });
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
