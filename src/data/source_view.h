#pragma once

#include <cstdint>
#include <functional>
#include <memory>

#include "data/dataset_view.h"

namespace tandem::internal {

// Examples 0 to count - 1, or every step-th of them, each made when it is asked for.
class SourceView final : public DatasetView {
 public:
  SourceView(std::int64_t count, std::function<Batch(std::int64_t)> example)
      : count_(count), example_(std::make_shared<const Example>(std::move(example))) {}

  // `count` elements of another: first, first + step, ... They keep their numbers there.
  SourceView(const SourceView& all, std::int64_t count, std::int64_t first, std::int64_t step)
      : count_(count),
        first_(all.first_ + first * all.step_),
        step_(step * all.step_),
        example_(all.example_) {}

  std::unique_ptr<ElementIterator> make_iterator(std::uint64_t seed, std::int64_t epoch) const override;
  std::int64_t cardinality() const override { return count_; }
  const SourceView* source() const override { return this; }

  Element element(std::int64_t position, std::int64_t epoch) const {
    const std::int64_t index = first_ + position * step_;
    return {(*example_)(index), epoch, index};
  }

 private:
  using Example = std::function<Batch(std::int64_t index)>;

  std::int64_t count_;
  std::int64_t first_ = 0;
  std::int64_t step_ = 1;
  std::shared_ptr<const Example> example_;
};

}  // namespace tandem::internal
