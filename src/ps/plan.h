#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "tandem/placement.h"

namespace tandem::internal::ps {

// Values drawn around 0. They depend on this and on the number of the row alone, so that a table has the same
// ones however it is cut.
struct NormalValues {
  double stddev = 0;
  std::uint64_t seed = 0;

  friend bool operator==(const NormalValues&, const NormalValues&) = default;
};

// A variable of a model, as far as its place is concerned.
struct PlanVariable {
  std::string name;
  std::string dtype;                // as safetensors names it: "F32", "BF16", ...
  std::vector<std::int64_t> shape;  // [] for a scalar
  int option_group = 0;             // of the optimizer that updates it

  // Of a table, which no worker has room for: what its ps tasks fill it with before the first update. It is
  // pushed and pulled by row, and never given, read or assigned as a whole. Other variables have none.
  std::optional<NormalValues> first_values = {};
  bool is_table() const { return first_values.has_value(); }

  // Along the first axis; a scalar has one.
  std::int64_t rows() const { return shape.empty() ? 1 : shape[0]; }

  friend bool operator==(const PlanVariable&, const PlanVariable&) = default;
};

// A variable, or a range of its rows, on one ps task: what is pushed, pulled, locked and counted on its own.
// Its number in PlacementPlan::shards() is its id in every message.
struct Shard {
  int variable = 0;  // in PlacementPlan::variables()
  int part = 0;
  int parts = 1;  // of the variable
  std::int64_t row_begin = 0;
  std::int64_t row_end = 0;
  int ps = 0;
  std::uint64_t bytes = 0;

  std::int64_t rows() const { return row_end - row_begin; }

  friend bool operator==(const Shard&, const Shard&) = default;
};

struct PlanOptions {
  int num_ps = 1;

  // Asked once per shard, in order: the parts of a variable go to different ps tasks, as TensorFlow's do.
  // Empty: RoundRobin.
  PsStrategy ps_strategy = {};

  // Empty: no variable is cut.
  Partitioner partitioner = {};
};

// Where each row of each variable of a model lives. The same model and options give the same plan on every
// task; digest() is how they find out that they disagree before anything is pushed.
//
// A value that does not change; any thread may read it.
class PlacementPlan {
 public:
  // Throws InvalidArgument, naming the variable, for a name that is empty, unprintable or given twice (also
  // by a part of another variable), an unknown dtype, a shape too large to count, or an answer of the
  // strategy or the partitioner that makes no sense.
  PlacementPlan(std::vector<PlanVariable> variables, const PlanOptions& options);

  const std::vector<PlanVariable>& variables() const { return variables_; }
  // By variable, then by part.
  const std::vector<Shard>& shards() const { return shards_; }
  int num_ps() const { return num_ps_; }

  // "w", or "w/part_0" if the variable is cut.
  std::string shard_name(std::size_t shard) const;
  std::vector<std::int64_t> shard_shape(std::size_t shard) const;
  const PlanVariable& variable_of(std::size_t shard) const;
  bool is_table(std::size_t shard) const { return variable_of(shard).is_table(); }

  // Those of one variable; they follow each other in shards().
  std::span<const Shard> shards_of(std::size_t variable) const;
  // Ids, ascending.
  std::vector<std::size_t> shards_on(int ps) const;
  std::uint64_t bytes_on(int ps) const;
  std::uint64_t bytes() const;

  // The ps tasks that hold nothing, ascending.
  std::vector<int> idle_ps() const;

  // For people: shards and bytes by ps, then a line for each ps that gets nothing.
  std::string table() const;

  // One line for each shard and everything that tasks must agree on; equal exactly if the plans are, but for
  // the seeds of first values: a training that goes on from a snapshot may have been given another.
  std::string canonical() const;
  // SHA-256 over canonical(), in hexadecimal.
  std::string digest() const;

  std::string to_json() const;
  // Of a file or a peer that is not trusted: throws InvalidArgument with one line unless every row of every
  // variable is there once, on a ps that exists. The rows need not be cut evenly.
  static PlacementPlan from_json(std::string_view text);

  friend bool operator==(const PlacementPlan&, const PlacementPlan&) = default;

 private:
  PlacementPlan() = default;

  // Throws as the constructor does, for what does not depend on options.
  void check_variables() const;
  void check_shard_names() const;
  void add_shard(std::size_t variable, Shard shard);

  int num_ps_ = 1;
  std::vector<PlanVariable> variables_;
  std::vector<Shard> shards_;
  std::vector<std::size_t> first_shard_;  // by variable, and one past the last
};

// The first row of each part and, last, `rows`: rows / parts each, the first rows % parts one more. 13 rows
// in 5 parts: 0, 3, 6, 9, 11, 13.
std::vector<std::int64_t> split_rows(std::int64_t rows, std::int64_t parts);

// For an error: where two canonical() texts first differ, in one line that says who has what.
std::string plan_difference(std::string_view text_a, std::string_view who_a, std::string_view text_b,
                            std::string_view who_b);

}  // namespace tandem::internal::ps
