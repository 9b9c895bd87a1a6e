#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "data/dataset_view.h"

namespace tandem::internal {

// Makes one batch of many elements: each tensor is allocated once, and every element copied into its row as
// it comes, while it is still in the cache.
class Stacker {
 public:
  // For up to `rows` elements.
  explicit Stacker(std::int64_t rows) : rows_(rows) {}

  // Throws InvalidArgument, with both examples and what differs, if it is not like the first one.
  void add(const Element& element);

  std::int64_t size() const { return size_; }

  // The batch of what was added, with the epoch and number of the first.
  Element finish();

 private:
  struct Column {
    at::Tensor rows;
    std::int64_t row_bytes = 0;
  };

  void begin(const Element& element);
  void copy_row(const at::Tensor& row, std::size_t column, const Element& element);

  std::int64_t rows_;
  std::int64_t size_ = 0;
  Element first_;
  std::vector<Column> columns_;
};

}  // namespace tandem::internal
