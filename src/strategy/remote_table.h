#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

namespace tandem::internal {

// Where the rows of a model's tables are. Any thread.
class RowSource {
 public:
  virtual ~RowSource() = default;

  // The values of these rows, int64, ascending and each once, as [rows, columns] on the CPU; blocks until
  // they are here. `for_step`: as the step that runs is to see them; else as they are now. `table`: its
  // number in ReplicaTensors::tables. Throws what PsHandle::wait() throws.
  virtual at::Tensor pull_rows(std::size_t table, const at::Tensor& rows, bool for_step) = 0;
};

// What one lookup contributes to the gradient of a table: int64 numbers, ascending and each once, and as many
// rows of values.
struct RowGradient {
  at::Tensor rows;
  at::Tensor values;
};

// A table that lies with parameter servers, as one replica's copy of a module sees it: too large to be here.
// The module owns it, together with the variables of its model; each replica's thread uses its own.
struct RemoteTable {
  std::int64_t rows = 0;
  std::int64_t columns = 0;
  double stddev = 0;  // of the first values

  // What the model gives it.
  std::string name = {};  // "embedding.weight"
  std::uint64_t seed = 0;

  // What the updater gives it, for as long as it lives; none before.
  RowSource* source = nullptr;
  std::size_t number = 0;
  // Since the step began, in the order in which backward reached the lookups.
  std::vector<RowGradient> gradients = {};
};

// The rows that `ids` name, each once over the wire, as [ids..., columns] on their device. Where gradients
// are recorded, backward leaves theirs in table->gradients. The ids must be in range. Throws
// FailedPrecondition for a table without a source.
at::Tensor look_up(const std::shared_ptr<RemoteTable>& table, const at::Tensor& ids);

// The sum of several: every row that one of them has, in the order of `gradients`, on the CPU.
RowGradient sum_of(const std::vector<RowGradient>& gradients);

}  // namespace tandem::internal
