#include <fmt/format.h>

#include <algorithm>
#include <limits>

#include "data/stacker.h"
#include "data/views.h"
#include "tandem/error.h"

namespace tandem::internal {
namespace {

class BatchIterator final : public ElementIterator {
 public:
  // A batch never has more than max_rows of its `size`: what a whole pass has.
  BatchIterator(std::unique_ptr<ElementIterator> upstream, std::int64_t size, std::int64_t max_rows,
                bool drop_remainder)
      : upstream_(std::move(upstream)), size_(size), max_rows_(max_rows), drop_remainder_(drop_remainder) {}

  bool next(Element& element) override {
    Stacker stacker(max_rows_);
    while (stacker.size() < max_rows_ && upstream_->next(element)) stacker.add(element);
    if (stacker.size() == 0 || (drop_remainder_ && stacker.size() < size_)) return false;
    element = stacker.finish();
    return true;
  }

  std::int64_t skip(std::int64_t n) override {
    const std::int64_t most = std::numeric_limits<std::int64_t>::max() / size_;
    const std::int64_t examples = upstream_->skip(std::min(n, most) * size_);
    return batches_of(examples);
  }

  SkippedRows skip_rows(std::int64_t elements, std::int64_t rows) override {
    const std::int64_t wanted = std::min(elements, rows / size_) * size_;
    const std::int64_t examples = upstream_->skip(wanted);
    const std::int64_t skipped = batches_of(examples);
    return {skipped, std::min(skipped * size_, examples), examples < wanted};
  }

 private:
  std::int64_t batches_of(std::int64_t examples) const {
    return examples / size_ + (!drop_remainder_ && examples % size_ > 0);
  }

  std::unique_ptr<ElementIterator> upstream_;
  std::int64_t size_;
  std::int64_t max_rows_;
  bool drop_remainder_;
};

class BatchView final : public DerivedView {
 public:
  BatchView(View upstream, std::int64_t size, BatchOptions options)
      : DerivedView(std::move(upstream)), size_(size), drop_remainder_(options.drop_remainder) {}

  std::unique_ptr<ElementIterator> make_iterator(std::uint64_t seed, std::int64_t epoch) const override {
    const std::int64_t examples = upstream().cardinality();
    const std::int64_t max_rows = examples < 0 ? size_ : std::min(size_, examples);
    return std::make_unique<BatchIterator>(upstream().make_iterator(seed, epoch), size_, max_rows,
                                           drop_remainder_);
  }

  std::int64_t cardinality() const override {
    const std::int64_t examples = upstream().cardinality();
    if (examples < 0) return examples;
    return examples / size_ + (!drop_remainder_ && examples % size_ > 0);
  }

  std::optional<std::int64_t> batch_size() const override { return size_; }

  bool looks_inside() const override { return true; }

  View over(View upstream, const Part&) const override {
    return std::make_shared<BatchView>(std::move(upstream), size_, BatchOptions{drop_remainder_});
  }

 private:
  std::int64_t size_;
  bool drop_remainder_;
};

}  // namespace

View batch_view(View upstream, std::int64_t size, BatchOptions options) {
  if (size < 1) throw InvalidArgument(fmt::format("batch({}): expected at least 1 element per batch", size));
  return std::make_shared<BatchView>(std::move(upstream), size, options);
}

}  // namespace tandem::internal
