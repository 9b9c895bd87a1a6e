#pragma once

#include <torch/torch.h>

#include <cstdint>
#include <memory>

namespace tandem {

namespace internal {
struct RemoteTable;
}

struct EmbeddingOptions {
  std::int64_t rows = 0;
  std::int64_t columns = 0;
  // Of the first values, which are drawn from a normal distribution around 0.
  double stddev = 0.05;
};

// A table of rows, one for each id: what a sparse feature (a word, a user, an article) becomes before a dense
// network sees it.
//
// Made in the scope of a ParameterServerStrategy (in the factory of a Model), no worker ever holds the table:
// it is made and kept by the ps tasks, forward() pulls the rows that the ids name, each once, and the step
// pushes the gradients of those rows alone. So it may be larger than a worker's memory, and a step costs what
// the batch needs, not what the table has. Several ps tasks share it as the strategy's partitioner cuts it;
// without one it lies on a single ps.
//
// Such a table is no parameter of the module. Model::values(), checkpoints and weight files do not have it:
// it survives in the snapshots of the ps tasks (ParameterServiceOptions::snapshot_dir), with its part of the
// optimizer's state. The optimizer updates the rows of a step only; momentum and weight decay of the others
// wait for their turn. The first values depend on the model's seed, not on how the table is cut.
//
// Under any other strategy, and under none, it is a module with one parameter, "weight", of rows x columns,
// and forward() is torch::embedding.
class EmbeddingImpl : public torch::nn::Module {
 public:
  // Throws InvalidArgument unless rows and columns are at least 1 and stddev is finite and not negative.
  explicit EmbeddingImpl(EmbeddingOptions options);
  EmbeddingImpl(std::int64_t rows, std::int64_t columns)
      : EmbeddingImpl(EmbeddingOptions{.rows = rows, .columns = columns}) {}

  // ids: int64, of any shape. Returns [ids..., columns]. Throws InvalidArgument, naming the first, for an id
  // that has no row. With parameter servers it blocks until the rows are here, throws FailedPrecondition
  // before the model has an optimizer, and Unavailable if a ps is gone for good. Where gradients are not
  // recorded (evaluation) the rows come just the same, and nothing is pushed.
  at::Tensor forward(const at::Tensor& ids);

  const EmbeddingOptions& options() const { return options_; }

  // The table, where parameter servers have it; else null.
  const std::shared_ptr<internal::RemoteTable>& remote_table() const { return remote_; }

 private:
  void check(const at::Tensor& ids) const;

  EmbeddingOptions options_;
  at::Tensor weight_;
  std::shared_ptr<internal::RemoteTable> remote_;
};
TORCH_MODULE(Embedding);

}  // namespace tandem
