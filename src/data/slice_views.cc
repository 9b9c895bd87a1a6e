#include <fmt/format.h>

#include <algorithm>

#include "data/views.h"
#include "tandem/error.h"

namespace tandem::internal {
namespace {

class TakeIterator final : public ElementIterator {
 public:
  TakeIterator(std::unique_ptr<ElementIterator> upstream, std::int64_t count)
      : upstream_(std::move(upstream)), left_(count) {}

  bool next(Element& element) override {
    if (left_ == 0 || !upstream_->next(element)) return false;
    --left_;
    return true;
  }

  std::int64_t skip(std::int64_t n) override {
    const std::int64_t skipped = upstream_->skip(std::min(n, left_));
    left_ -= skipped;
    return skipped;
  }

  SkippedRows skip_rows(std::int64_t elements, std::int64_t rows) override {
    SkippedRows skipped = upstream_->skip_rows(std::min(elements, left_), rows);
    left_ -= skipped.elements;
    skipped.end = skipped.end || left_ == 0;
    return skipped;
  }

 private:
  std::unique_ptr<ElementIterator> upstream_;
  std::int64_t left_;
};

class TakeView final : public DerivedView {
 public:
  TakeView(View upstream, std::int64_t count) : DerivedView(std::move(upstream)), count_(count) {}

  std::unique_ptr<ElementIterator> make_iterator(std::uint64_t seed, std::int64_t epoch) const override {
    return std::make_unique<TakeIterator>(upstream().make_iterator(seed, epoch), count_);
  }

  std::int64_t cardinality() const override {
    const std::int64_t length = upstream().cardinality();
    if (length == Dataset::kInfinite || count_ == 0) return count_;
    return length < 0 ? length : std::min(length, count_);
  }

  View over(View upstream, const Part&) const override {
    return std::make_shared<TakeView>(std::move(upstream), count_);
  }

 private:
  std::int64_t count_;
};

class SkipIterator final : public ElementIterator {
 public:
  SkipIterator(std::unique_ptr<ElementIterator> upstream, std::int64_t count)
      : upstream_(std::move(upstream)), count_(count) {}

  bool next(Element& element) override {
    skip_beginning();
    return upstream_->next(element);
  }

  std::int64_t skip(std::int64_t n) override {
    skip_beginning();
    return upstream_->skip(n);
  }

  SkippedRows skip_rows(std::int64_t elements, std::int64_t rows) override {
    skip_beginning();
    return upstream_->skip_rows(elements, rows);
  }

 private:
  void skip_beginning() {
    if (count_ > 0) upstream_->skip(count_);
    count_ = 0;
  }

  std::unique_ptr<ElementIterator> upstream_;
  std::int64_t count_;
};

class SkipView final : public DerivedView {
 public:
  SkipView(View upstream, std::int64_t count) : DerivedView(std::move(upstream)), count_(count) {}

  std::unique_ptr<ElementIterator> make_iterator(std::uint64_t seed, std::int64_t epoch) const override {
    return std::make_unique<SkipIterator>(upstream().make_iterator(seed, epoch), count_);
  }

  std::int64_t cardinality() const override {
    const std::int64_t length = upstream().cardinality();
    return length < 0 ? length : std::max<std::int64_t>(0, length - count_);
  }

  View over(View upstream, const Part&) const override {
    return std::make_shared<SkipView>(std::move(upstream), count_);
  }

 private:
  std::int64_t count_;
};

void check_count(const char* what, std::int64_t count) {
  if (count < 0) throw InvalidArgument(fmt::format("{}({}): expected 0 or more elements", what, count));
}

}  // namespace

View take_view(View upstream, std::int64_t count) {
  check_count("take", count);
  return std::make_shared<TakeView>(std::move(upstream), count);
}

View skip_view(View upstream, std::int64_t count) {
  check_count("skip", count);
  return std::make_shared<SkipView>(std::move(upstream), count);
}

}  // namespace tandem::internal
