#pragma once

#include <compare>
#include <cstdint>
#include <memory>
#include <optional>

#include "tandem/batch.h"
#include "tandem/dataset.h"

namespace tandem::internal {

class SourceView;

// What travels down a chain of views.
struct Element {
  Batch value = {};
  // The pass over the source that it belongs to: repeat() makes several in one iteration.
  std::int64_t epoch = 0;
  // Of the example in its source; after batch(), of the first example in it, so that the batches of two
  // workers with files of their own do not draw the same random numbers.
  std::int64_t index = 0;
  // How many maps have drawn random numbers for it. Each draws from a stream of its own.
  int random_maps = 0;
  // Rows of the global batch that it is a worker's part of; 0 if it is whole. See own_rows().
  std::int64_t whole_rows = 0;
};

// Examples of a list of files are numbered file * 2^kFileBits + example, whoever reads the file.
inline constexpr int kFileBits = 32;

// What ElementIterator::skip_rows() passed over.
struct SkippedRows {
  std::int64_t elements = 0;
  std::int64_t rows = 0;
  bool end = false;  // nothing is left
};

// One pass over a view. Used by one thread at a time. Does no work, and starts no thread, before it is asked
// for an element: to go to a position is to make an iterator and skip.
class ElementIterator {
 public:
  virtual ~ElementIterator() = default;

  // False at the end, however often asked; `element` then holds nothing of use. Not asked again once it has
  // thrown.
  virtual bool next(Element& element) = 0;

  // Passes over n elements, or as many as are left: returns how many. Views for which it is cheap override
  // it.
  virtual std::int64_t skip(std::int64_t n) {
    std::int64_t skipped = 0;
    for (Element element; skipped < n && next(element);) ++skipped;
    return skipped;
  }

  // Passes over at most `elements` batches that have at most `rows` rows together, and only over those whose
  // rows it can tell without making them: for a view that does not override it, none.
  virtual SkippedRows skip_rows([[maybe_unused]] std::int64_t elements, [[maybe_unused]] std::int64_t rows) {
    return {};
  }
};

// One link of the chain behind a Dataset. Never changes, save for what cache() keeps; any thread may call it.
class DatasetView {
 public:
  virtual ~DatasetView() = default;

  // The iterator keeps what it needs of the view by reference: the view must outlive it.
  virtual std::unique_ptr<ElementIterator> make_iterator(std::uint64_t seed, std::int64_t epoch) const = 0;

  // As Dataset::cardinality() and batch_size().
  virtual std::int64_t cardinality() const = 0;
  virtual std::optional<std::int64_t> batch_size() const { return {}; }

  // By how much the epoch of an element grows from one pass to the next: repeat() has several epochs in each.
  virtual std::int64_t epochs_per_pass() const { return 1; }

  // The source that these are the examples of, one for one: itself, if it can make any example at any time.
  virtual const SourceView* source() const { return nullptr; }
};

// A worker's part of the data.
struct Part {
  AutoShardPolicy policy = AutoShardPolicy::kOff;
  int workers = 1;
  int worker = 0;
  int replicas_per_worker = 1;  // where its part depends on that

  friend auto operator<=>(const Part&, const Part&) = default;
};

// A view of as many elements as its upstream has, of the same size.
class DerivedView : public DatasetView {
 public:
  explicit DerivedView(std::shared_ptr<const DatasetView> upstream) : upstream_(std::move(upstream)) {}

  std::int64_t cardinality() const override { return upstream_->cardinality(); }
  std::optional<std::int64_t> batch_size() const override { return upstream_->batch_size(); }
  std::int64_t epochs_per_pass() const override { return upstream_->epochs_per_pass(); }

  const std::shared_ptr<const DatasetView>& upstream_view() const { return upstream_; }

  // Whether element i comes of upstream's element i alone: to leave elements out before it is then to leave
  // them out after it.
  virtual bool is_one_to_one() const { return false; }
  // Whether it looks into its elements, or makes others of them. Else a part of each will do as well.
  virtual bool looks_inside() const { return false; }

  // The same view over another upstream, which is a worker's part of this one's: equal parts have equal
  // upstreams.
  virtual std::shared_ptr<const DatasetView> over(std::shared_ptr<const DatasetView> upstream,
                                                  const Part& part) const = 0;

 protected:
  const DatasetView& upstream() const { return *upstream_; }

 private:
  std::shared_ptr<const DatasetView> upstream_;
};

}  // namespace tandem::internal
