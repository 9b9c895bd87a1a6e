#include <fmt/format.h>

#include <algorithm>
#include <utility>
#include <vector>

#include "base/random.h"
#include "data/source_view.h"
#include "data/views.h"
#include "tandem/error.h"

namespace tandem::internal {
namespace {

// Unlike the streams of the maps, which are numbered from 0.
constexpr std::uint64_t kShuffleStream = 0x73687566666c65;

// Holds the next `size` items, and gives out a random one of them each time.
template <typename Item>
class ShuffleBuffer {
 public:
  ShuffleBuffer(std::int64_t size, std::uint64_t seed, std::int64_t epoch)
      : size_(static_cast<std::size_t>(size)), random_(seed_of_stream(seed, kShuffleStream), epoch, 0) {}

  // upstream(item) gives the next item, false at the end.
  template <typename Upstream>
  bool next(Item& item, Upstream&& upstream) {
    while (!ended_ && items_.size() < size_) {
      if (!(ended_ = !upstream(item))) items_.push_back(std::move(item));
    }
    if (items_.empty()) return false;
    std::swap(items_[random_.uniform_int(std::ssize(items_))], items_.back());
    item = std::move(items_.back());
    items_.pop_back();
    return true;
  }

 private:
  std::size_t size_;
  ExampleRandom random_;
  std::vector<Item> items_;
  bool ended_ = false;
};

class ShuffleIterator final : public ElementIterator {
 public:
  ShuffleIterator(std::unique_ptr<ElementIterator> upstream, ShuffleBuffer<Element> buffer)
      : upstream_(std::move(upstream)), buffer_(std::move(buffer)) {}

  bool next(Element& element) override {
    return buffer_.next(element, [this](Element& item) { return upstream_->next(item); });
  }

 private:
  std::unique_ptr<ElementIterator> upstream_;
  ShuffleBuffer<Element> buffer_;
};

// The same order over a source, with only numbers in the buffer: examples are made when they leave it, so a
// buffer as large as the set costs no time at the start and little memory, and skipping makes none.
class SourceShuffleIterator final : public ElementIterator {
 public:
  SourceShuffleIterator(const SourceView& source, std::int64_t epoch, ShuffleBuffer<std::int64_t> buffer)
      : source_(source), epoch_(epoch), buffer_(std::move(buffer)) {}

  bool next(Element& element) override {
    std::int64_t index = 0;
    if (!next_index(index)) return false;
    element = source_.element(index, epoch_);
    return true;
  }

  std::int64_t skip(std::int64_t n) override {
    std::int64_t skipped = 0;
    for (std::int64_t index = 0; skipped < n && next_index(index);) ++skipped;
    return skipped;
  }

 private:
  bool next_index(std::int64_t& index) {
    return buffer_.next(index, [this](std::int64_t& item) {
      item = read_;
      return read_++ < source_.cardinality();
    });
  }

  const SourceView& source_;
  std::int64_t epoch_;
  std::int64_t read_ = 0;
  ShuffleBuffer<std::int64_t> buffer_;
};

class ShuffleView final : public DerivedView {
 public:
  ShuffleView(View upstream, std::int64_t buffer_size, ShuffleOptions options)
      : DerivedView(std::move(upstream)), buffer_size_(buffer_size), options_(options) {}

  std::unique_ptr<ElementIterator> make_iterator(std::uint64_t seed, std::int64_t epoch) const override {
    const std::uint64_t order_seed = options_.seed.value_or(seed);
    const std::int64_t order_epoch = options_.reshuffle_each_iteration ? epoch : 0;
    if (const SourceView* source = upstream().source()) {
      return std::make_unique<SourceShuffleIterator>(
          *source, epoch, ShuffleBuffer<std::int64_t>(buffer_size_, order_seed, order_epoch));
    }
    return std::make_unique<ShuffleIterator>(upstream().make_iterator(seed, epoch),
                                             ShuffleBuffer<Element>(buffer_size_, order_seed, order_epoch));
  }

  View over(View upstream, const Part&) const override {
    return std::make_shared<ShuffleView>(std::move(upstream), buffer_size_, options_);
  }

 private:
  std::int64_t buffer_size_;
  ShuffleOptions options_;
};

}  // namespace

View shuffle_view(View upstream, std::int64_t buffer_size, ShuffleOptions options) {
  if (buffer_size < 1) {
    throw InvalidArgument(fmt::format("shuffle({}): expected a buffer of at least 1 element", buffer_size));
  }
  return std::make_shared<ShuffleView>(std::move(upstream), buffer_size, options);
}

}  // namespace tandem::internal
