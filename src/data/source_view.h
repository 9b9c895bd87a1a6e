#pragma once

#include <cstdint>
#include <functional>

#include "data/dataset_view.h"

namespace tandem::internal {

// Examples 0 to count - 1, each made when it is asked for.
class SourceView final : public DatasetView {
 public:
  SourceView(std::int64_t count, std::function<Batch(std::int64_t)> example)
      : count_(count), example_(std::move(example)) {}

  std::unique_ptr<ElementIterator> make_iterator(std::uint64_t seed, std::int64_t epoch) const override;
  std::int64_t cardinality() const override { return count_; }
  const SourceView* source() const override { return this; }

  Element element(std::int64_t index, std::int64_t epoch) const { return {example_(index), epoch, index}; }

 private:
  std::int64_t count_;
  std::function<Batch(std::int64_t)> example_;
};

}  // namespace tandem::internal
