#include "data/own_rows.h"

#include <algorithm>
#include <limits>

#include "data/split_rule.h"
#include "data/stacker.h"
#include "data/views.h"
#include "tandem/error.h"

namespace tandem::internal {
namespace {

// Which rows of which batch. Batches are full but for the last one.
class RowPlan {
 public:
  RowPlan(std::int64_t examples, std::int64_t batches, std::int64_t size, const WorkerRows& place)
      : size_(size), batches_(batches), full_(rows_of(size, place)) {
    last_rows_ = batches < 0 ? size : std::min(size, examples - (batches - 1) * size);
    last_ = rows_of(last_rows_, place);
  }

  std::int64_t size() const { return size_; }
  // kInfinite if there is no end.
  std::int64_t batches() const { return batches_; }
  std::int64_t whole(std::int64_t batch) const { return batch == batches_ - 1 ? last_rows_ : size_; }
  const RowRange& rows(std::int64_t batch) const { return batch == batches_ - 1 ? last_ : full_; }
  const RowRange& full() const { return full_; }

  std::int64_t left(std::int64_t batch) const {
    return batches_ < 0 ? std::numeric_limits<std::int64_t>::max() / size_ : batches_ - batch;
  }
  // The own rows of n batches, from this one on.
  std::int64_t rows(std::int64_t batch, std::int64_t n) const {
    const bool with_last = batches_ >= 0 && n > 0 && batch + n == batches_;
    return with_last ? (n - 1) * full_.size() + last_.size() : n * full_.size();
  }

 private:
  static RowRange rows_of(std::int64_t rows, const WorkerRows& place) {
    return rows_of_worker(rows, place.workers, place.replicas_per_worker, place.worker);
  }

  std::int64_t size_;
  std::int64_t batches_;
  std::int64_t last_rows_ = 0;
  RowRange full_;
  RowRange last_;
};

// The examples that are rows of this worker's.
class RowFilterIterator final : public ElementIterator {
 public:
  RowFilterIterator(const RowPlan& plan, std::unique_ptr<ElementIterator> upstream)
      : plan_(plan), upstream_(std::move(upstream)) {}

  bool next(Element& element) override {
    if (!go_to_next()) return false;
    if (!upstream_->next(element)) return false;
    ++at_;
    ++taken_;
    return true;
  }

  std::int64_t skip(std::int64_t n) override {
    std::int64_t skipped = 0;
    while (skipped < n && go_to_next()) {
      const std::int64_t here = std::min(n - skipped, plan_.rows(batch_).size() - taken_);
      taken_ += here;
      skipped += here;
    }
    return skipped;
  }

 private:
  // Passes over the rows of others; what skip() left out as well.
  bool go_to_next() {
    while (plan_.left(batch_) > 0 && taken_ == plan_.rows(batch_).size()) {
      begins_ += plan_.whole(batch_);
      ++batch_;
      taken_ = 0;
    }
    if (plan_.left(batch_) == 0) return false;
    const std::int64_t wanted = begins_ + plan_.rows(batch_).begin + taken_;
    if (wanted > at_) at_ += upstream_->skip(wanted - at_);
    return at_ == wanted;
  }

  const RowPlan& plan_;
  std::unique_ptr<ElementIterator> upstream_;
  std::int64_t at_ = 0;      // examples of upstream that are behind
  std::int64_t batch_ = 0;   // that the next example is of
  std::int64_t begins_ = 0;  // the first example of that batch
  std::int64_t taken_ = 0;   // own rows of it that are behind
};

class RowFilterView final : public DerivedView {
 public:
  RowFilterView(View upstream, const RowPlan& plan) : DerivedView(std::move(upstream)), plan_(plan) {}

  std::unique_ptr<ElementIterator> make_iterator(std::uint64_t seed, std::int64_t epoch) const override {
    return std::make_unique<RowFilterIterator>(plan_, upstream().make_iterator(seed, epoch));
  }
  std::int64_t cardinality() const override {
    return plan_.batches() < 0 ? Dataset::kInfinite : plan_.rows(0, plan_.batches());
  }
  View over(View upstream, const Part&) const override {
    return std::make_shared<RowFilterView>(std::move(upstream), plan_);
  }

 private:
  RowPlan plan_;
};

// Stacks them again, each batch by itself.
class OwnRowsIterator final : public ElementIterator {
 public:
  OwnRowsIterator(const RowPlan& plan, const DatasetView& upstream, std::uint64_t seed, std::int64_t epoch)
      : plan_(plan),
        upstream_(upstream),
        seed_(seed),
        epoch_(epoch),
        rows_(upstream.make_iterator(seed, epoch)) {}

  bool next(Element& element) override {
    if (plan_.left(batch_) == 0) return false;
    const std::int64_t wanted = plan_.rows(batch_).size();
    if (wanted > 0) {
      stack(*rows_, wanted, element);
    } else {
      // No rows, in the shape of the first one that this worker has in the pass.
      stack(*upstream_.make_iterator(seed_, epoch_), 1, element);
      element.value = element.value.slice(0, 0);
    }
    element.whole_rows = plan_.whole(batch_++);
    return true;
  }

  std::int64_t skip(std::int64_t n) override {
    const std::int64_t batches = std::min(n, plan_.left(batch_));
    rows_->skip(plan_.rows(batch_, batches));
    batch_ += batches;
    return batches;
  }

 private:
  static void stack(ElementIterator& rows, std::int64_t wanted, Element& element) {
    Stacker stacker(wanted);
    while (stacker.size() < wanted && rows.next(element)) stacker.add(element);
    if (stacker.size() < wanted) {
      throw FailedPrecondition("the dataset has fewer examples than its cardinality() tells");
    }
    element = stacker.finish();
  }

  const RowPlan& plan_;
  const DatasetView& upstream_;
  std::uint64_t seed_;
  std::int64_t epoch_;
  std::unique_ptr<ElementIterator> rows_;
  std::int64_t batch_ = 0;
};

class OwnRowsView final : public DerivedView {
 public:
  OwnRowsView(View upstream, const RowPlan& plan) : DerivedView(std::move(upstream)), plan_(plan) {}

  std::unique_ptr<ElementIterator> make_iterator(std::uint64_t seed, std::int64_t epoch) const override {
    return std::make_unique<OwnRowsIterator>(plan_, upstream(), seed, epoch);
  }
  std::int64_t cardinality() const override { return plan_.batches(); }
  std::optional<std::int64_t> batch_size() const override { return plan_.size(); }
  bool looks_inside() const override { return true; }
  View over(View upstream, const Part&) const override {
    return std::make_shared<OwnRowsView>(std::move(upstream), plan_);
  }

 private:
  RowPlan plan_;
};

const DerivedView* derived(const View& view) {
  return dynamic_cast<const DerivedView*>(view.get());
}

// The batch() of a chain that ends in batches, if what follows it takes them as they are.
View find_batch(View view) {
  while (const DerivedView* here = derived(view)) {
    if (!here->upstream_view()->batch_size()) return view->batch_size() ? view : nullptr;
    if (here->looks_inside()) return nullptr;
    view = here->upstream_view();
  }
  return nullptr;
}

// The filter goes before what treats each example by itself.
View filtered(const View& view, const RowPlan& plan, const Part& part) {
  const DerivedView* here = derived(view);
  if (!here || !here->is_one_to_one()) return std::make_shared<RowFilterView>(view, plan);
  return here->over(filtered(here->upstream_view(), plan, part), part);
}

View rebuilt(const View& view, const View& batch, const View& instead, const Part& part) {
  if (view == batch) return instead;
  const DerivedView& here = *derived(view);
  return here.over(rebuilt(here.upstream_view(), batch, instead, part), part);
}

}  // namespace

std::optional<Dataset> own_rows(const Dataset& global_batches, const WorkerRows& place) {
  const View batch = find_batch(global_batches.view());
  if (!batch) return {};
  const View& examples = derived(batch)->upstream_view();
  if (examples->cardinality() == Dataset::kUnknown || examples->cardinality() == 0) return {};
  const RowPlan plan(examples->cardinality(), batch->cardinality(), *batch->batch_size(), place);
  if (plan.batches() == 0 || plan.full().size() == 0 || plan.rows(0).size() == 0) return {};
  const Part part{AutoShardPolicy::kData, place.workers, place.worker, place.replicas_per_worker};
  const View own = std::make_shared<OwnRowsView>(filtered(examples, plan, part), plan);
  return Dataset(rebuilt(global_batches.view(), batch, own, part))
      .with_auto_shard(global_batches.auto_shard_policy());
}

}  // namespace tandem::internal
