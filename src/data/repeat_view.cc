#include <fmt/format.h>

#include <algorithm>
#include <limits>

#include "data/views.h"
#include "tandem/error.h"

namespace tandem::internal {
namespace {

constexpr std::int64_t kForEver = std::numeric_limits<std::int64_t>::max();

class RepeatIterator final : public ElementIterator {
 public:
  RepeatIterator(const DatasetView& upstream, std::uint64_t seed, std::int64_t first_epoch,
                 std::int64_t count)
      : upstream_(upstream), seed_(seed), first_epoch_(first_epoch), count_(count) {}

  bool next(Element& element) override {
    while (open_pass()) {
      if (elements_->next(element)) {
        pass_is_empty_ = false;
        return true;
      }
      close_pass();
    }
    return false;
  }

  std::int64_t skip(std::int64_t n) override {
    std::int64_t skipped = 0;
    while (skipped < n && open_pass()) {
      const std::int64_t in_pass = elements_->skip(n - skipped);
      skipped += in_pass;
      pass_is_empty_ = pass_is_empty_ && in_pass == 0;
      if (skipped == n) break;
      close_pass();
      if (const std::int64_t length = upstream_.cardinality(); length > 0) {
        const std::int64_t passes = std::min((n - skipped) / length, count_ - pass_);
        pass_ += passes;
        skipped += passes * length;
      }
    }
    return skipped;
  }

  SkippedRows skip_rows(std::int64_t elements, std::int64_t rows) override {
    SkippedRows skipped;
    while (open_pass()) {
      const SkippedRows in_pass = elements_->skip_rows(elements - skipped.elements, rows - skipped.rows);
      skipped.elements += in_pass.elements;
      skipped.rows += in_pass.rows;
      pass_is_empty_ = pass_is_empty_ && in_pass.elements == 0;
      if (!in_pass.end) return skipped;
      close_pass();
    }
    skipped.end = true;
    return skipped;
  }

 private:
  bool open_pass() {
    if (pass_ >= count_) return false;
    if (!elements_) {
      elements_ = upstream_.make_iterator(seed_, first_epoch_ + pass_);
      pass_is_empty_ = true;
    }
    return true;
  }

  // An empty pass is the last: the next would be empty too, and for ever has to end.
  void close_pass() {
    elements_.reset();
    pass_ = pass_is_empty_ ? count_ : pass_ + 1;
  }

  const DatasetView& upstream_;
  std::uint64_t seed_;
  std::int64_t first_epoch_;
  std::int64_t count_;
  std::int64_t pass_ = 0;
  bool pass_is_empty_ = true;
  std::unique_ptr<ElementIterator> elements_;
};

class RepeatView final : public DerivedView {
 public:
  RepeatView(View upstream, std::int64_t count) : DerivedView(std::move(upstream)), count_(count) {}

  // Pass k of epoch e is epoch e * count + k of upstream, so that no two passes are shuffled alike.
  std::unique_ptr<ElementIterator> make_iterator(std::uint64_t seed, std::int64_t epoch) const override {
    if (count_ == Dataset::kInfinite) return std::make_unique<RepeatIterator>(upstream(), seed, 0, kForEver);
    return std::make_unique<RepeatIterator>(upstream(), seed, epoch * count_, count_);
  }

  std::int64_t cardinality() const override {
    const std::int64_t length = upstream().cardinality();
    if (length == 0 || count_ == 0) return 0;
    if (count_ == Dataset::kInfinite) return Dataset::kInfinite;  // if it is unknown, save that it is empty
    return length < 0 ? length : length * count_;
  }

  // For ever begins with epoch 0 in each pass.
  std::int64_t epochs_per_pass() const override {
    return count_ == Dataset::kInfinite ? 0 : count_ * upstream().epochs_per_pass();
  }

  View over(View upstream, const Part&) const override {
    return std::make_shared<RepeatView>(std::move(upstream), count_);
  }

 private:
  std::int64_t count_;
};

}  // namespace

View repeat_view(View upstream, std::int64_t count) {
  if (count < 0 && count != Dataset::kInfinite) {
    throw InvalidArgument(fmt::format("repeat({}): expected 0 or more, or Dataset::kInfinite", count));
  }
  return std::make_shared<RepeatView>(std::move(upstream), count);
}

}  // namespace tandem::internal
