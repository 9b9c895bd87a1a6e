#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <limits>
#include <numeric>
#include <utility>

#include "data/stacker.h"
#include "data/views.h"
#include "tandem/error.h"

namespace tandem::internal {
namespace {

constexpr std::int64_t kMost = std::numeric_limits<std::int64_t>::max();

// The sizes of the new batches: `sizes`, over and over.
class Sizes {
 public:
  explicit Sizes(std::vector<std::int64_t> sizes)
      : sizes_(std::move(sizes)), cycle_(std::accumulate(sizes_.begin(), sizes_.end(), std::int64_t{0})) {}

  std::int64_t operator[](std::int64_t batch) const { return sizes_[batch % std::ssize(sizes_)]; }
  std::int64_t largest() const { return *std::ranges::max_element(sizes_); }

  // The rows of n batches, from batch `first` on.
  std::int64_t rows(std::int64_t first, std::int64_t n) const {
    std::int64_t rows = n / std::ssize(sizes_) * cycle_;
    for (std::int64_t i = 0; i < n % std::ssize(sizes_); ++i) rows += (*this)[first + i];
    return rows;
  }

  // How many batches, from batch `first` on, that many rows are cut into. One of no rows is only made where
  // rows are left after it.
  std::int64_t batches(std::int64_t first, std::int64_t rows) const {
    if (rows == 0) return 0;
    const std::int64_t cycles = (rows - 1) / cycle_;
    std::int64_t batches = cycles * std::ssize(sizes_);
    for (std::int64_t left = rows - cycles * cycle_; left > 0; ++batches) left -= (*this)[first + batches];
    return batches;
  }

  // As many that their rows can be counted.
  std::int64_t most_batches() const { return kMost / cycle_; }

 private:
  std::vector<std::int64_t> sizes_;
  std::int64_t cycle_;
};

// A new batch out of one old one is a view of it; one out of several is a copy.
class RebatchIterator final : public ElementIterator {
 public:
  RebatchIterator(std::unique_ptr<ElementIterator> upstream, const Sizes& sizes)
      : upstream_(std::move(upstream)), sizes_(sizes) {}

  bool next(Element& element) override {
    // A batch of no rows has the shape of the rows that follow.
    if (!fill()) return false;
    const std::int64_t size = sizes_[number_++];
    if (size <= rows_left()) {
      element = take(size);
    } else {
      Stacker stacker(size);
      while (stacker.size() < size && fill())
        add_to(stacker, take(std::min(size - stacker.size(), rows_left())));
      element = stacker.finish();
    }
    return true;
  }

  std::int64_t skip(std::int64_t n) override {
    n = std::min(n, sizes_.most_batches());
    const std::int64_t rows = sizes_.rows(number_, n);
    const std::int64_t passed = pass(rows);
    const bool all = n == 0 || (passed == rows && (sizes_[number_ + n - 1] > 0 || fill()));
    const std::int64_t skipped = all ? n : sizes_.batches(number_, passed);
    number_ += skipped;
    return skipped;
  }

 private:
  std::int64_t rows_left() const { return rows_ - taken_; }

  // Goes to the next old batch if the rows of the current one are used up: false at the end.
  bool fill() {
    while (rows_left() == 0) {
      if (!upstream_->next(current_)) return false;
      rows_ = current_.value.rows();
      taken_ = 0;
    }
    return true;
  }

  Element take(std::int64_t rows) {
    Element part = current_;
    part.value = current_.value.slice(taken_, taken_ + rows);
    taken_ += rows;
    return part;
  }

  static void add_to(Stacker& stacker, const Element& rows) {
    Element row = rows;
    for (std::int64_t i = 0; i < rows.value.rows(); ++i) {
      row.value = rows.value.transform([i](const at::Tensor& tensor) { return tensor.select(0, i); });
      stacker.add(row);
    }
  }

  // Passes over that many rows, or as many as are left: returns how many.
  std::int64_t pass(std::int64_t rows) {
    std::int64_t passed = 0;
    while (passed < rows) {
      if (rows_left() == 0) passed += upstream_->skip_rows(kMost, rows - passed).rows;
      if (passed == rows || !fill()) break;
      const std::int64_t here = std::min(rows - passed, rows_left());
      taken_ += here;
      passed += here;
    }
    return passed;
  }

  std::unique_ptr<ElementIterator> upstream_;
  const Sizes& sizes_;
  std::int64_t number_ = 0;

  Element current_;
  std::int64_t rows_ = 0;   // of the current element
  std::int64_t taken_ = 0;  // of these
};

class RebatchView final : public DerivedView {
 public:
  RebatchView(View upstream, Sizes sizes) : DerivedView(std::move(upstream)), sizes_(std::move(sizes)) {}

  std::unique_ptr<ElementIterator> make_iterator(std::uint64_t seed, std::int64_t epoch) const override {
    return std::make_unique<RebatchIterator>(upstream().make_iterator(seed, epoch), sizes_);
  }

  // Any old batch may have fewer rows than a full one.
  std::int64_t cardinality() const override {
    const std::int64_t length = upstream().cardinality();
    return length > 0 ? Dataset::kUnknown : length;
  }

  std::optional<std::int64_t> batch_size() const override { return sizes_.largest(); }

  bool looks_inside() const override { return true; }

  View over(View upstream, const Part&) const override {
    return std::make_shared<RebatchView>(std::move(upstream), sizes_);
  }

 private:
  Sizes sizes_;
};

}  // namespace

View rebatch_view(View upstream, std::vector<std::int64_t> sizes) {
  if (!upstream->batch_size()) {
    throw InvalidArgument("rebatch: the dataset has no batches: call .batch(n) on it first");
  }
  const bool positive = std::ranges::any_of(sizes, [](std::int64_t size) { return size > 0; });
  if (!positive || std::ranges::min(sizes) < 0) {
    throw InvalidArgument(fmt::format(
        "rebatch: sizes [{}]: expected 0 or more rows each, and 1 or more in all", fmt::join(sizes, ", ")));
  }
  return std::make_shared<RebatchView>(std::move(upstream), Sizes(std::move(sizes)));
}

}  // namespace tandem::internal
