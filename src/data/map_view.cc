#include <fmt/format.h>

#include "data/ahead_iterator.h"
#include "data/views.h"
#include "tandem/error.h"

namespace tandem::internal {
namespace {

// Handing over a single example would cost as much as a cheap map does. Batches are big enough alone.
constexpr int kExamplesPerChunk = 16;

class MapIterator final : public ElementIterator {
 public:
  MapIterator(std::unique_ptr<ElementIterator> upstream, std::function<void(Element&)> fn)
      : upstream_(std::move(upstream)), fn_(std::move(fn)) {}

  bool next(Element& element) override {
    if (!upstream_->next(element)) return false;
    fn_(element);
    return true;
  }

  std::int64_t skip(std::int64_t n) override { return upstream_->skip(n); }

 private:
  std::unique_ptr<ElementIterator> upstream_;
  std::function<void(Element&)> fn_;
};

class MapView final : public DerivedView {
 public:
  MapView(View upstream, ElementFunction fn, int parallelism)
      : DerivedView(std::move(upstream)), fn_(std::move(fn)), parallelism_(parallelism) {}

  std::unique_ptr<ElementIterator> make_iterator(std::uint64_t seed, std::int64_t epoch) const override {
    auto elements = upstream().make_iterator(seed, epoch);
    const auto fn = [this, seed](Element& element) { fn_(element, seed); };
    if (parallelism_ == 0) return std::make_unique<MapIterator>(std::move(elements), fn);
    // Two chunks per thread: one in work, one that waits to be asked for.
    return std::make_unique<AheadIterator>(
        std::move(elements), fn,
        AheadOptions{.threads = parallelism_,
                     .max_chunk_size = batch_size() ? 1 : kExamplesPerChunk,
                     .max_chunks = 2 * parallelism_});
  }

  bool is_one_to_one() const override { return true; }
  bool looks_inside() const override { return true; }

  View over(View upstream, const Part&) const override {
    return std::make_shared<MapView>(std::move(upstream), fn_, parallelism_);
  }

 private:
  ElementFunction fn_;
  int parallelism_;
};

}  // namespace

View map_view(View upstream, ElementFunction fn, MapOptions options) {
  if (options.parallelism < 0) {
    throw InvalidArgument(
        fmt::format("map: parallelism {}: expected a number of threads, or 0 for the one that iterates",
                    options.parallelism));
  }
  return std::make_shared<MapView>(std::move(upstream), std::move(fn), options.parallelism);
}

}  // namespace tandem::internal
