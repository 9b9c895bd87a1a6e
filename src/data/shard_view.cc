#include <fmt/format.h>

#include <algorithm>
#include <limits>

#include "data/source_view.h"
#include "data/views.h"
#include "tandem/error.h"

namespace tandem::internal {
namespace {

// How many of 0 to length - 1 are index, index + num_shards, ...
std::int64_t shard_size(std::int64_t length, std::int64_t num_shards, std::int64_t index) {
  return length / num_shards + (index < length % num_shards);
}

class ShardIterator final : public ElementIterator {
 public:
  ShardIterator(std::unique_ptr<ElementIterator> upstream, std::int64_t num_shards, std::int64_t index)
      : upstream_(std::move(upstream)), num_shards_(num_shards), before_(index) {}

  bool next(Element& element) override {
    if (before_ > 0 && upstream_->skip(before_) < before_) return false;
    before_ = num_shards_ - 1;
    return upstream_->next(element);
  }

  std::int64_t skip(std::int64_t n) override {
    if (n == 0) return 0;
    // Up to and with the n-th element of ours.
    const std::int64_t most = (std::numeric_limits<std::int64_t>::max() - before_ - 1) / num_shards_;
    const std::int64_t passed = upstream_->skip(before_ + 1 + std::min(n - 1, most) * num_shards_);
    if (passed <= before_) {
      before_ -= passed;
      return 0;
    }
    const std::int64_t after_first = passed - before_ - 1;
    before_ = num_shards_ - 1 - after_first % num_shards_;
    return 1 + after_first / num_shards_;
  }

 private:
  std::unique_ptr<ElementIterator> upstream_;
  std::int64_t num_shards_;
  std::int64_t before_;  // other shards' elements before our next
};

class ShardView final : public DerivedView {
 public:
  ShardView(View upstream, std::int64_t num_shards, std::int64_t index)
      : DerivedView(std::move(upstream)), num_shards_(num_shards), index_(index) {}

  std::unique_ptr<ElementIterator> make_iterator(std::uint64_t seed, std::int64_t epoch) const override {
    return std::make_unique<ShardIterator>(upstream().make_iterator(seed, epoch), num_shards_, index_);
  }

  std::int64_t cardinality() const override {
    const std::int64_t length = upstream().cardinality();
    return length < 0 ? length : shard_size(length, num_shards_, index_);
  }

  View over(View upstream, const Part&) const override {
    return shard_view(std::move(upstream), num_shards_, index_);
  }

 private:
  std::int64_t num_shards_;
  std::int64_t index_;
};

// What follows a hint reads upstream, until the hint is filled in.
class ShardHintView final : public DerivedView {
 public:
  using DerivedView::DerivedView;

  std::unique_ptr<ElementIterator> make_iterator(std::uint64_t seed, std::int64_t epoch) const override {
    return upstream().make_iterator(seed, epoch);
  }

  const SourceView* source() const override { return upstream().source(); }

  View over(View upstream, const Part&) const override {
    return std::make_shared<ShardHintView>(std::move(upstream));
  }
};

}  // namespace

View shard_hint_view(View upstream) {
  return std::make_shared<ShardHintView>(std::move(upstream));
}

bool is_shard_hint(const DatasetView& view) {
  return dynamic_cast<const ShardHintView*>(&view) != nullptr;
}

View shard_view(View upstream, std::int64_t num_shards, std::int64_t index) {
  if (num_shards < 1) {
    throw InvalidArgument(fmt::format("shard({}, {}): expected at least 1 shard", num_shards, index));
  }
  if (index < 0 || index >= num_shards) {
    throw InvalidArgument(
        fmt::format("shard({}, {}): expected an index from 0 to {}", num_shards, index, num_shards - 1));
  }
  // A shard of a source is a source, which a shuffle can read by number.
  if (const SourceView* source = upstream->source(); source == upstream.get()) {
    const std::int64_t length = source->cardinality();
    // Past the end all numbers are alike; without this the larger ones could overflow.
    return std::make_shared<SourceView>(*source, shard_size(length, num_shards, index),
                                        std::min(index, length), std::min(num_shards, length));
  }
  return std::make_shared<ShardView>(std::move(upstream), num_shards, index);
}

}  // namespace tandem::internal
