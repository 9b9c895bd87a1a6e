#include "data/source_view.h"

#include <fmt/format.h>

#include <algorithm>

#include "data/views.h"
#include "tandem/error.h"

namespace tandem::internal {
namespace {

class SourceIterator final : public ElementIterator {
 public:
  SourceIterator(const SourceView& source, std::int64_t epoch) : source_(source), epoch_(epoch) {}

  bool next(Element& element) override {
    if (index_ == source_.cardinality()) return false;
    element = source_.element(index_++, epoch_);
    return true;
  }

  std::int64_t skip(std::int64_t n) override {
    const std::int64_t skipped = std::min(n, source_.cardinality() - index_);
    index_ += skipped;
    return skipped;
  }

 private:
  const SourceView& source_;
  std::int64_t epoch_;
  std::int64_t index_ = 0;
};

}  // namespace

std::unique_ptr<ElementIterator> SourceView::make_iterator(std::uint64_t, std::int64_t epoch) const {
  return std::make_unique<SourceIterator>(*this, epoch);
}

View source_view(std::int64_t count, std::function<Batch(std::int64_t)> example) {
  if (count < 0) throw InvalidArgument(fmt::format("a dataset of {} examples: expected 0 or more", count));
  return std::make_shared<SourceView>(count, std::move(example));
}

}  // namespace tandem::internal
