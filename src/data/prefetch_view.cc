#include <fmt/format.h>

#include <algorithm>

#include "data/ahead_iterator.h"
#include "data/views.h"
#include "tandem/error.h"

namespace tandem::internal {
namespace {

constexpr std::int64_t kPrefetchedPerChunk = 16;

class PrefetchView final : public DerivedView {
 public:
  PrefetchView(View upstream, std::int64_t count) : DerivedView(std::move(upstream)), count_(count) {}

  std::unique_ptr<ElementIterator> make_iterator(std::uint64_t seed, std::int64_t epoch) const override {
    // Batches are handed over one by one; of single examples several at once, where the count allows.
    const std::int64_t chunk = batch_size() ? 1 : std::clamp<std::int64_t>(count_ / 2, 1, kPrefetchedPerChunk);
    return std::make_unique<AheadIterator>(
        upstream().make_iterator(seed, epoch), nullptr,
        AheadOptions{.max_chunk_size = chunk, .max_chunks = count_ / chunk});
  }

  bool is_one_to_one() const override { return true; }

  View over(View upstream, const Part&) const override {
    return std::make_shared<PrefetchView>(std::move(upstream), count_);
  }

 private:
  std::int64_t count_;
};

}  // namespace

View prefetch_view(View upstream, std::int64_t count) {
  if (count < 1) throw InvalidArgument(fmt::format("prefetch({}): expected at least 1 element", count));
  return std::make_shared<PrefetchView>(std::move(upstream), count);
}

}  // namespace tandem::internal
