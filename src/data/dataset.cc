#include "tandem/dataset.h"

#include <fmt/format.h>

#include <utility>

#include "base/random.h"
#include "data/views.h"
#include "tandem/error.h"

namespace tandem {

DatasetIterator::DatasetIterator(std::shared_ptr<const internal::DatasetView> view, IterateOptions options)
    : view_(std::move(view)),
      options_(options),
      elements_(view_->make_iterator(options.seed, options.epoch)) {}

DatasetIterator::DatasetIterator(DatasetIterator&&) noexcept = default;
DatasetIterator::~DatasetIterator() = default;

DatasetIterator& DatasetIterator::operator=(DatasetIterator&& other) noexcept {
  elements_.reset();  // it refers to the view, which must go last
  view_ = std::move(other.view_);
  options_ = other.options_;
  elements_ = std::move(other.elements_);
  consumed_ = other.consumed_;
  whole_rows_ = other.whole_rows_;
  return *this;
}

std::optional<Batch> DatasetIterator::next() {
  if (!elements_) return {};
  internal::Element element;
  // At the end as after an error, the chain and its threads have no more to do.
  try {
    if (!elements_->next(element)) {
      elements_.reset();
      return {};
    }
  } catch (...) {
    elements_.reset();
    throw;
  }
  ++consumed_;
  whole_rows_ = element.whole_rows;
  return std::move(element.value);
}

DatasetPosition DatasetIterator::position() const {
  return {options_.epoch, consumed_};
}

void DatasetIterator::seek(DatasetPosition position) {
  if (position.epoch < 0 || position.element < 0) {
    throw InvalidArgument(
        fmt::format("seek to element {} of epoch {}: expected 0 or more", position.element, position.epoch));
  }
  auto elements = view_->make_iterator(options_.seed, position.epoch);
  const std::int64_t skipped = elements->skip(position.element);
  if (skipped < position.element) {
    throw OutOfRange(fmt::format("seek to element {} of epoch {}: the dataset has only {} elements",
                                 position.element, position.epoch, skipped));
  }
  elements_ = std::move(elements);
  options_.epoch = position.epoch;
  consumed_ = position.element;
}

Dataset Dataset::from_tensors(Tensors x, Tensors y, at::Tensor sample_weight) {
  if (!x.defined()) throw InvalidArgument("from_tensors: x holds no tensor");
  Batch all{std::move(x), std::move(y), std::move(sample_weight)};
  const std::int64_t rows = all.rows();
  return from_function(rows, [all = std::move(all)](std::int64_t index) {
    return all.transform([index](const at::Tensor& tensor) { return tensor.select(0, index); });
  });
}

Dataset Dataset::from_tensor_slices(Tensors x, Tensors y, at::Tensor sample_weight) {
  return from_tensors(std::move(x), std::move(y), std::move(sample_weight));
}

Dataset Dataset::from_function(std::int64_t count, std::function<Batch(std::int64_t)> example) {
  return Dataset(internal::source_view(count, std::move(example)));
}

Dataset Dataset::from_generator(std::function<std::function<std::optional<Batch>()>()> make,
                                std::int64_t cardinality) {
  return Dataset(internal::generator_view(std::move(make), cardinality));
}

Dataset Dataset::from_files(std::vector<std::string> files, std::function<Dataset(const std::string&)> read,
                            FilesOptions options) {
  return Dataset(internal::files_view(std::move(files), std::move(read), std::move(options)));
}

Dataset Dataset::with(std::shared_ptr<const internal::DatasetView> view) const {
  Dataset dataset = *this;
  dataset.view_ = std::move(view);
  return dataset;
}

Dataset Dataset::map(std::function<Batch(Batch)> fn, MapOptions options) const {
  const auto apply = [fn = std::move(fn)](internal::Element& element, std::uint64_t) {
    element.value = fn(std::move(element.value));
  };
  return with(internal::map_view(view_, apply, options));
}

Dataset Dataset::map(std::function<Batch(Batch, ExampleRandom&)> fn, MapOptions options) const {
  const auto apply = [fn = std::move(fn)](internal::Element& element, std::uint64_t seed) {
    const int stream = element.random_maps++;
    ExampleRandom random(stream == 0 ? seed : internal::seed_of_stream(seed, stream), element.epoch,
                         element.index);
    element.value = fn(std::move(element.value), random);
  };
  return with(internal::map_view(view_, apply, options));
}

Dataset Dataset::shuffle(std::int64_t buffer_size, ShuffleOptions options) const {
  return with(internal::shuffle_view(view_, buffer_size, options));
}

Dataset Dataset::batch(std::int64_t n, BatchOptions options) const {
  return with(internal::batch_view(view_, n, options));
}

Dataset Dataset::repeat(std::int64_t count) const {
  return with(internal::repeat_view(view_, count));
}

Dataset Dataset::take(std::int64_t count) const {
  return with(internal::take_view(view_, count));
}

Dataset Dataset::skip(std::int64_t count) const {
  return with(internal::skip_view(view_, count));
}

Dataset Dataset::shard(std::int64_t num_shards, std::int64_t index) const {
  return with(internal::shard_view(view_, num_shards, index));
}

Dataset Dataset::shard_hint() const {
  return with(internal::shard_hint_view(view_));
}

Dataset Dataset::with_auto_shard(AutoShardPolicy policy) const {
  Dataset dataset = *this;
  dataset.auto_shard_policy_ = policy;
  return dataset;
}

Dataset Dataset::cache() const {
  return with(internal::cache_view(view_));
}

Dataset Dataset::prefetch(std::int64_t count) const {
  return with(internal::prefetch_view(view_, count));
}

std::int64_t Dataset::cardinality() const {
  return view_->cardinality();
}

std::optional<std::int64_t> Dataset::batch_size() const {
  return view_->batch_size();
}

DatasetIterator Dataset::iterate(IterateOptions options) const {
  return DatasetIterator(view_, options);
}

}  // namespace tandem
