#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "tandem/batch.h"

namespace tandem {

// How a feature of the input (a tensor under a name, [rows] or [rows, n]) becomes what a model computes with.
// TensorFlow's tf.feature_column, under its names. Made by the functions below; used by the layers of
// feature_layers.h and by the canned estimators.
//
// A column gives numbers, [rows, width()], or categories: num_buckets() of them, told by their ids. Texts
// come as data::csv() and data::string_tensor() make them.
//
// A FeatureColumn is a value: a shared handle of something that never changes.
class FeatureColumn {
 public:
  class Impl;

  explicit FeatureColumn(std::shared_ptr<const Impl> impl) : impl_(std::move(impl)) {}

  // TensorFlow's: "age", "age_bucketized", "sex_indicator", "origin_X_sex".
  const std::string& name() const;

  // Of a column of categories; 0 for one of numbers.
  std::int64_t num_buckets() const;
  // Numbers in a row: 0 for categories that only an embedding or an indicator makes numbers of.
  std::int64_t width() const;
  // Of an embedding: the categories that it embeds, in width() dimensions. Else null.
  const FeatureColumn* embedded() const;

  // [rows, n]: the categories of each row, 0 to num_buckets() - 1, or -1 where there is none. Throws
  // InvalidArgument, naming it, for a feature that is not there or not of the kind or shape expected.
  at::Tensor ids(const Tensors::Map& features) const;
  // [rows, width()], float. Likewise.
  at::Tensor values(const Tensors::Map& features) const;
  // The rows of a table [num_buckets, n] that a row's categories name: summed, or combined as the embedding
  // says.
  at::Tensor look_up(const at::Tensor& table, const Tensors::Map& features) const;

 private:
  std::shared_ptr<const Impl> impl_;
};

// What a feature of categories holds.
enum class FeatureType {
  kString,  // missing: ""
  kInt,     // missing: -1
};

struct NumericColumnOptions {
  // Numbers of each row.
  std::vector<std::int64_t> shape = {1};
  // What stands for one that is missing: that is no number (NaN). Unset: it stays one.
  std::optional<double> default_value = {};
  // Applied to [rows, numbers], e.g. to bring them to mean 0 and deviation 1.
  std::function<at::Tensor(const at::Tensor&)> normalizer_fn = {};
};
FeatureColumn numeric_column(const std::string& key, NumericColumnOptions options = {});

// The numbers of a numeric column as categories: below boundaries[0], from there to below boundaries[1], and
// so on: one more than boundaries, which must ascend. A column of numbers too: 1 in the place of the bucket.
FeatureColumn bucketized_column(const FeatureColumn& numeric, std::vector<double> boundaries);

struct VocabularyOptions {
  // What is not in the list goes to one of so many further categories, by a hash of it.
  std::int64_t num_oov_buckets = 0;
  // With none of those, to this one; -1: to no category.
  std::int64_t default_value = -1;
};
FeatureColumn categorical_column_with_vocabulary_list(const std::string& key,
                                                      const std::vector<std::string>& vocabulary,
                                                      VocabularyOptions options = {});
FeatureColumn categorical_column_with_vocabulary_list(const std::string& key,
                                                      const std::vector<std::int64_t>& vocabulary,
                                                      VocabularyOptions options = {});

// Whatever comes, to one of so many categories, by a hash of it that is the same on every machine (and other
// than TensorFlow's).
FeatureColumn categorical_column_with_hash_bucket(const std::string& key, std::int64_t hash_bucket_size,
                                                  FeatureType type = FeatureType::kString);

// Whole numbers that are the categories: 0 to num_buckets - 1. Others go to default_value, if it is given;
// else they end the step with InvalidArgument.
FeatureColumn categorical_column_with_identity(const std::string& key, std::int64_t num_buckets,
                                               std::optional<std::int64_t> default_value = {});

// One category for each combination, hashed into so many. An ingredient is a feature of texts or whole
// numbers by its name, or a column of categories (not hashed itself).
struct CrossIngredient {
  CrossIngredient(const char* feature) : key(feature) {}             // NOLINT: implicit by intent
  CrossIngredient(std::string feature) : key(std::move(feature)) {}  // NOLINT: implicit by intent
  CrossIngredient(FeatureColumn from) : column(std::move(from)) {}   // NOLINT: implicit by intent

  std::string key = {};
  std::optional<FeatureColumn> column = {};
};
FeatureColumn crossed_column(const std::vector<CrossIngredient>& keys, std::int64_t hash_bucket_size);

// Numbers from categories: how often each is in the row.
FeatureColumn indicator_column(const FeatureColumn& categorical);

enum class Combiner { kMean, kSum, kSqrtn };
// Numbers from categories: a learned vector of each; the vectors of a row's categories are combined.
FeatureColumn embedding_column(const FeatureColumn& categorical, std::int64_t dimension,
                               Combiner combiner = Combiner::kMean);

}  // namespace tandem
