#include <algorithm>
#include <map>
#include <mutex>
#include <utility>
#include <vector>

#include "data/views.h"

namespace tandem::internal {
namespace {

struct Pass {
  std::int64_t epoch = 0;
  std::vector<Element> elements = {};
};

// What all passes over one cache share.
class Cache {
 public:
  // Nothing as long as no pass was whole.
  std::shared_ptr<const Pass> get() const {
    const std::lock_guard lock(mutex_);
    return pass_;
  }

  // The first stays.
  void set(Pass pass) {
    auto kept = std::make_shared<const Pass>(std::move(pass));
    const std::lock_guard lock(mutex_);
    if (!pass_) pass_ = std::move(kept);
  }

 private:
  mutable std::mutex mutex_;
  std::shared_ptr<const Pass> pass_;
};

// Hands out what is kept, if there was something when it began; else upstream's elements, and remembers them.
//
// To skip what is not kept yet is to make it: it will be wanted, and with a gap the pass would not be whole,
// so that a skip() or shard() after the cache would keep it empty for ever.
class CacheIterator final : public ElementIterator {
 public:
  CacheIterator(Cache& cache, const DatasetView& upstream, std::uint64_t seed, std::int64_t epoch)
      : cache_(cache), upstream_(upstream), seed_(seed), epoch_(epoch) {}

  bool next(Element& element) override {
    begin();
    return kept_ ? next_kept(element) : next_new(element);
  }

  std::int64_t skip(std::int64_t n) override {
    begin();
    if (!kept_) return ElementIterator::skip(n);
    const std::int64_t skipped = std::min(n, std::ssize(kept_->elements) - position_);
    position_ += skipped;
    return skipped;
  }

  SkippedRows skip_rows(std::int64_t elements, std::int64_t rows) override {
    begin();
    SkippedRows skipped;
    for (; kept_ && position_ < std::ssize(kept_->elements) && skipped.elements < elements; ++position_) {
      const std::int64_t rows_here = kept_->elements[position_].value.rows();
      if (skipped.rows + rows_here > rows) return skipped;
      ++skipped.elements;
      skipped.rows += rows_here;
    }
    skipped.end = kept_ && position_ == std::ssize(kept_->elements);
    return skipped;
  }

 private:
  void begin() {
    if (begun_) return;
    begun_ = true;
    kept_ = cache_.get();
    if (!kept_) elements_ = upstream_.make_iterator(seed_, epoch_);
  }

  // With the epoch that upstream would give it in this pass: maps that follow must not draw the same again.
  bool next_kept(Element& element) {
    if (position_ == std::ssize(kept_->elements)) return false;
    element = kept_->elements[position_++];
    element.epoch += (epoch_ - kept_->epoch) * upstream_.epochs_per_pass();
    return true;
  }

  bool next_new(Element& element) {
    if (!elements_) return false;
    const bool more = elements_->next(element);
    if (more) read_.push_back(element);
    // Whoever knows the length need not ask for an element past the last.
    if (!more || std::ssize(read_) == upstream_.cardinality()) {
      elements_.reset();
      cache_.set({epoch_, std::move(read_)});
    }
    return more;
  }

  Cache& cache_;
  const DatasetView& upstream_;
  std::uint64_t seed_;
  std::int64_t epoch_;
  bool begun_ = false;

  std::shared_ptr<const Pass> kept_;
  std::int64_t position_ = 0;

  std::unique_ptr<ElementIterator> elements_;
  std::vector<Element> read_;
};

class CacheView final : public DerivedView {
 public:
  using DerivedView::DerivedView;

  std::unique_ptr<ElementIterator> make_iterator(std::uint64_t seed, std::int64_t epoch) const override {
    return std::make_unique<CacheIterator>(cache_, upstream(), seed, epoch);
  }

  // What is kept of a part is for every later pass over that part, however often it is asked for.
  View over(View upstream, const Part& part) const override {
    const std::lock_guard lock(mutex_);
    View& kept = parts_[part];
    if (!kept) kept = cache_view(std::move(upstream));
    return kept;
  }

 private:
  mutable Cache cache_;
  mutable std::mutex mutex_;
  mutable std::map<Part, View> parts_;
};

}  // namespace

View cache_view(View upstream) {
  if (upstream->cardinality() == Dataset::kInfinite) return upstream;
  return std::make_shared<CacheView>(std::move(upstream));
}

}  // namespace tandem::internal
