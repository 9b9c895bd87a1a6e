#include "tandem/embedding.h"

#include <fmt/format.h>
#include <torch/torch.h>

#include <cmath>

#include "strategy/remote_table.h"
#include "strategy/strategy_impl.h"
#include "tandem/error.h"
#include "tandem/strategy.h"

namespace tandem {

EmbeddingImpl::EmbeddingImpl(EmbeddingOptions options) : options_(options) {
  if (options_.rows < 1 || options_.columns < 1) {
    throw InvalidArgument(fmt::format("Embedding of {} rows and {} columns: expected 1 or more of both",
                                      options_.rows, options_.columns));
  }
  if (!std::isfinite(options_.stddev) || options_.stddev < 0) {
    throw InvalidArgument(fmt::format("Embedding: stddev is {}: expected a number from 0", options_.stddev));
  }
  if (has_strategy() && get_strategy().impl().has_remote_tables()) {
    remote_ = std::make_shared<internal::RemoteTable>(
        internal::RemoteTable{.rows = options_.rows, .columns = options_.columns, .stddev = options_.stddev});
    return;
  }
  const torch::NoGradGuard no_grad;
  weight_ =
      register_parameter("weight", at::empty({options_.rows, options_.columns}).normal_(0, options_.stddev));
}

void EmbeddingImpl::check(const at::Tensor& ids) const {
  if (ids.scalar_type() != at::kLong) {
    throw InvalidArgument(
        fmt::format("Embedding: the ids are {}: expected int64", c10::toString(ids.scalar_type())));
  }
  const at::Tensor wrong = ids.masked_select((ids < 0).logical_or_(ids >= options_.rows));
  if (wrong.numel() == 0) return;
  throw InvalidArgument(fmt::format(
      "Embedding: id {} has no row: {} has {} rows (0 to {})", wrong[0].item<std::int64_t>(),
      remote_ && !remote_->name.empty() ? remote_->name : "the table", options_.rows, options_.rows - 1));
}

at::Tensor EmbeddingImpl::forward(const at::Tensor& ids) {
  check(ids);
  return remote_ ? internal::look_up(remote_, ids) : torch::embedding(weight_, ids);
}

}  // namespace tandem
