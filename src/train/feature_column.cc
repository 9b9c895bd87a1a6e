#include "tandem/feature_column.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <torch/torch.h>

#include <algorithm>
#include <numeric>

#include "base/fingerprint.h"
#include "cluster/text.h"
#include "tandem/error.h"

namespace tandem {

class FeatureColumn::Impl {
 public:
  explicit Impl(std::string name) : name_(std::move(name)) {}
  virtual ~Impl() = default;

  const std::string& name() const { return name_; }
  virtual std::int64_t num_buckets() const { return 0; }
  virtual std::int64_t width() const { return 0; }
  virtual const FeatureColumn* embedded() const { return nullptr; }
  virtual at::Tensor look_up(const at::Tensor& table, const Tensors::Map& features) const;
  virtual at::Tensor ids(const Tensors::Map&) const {
    throw InvalidArgument(fmt::format("column {} gives numbers, and no categories", internal::quote(name_)));
  }
  virtual at::Tensor values(const Tensors::Map&) const {
    throw InvalidArgument(fmt::format(
        "column {} gives categories: make numbers of them with indicator_column() or embedding_column()",
        internal::quote(name_)));
  }

 private:
  std::string name_;
};

namespace {

using internal::quote;
using ColumnImpl = FeatureColumn::Impl;

// The feature, as [rows, n].
at::Tensor feature(const Tensors::Map& features, const std::string& key) {
  const auto found = features.find(key);
  if (found == features.end()) {
    std::vector<std::string> names;
    for (const auto& [name, tensor] : features) names.push_back(name);
    throw InvalidArgument(fmt::format("feature {} is missing from the input{}: it has {}", quote(key),
                                      internal::did_you_mean(key, names), fmt::join(names, ", ")));
  }
  if (found->second.dim() == 0) {
    throw InvalidArgument(fmt::format(
        "feature {} is a single value: expected [rows] or [rows, n], so batch() first", quote(key)));
  }
  return found->second.dim() == 1 ? found->second.unsqueeze(1) : found->second.flatten(1);
}

// A feature of texts or whole numbers.
at::Tensor whole_feature(const Tensors::Map& features, const std::string& key) {
  const at::Tensor values = feature(features, key);
  if (!at::isIntegralType(values.scalar_type(), /*includeBool=*/true)) {
    throw InvalidArgument(
        fmt::format("feature {} holds {}: expected texts (data::csv, data::string_tensor) or "
                    "whole numbers, for categories",
                    quote(key), c10::toString(values.scalar_type())));
  }
  return values.to(at::kLong);
}

void check_buckets(const std::string& column, std::int64_t buckets) {
  if (buckets >= 1) return;
  throw InvalidArgument(fmt::format("column {}: {} buckets: expected 1 or more", quote(column), buckets));
}

void check_categorical(const char* what, const FeatureColumn& column) {
  if (column.num_buckets() > 0) return;
  throw InvalidArgument(
      fmt::format("{} of column {}, which gives numbers: expected a column of categories "
                  "(bucketized_column makes one of numbers)",
                  what, quote(column.name())));
}

// base/random.h's mix(), on whole tensors: part of the model wherever that goes.
at::Tensor mixed(at::Tensor x) {
  const auto shifted = [](const at::Tensor& value, int bits) {
    return at::bitwise_right_shift(value, bits).bitwise_and((std::int64_t{1} << (64 - bits)) - 1);
  };
  x = x.bitwise_xor(shifted(x, 30)) * static_cast<std::int64_t>(0xbf58476d1ce4e5b9);
  x = x.bitwise_xor(shifted(x, 27)) * static_cast<std::int64_t>(0x94d049bb133111eb);
  return x.bitwise_xor(shifted(x, 31));
}

at::Tensor hashed(const at::Tensor& values, std::int64_t buckets) {
  return at::remainder(mixed(values).bitwise_and(std::numeric_limits<std::int64_t>::max()), buckets);
}

at::Tensor none_where(const at::Tensor& missing, const at::Tensor& ids) {
  return ids.masked_fill(missing, -1);
}

// How often each of `buckets` categories is in the row.
at::Tensor counts(const at::Tensor& ids, std::int64_t buckets) {
  const at::Tensor present = (ids >= 0).to(at::kFloat);
  return at::zeros({ids.size(0), buckets}, present.options()).scatter_add(1, ids.clamp_min(0), present);
}

// What the rows of a table that the categories name come to.
at::Tensor combined(const at::Tensor& table, const at::Tensor& ids, Combiner combiner) {
  const at::Tensor present = (ids >= 0).to(table.scalar_type()).unsqueeze(2);
  const at::Tensor sum = (at::embedding(table, ids.clamp_min(0)) * present).sum(1);
  if (combiner == Combiner::kSum) return sum;
  const at::Tensor count = present.sum(1).clamp_min(1);
  return combiner == Combiner::kMean ? sum / count : sum / count.sqrt();
}

class NumericColumn final : public ColumnImpl {
 public:
  NumericColumn(const std::string& key, NumericColumnOptions options)
      : ColumnImpl(key), options_(std::move(options)) {
    for (const std::int64_t size : options_.shape) {
      if (size < 1) {
        throw InvalidArgument(fmt::format("column {}: a shape of [{}]: expected 1 or more everywhere",
                                          quote(key), fmt::join(options_.shape, ", ")));
      }
      width_ *= size;
    }
  }

  std::int64_t width() const override { return width_; }

  at::Tensor values(const Tensors::Map& features) const override {
    at::Tensor values = feature(features, name()).to(at::kFloat);
    if (values.size(1) != width_) {
      throw InvalidArgument(
          fmt::format("feature {} has {} numbers in a row: expected {} (numeric_column(..., "
                      "{{.shape = {{{}}}}}))",
                      quote(name()), values.size(1), width_, fmt::join(options_.shape, ", ")));
    }
    if (options_.default_value) values = at::nan_to_num(values, *options_.default_value);
    return options_.normalizer_fn ? options_.normalizer_fn(values) : values;
  }

 private:
  NumericColumnOptions options_;
  std::int64_t width_ = 1;
};

class BucketizedColumn final : public ColumnImpl {
 public:
  BucketizedColumn(FeatureColumn source, std::vector<double> boundaries)
      : ColumnImpl(source.name() + "_bucketized"),
        source_(std::move(source)),
        per_number_(std::ssize(boundaries) + 1),
        boundaries_(at::tensor(boundaries, at::kFloat)) {}

  // Each number of a row has buckets of its own.
  std::int64_t num_buckets() const override { return per_number_ * source_.width(); }
  std::int64_t width() const override { return num_buckets(); }

  at::Tensor ids(const Tensors::Map& features) const override {
    const at::Tensor values = source_.values(features).contiguous();
    const at::Tensor buckets = at::bucketize(values, boundaries_.to(values.device()), false, /*right=*/true);
    return buckets + at::arange(source_.width(), buckets.options()) * per_number_;
  }
  at::Tensor values(const Tensors::Map& features) const override {
    return counts(ids(features), num_buckets());
  }

 private:
  FeatureColumn source_;
  std::int64_t per_number_;
  at::Tensor boundaries_;
};

class VocabularyColumn final : public ColumnImpl {
 public:
  VocabularyColumn(const std::string& key, const std::vector<std::int64_t>& vocabulary, FeatureType type,
                   VocabularyOptions options)
      : ColumnImpl(key),
        size_(std::ssize(vocabulary)),
        missing_(type == FeatureType::kString ? 0 : -1),
        options_(options) {
    check_buckets(key, size_);
    if (options.num_oov_buckets < 0 || (options.num_oov_buckets > 0 && options.default_value != -1) ||
        options.default_value < -1 || options.default_value >= size_) {
      throw InvalidArgument(
          fmt::format("column {}: num_oov_buckets {} and default_value {}: expected one of them, "
                      "the latter below {}",
                      quote(key), options.num_oov_buckets, options.default_value, size_));
    }
    std::vector<std::int64_t> order(vocabulary.size());
    std::iota(order.begin(), order.end(), 0);
    std::ranges::sort(order, {}, [&](std::int64_t i) { return vocabulary[static_cast<std::size_t>(i)]; });
    std::vector<std::int64_t> sorted;
    for (const std::int64_t i : order) sorted.push_back(vocabulary[static_cast<std::size_t>(i)]);
    if (std::ranges::adjacent_find(sorted) != sorted.end()) {
      throw InvalidArgument(fmt::format("column {}: the vocabulary has a word twice", quote(key)));
    }
    words_ = at::tensor(sorted, at::kLong);
    ids_ = at::tensor(order, at::kLong);
  }

  std::int64_t num_buckets() const override { return size_ + options_.num_oov_buckets; }

  at::Tensor ids(const Tensors::Map& features) const override {
    const at::Tensor values = whole_feature(features, name()).contiguous();
    const at::Tensor words = words_.to(values.device());
    const at::Tensor place = at::searchsorted(words, values).clamp_max(size_ - 1);
    const at::Tensor known = words.take(place) == values;
    const at::Tensor others = options_.num_oov_buckets > 0 ? hashed(values, options_.num_oov_buckets) + size_
                                                           : at::full_like(values, options_.default_value);
    return none_where(values == missing_, at::where(known, ids_.to(values.device()).take(place), others));
  }

 private:
  std::int64_t size_;
  std::int64_t missing_;
  VocabularyOptions options_;
  at::Tensor words_;  // sorted
  at::Tensor ids_;    // of those
};

class HashedColumn final : public ColumnImpl {
 public:
  HashedColumn(const std::string& key, std::int64_t buckets, FeatureType type)
      : ColumnImpl(key), buckets_(buckets), missing_(type == FeatureType::kString ? 0 : -1) {
    check_buckets(key, buckets);
  }

  std::int64_t num_buckets() const override { return buckets_; }
  at::Tensor ids(const Tensors::Map& features) const override {
    const at::Tensor values = whole_feature(features, name());
    return none_where(values == missing_, hashed(values, buckets_));
  }

 private:
  std::int64_t buckets_;
  std::int64_t missing_;
};

class IdentityColumn final : public ColumnImpl {
 public:
  IdentityColumn(const std::string& key, std::int64_t buckets, std::optional<std::int64_t> default_value)
      : ColumnImpl(key), buckets_(buckets), default_(default_value) {
    check_buckets(key, buckets);
    if (default_ && (*default_ < 0 || *default_ >= buckets)) {
      throw InvalidArgument(
          fmt::format("column {}: default_value {}: expected 0 to {}", quote(key), *default_, buckets - 1));
    }
  }

  std::int64_t num_buckets() const override { return buckets_; }
  at::Tensor ids(const Tensors::Map& features) const override {
    const at::Tensor values = whole_feature(features, name());
    const at::Tensor outside = (values < 0).logical_or(values >= buckets_);
    if (default_) return values.masked_fill(outside, *default_);
    if (outside.any().item<bool>()) {
      throw InvalidArgument(fmt::format("feature {} has the category {}: expected 0 to {}", quote(name()),
                                        values.masked_select(outside)[0].item<std::int64_t>(), buckets_ - 1));
    }
    return values;
  }

 private:
  std::int64_t buckets_;
  std::optional<std::int64_t> default_;
};

class CrossedColumn final : public ColumnImpl {
 public:
  CrossedColumn(const std::string& name, std::vector<CrossIngredient> ingredients, std::int64_t buckets)
      : ColumnImpl(name), ingredients_(std::move(ingredients)), buckets_(buckets) {
    check_buckets(name, buckets);
  }

  std::int64_t num_buckets() const override { return buckets_; }

  at::Tensor ids(const Tensors::Map& features) const override {
    at::Tensor crossed, missing;
    for (const CrossIngredient& ingredient : ingredients_) {
      const at::Tensor values =
          ingredient.column ? ingredient.column->ids(features) : whole_feature(features, ingredient.key);
      // The missing text is a text like others here; a column says what it has no category for.
      const at::Tensor absent = ingredient.column ? values < 0 : at::zeros_like(values, at::kBool);
      if (!crossed.defined()) {
        crossed = mixed(values);
        missing = absent;
        continue;
      }
      // Every category of a row with every one of the next ingredient.
      crossed = mixed(crossed.unsqueeze(2) * static_cast<std::int64_t>(internal::kCounterStep) +
                      values.unsqueeze(1))
                    .flatten(1);
      missing = missing.unsqueeze(2).logical_or(absent.unsqueeze(1)).flatten(1);
    }
    return none_where(missing, hashed(crossed, buckets_));
  }

 private:
  std::vector<CrossIngredient> ingredients_;
  std::int64_t buckets_;
};

class IndicatorColumn final : public ColumnImpl {
 public:
  explicit IndicatorColumn(FeatureColumn source)
      : ColumnImpl(source.name() + "_indicator"), source_(std::move(source)) {}

  std::int64_t width() const override { return source_.num_buckets(); }
  at::Tensor values(const Tensors::Map& features) const override {
    return counts(source_.ids(features), width());
  }

 private:
  FeatureColumn source_;
};

class EmbeddingColumn final : public ColumnImpl {
 public:
  EmbeddingColumn(FeatureColumn source, std::int64_t dimension, Combiner combiner)
      : ColumnImpl(source.name() + "_embedding"),
        source_(std::move(source)),
        dimension_(dimension),
        combiner_(combiner) {}

  std::int64_t width() const override { return dimension_; }
  const FeatureColumn* embedded() const override { return &source_; }
  at::Tensor look_up(const at::Tensor& table, const Tensors::Map& features) const override {
    return combined(table, source_.ids(features), combiner_);
  }
  at::Tensor values(const Tensors::Map&) const override {
    throw InvalidArgument(
        fmt::format("column {} has a table that is learned: use DenseFeatures", quote(name())));
  }

 private:
  FeatureColumn source_;
  std::int64_t dimension_;
  Combiner combiner_;
};

}  // namespace

at::Tensor FeatureColumn::Impl::look_up(const at::Tensor& table, const Tensors::Map& features) const {
  return combined(table, ids(features), Combiner::kSum);
}

const std::string& FeatureColumn::name() const {
  return impl_->name();
}
std::int64_t FeatureColumn::num_buckets() const {
  return impl_->num_buckets();
}
std::int64_t FeatureColumn::width() const {
  return impl_->width();
}
const FeatureColumn* FeatureColumn::embedded() const {
  return impl_->embedded();
}
at::Tensor FeatureColumn::ids(const Tensors::Map& features) const {
  return impl_->ids(features);
}
at::Tensor FeatureColumn::values(const Tensors::Map& features) const {
  return impl_->values(features);
}

at::Tensor FeatureColumn::look_up(const at::Tensor& table, const Tensors::Map& features) const {
  return impl_->look_up(table, features);
}

FeatureColumn numeric_column(const std::string& key, NumericColumnOptions options) {
  return FeatureColumn(std::make_shared<NumericColumn>(key, std::move(options)));
}

FeatureColumn bucketized_column(const FeatureColumn& numeric, std::vector<double> boundaries) {
  if (numeric.num_buckets() > 0 || numeric.embedded() || numeric.width() == 0) {
    throw InvalidArgument(
        fmt::format("bucketized_column of {}: expected a numeric_column", quote(numeric.name())));
  }
  if (boundaries.empty() ||
      std::ranges::adjacent_find(boundaries, std::greater_equal<>()) != boundaries.end()) {
    throw InvalidArgument(
        fmt::format("bucketized_column of {}: the boundaries are [{}]: expected numbers that "
                    "ascend",
                    quote(numeric.name()), fmt::join(boundaries, ", ")));
  }
  return FeatureColumn(std::make_shared<BucketizedColumn>(numeric, std::move(boundaries)));
}

FeatureColumn categorical_column_with_vocabulary_list(const std::string& key,
                                                      const std::vector<std::string>& vocabulary,
                                                      VocabularyOptions options) {
  std::vector<std::int64_t> words;
  for (const std::string& word : vocabulary) words.push_back(internal::fingerprint(word));
  return FeatureColumn(std::make_shared<VocabularyColumn>(key, words, FeatureType::kString, options));
}

FeatureColumn categorical_column_with_vocabulary_list(const std::string& key,
                                                      const std::vector<std::int64_t>& vocabulary,
                                                      VocabularyOptions options) {
  return FeatureColumn(std::make_shared<VocabularyColumn>(key, vocabulary, FeatureType::kInt, options));
}

FeatureColumn categorical_column_with_hash_bucket(const std::string& key, std::int64_t hash_bucket_size,
                                                  FeatureType type) {
  return FeatureColumn(std::make_shared<HashedColumn>(key, hash_bucket_size, type));
}

FeatureColumn categorical_column_with_identity(const std::string& key, std::int64_t num_buckets,
                                               std::optional<std::int64_t> default_value) {
  return FeatureColumn(std::make_shared<IdentityColumn>(key, num_buckets, default_value));
}

FeatureColumn crossed_column(const std::vector<CrossIngredient>& keys, std::int64_t hash_bucket_size) {
  if (keys.size() < 2) {
    throw InvalidArgument(fmt::format("crossed_column of {} ingredients: expected 2 or more", keys.size()));
  }
  std::vector<std::string> names;
  for (const CrossIngredient& each : keys) {
    if (each.column) check_categorical("crossed_column", *each.column);
    names.push_back(each.column ? each.column->name() : each.key);
  }
  std::ranges::sort(names);
  return FeatureColumn(
      std::make_shared<CrossedColumn>(fmt::format("{}", fmt::join(names, "_X_")), keys, hash_bucket_size));
}

FeatureColumn indicator_column(const FeatureColumn& categorical) {
  check_categorical("indicator_column", categorical);
  return FeatureColumn(std::make_shared<IndicatorColumn>(categorical));
}

FeatureColumn embedding_column(const FeatureColumn& categorical, std::int64_t dimension, Combiner combiner) {
  check_categorical("embedding_column", categorical);
  if (dimension < 1) {
    throw InvalidArgument(fmt::format("embedding_column of {}: {} dimensions: expected 1 or more",
                                      quote(categorical.name()), dimension));
  }
  return FeatureColumn(std::make_shared<EmbeddingColumn>(categorical, dimension, combiner));
}

}  // namespace tandem
