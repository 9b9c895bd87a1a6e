#include "strategy/remote_table.h"

#include <fmt/format.h>
#include <torch/torch.h>

#include "tandem/error.h"

namespace tandem::internal {

at::Tensor look_up(const std::shared_ptr<RemoteTable>& table, const at::Tensor& ids) {
  if (!table->source) {
    throw FailedPrecondition(fmt::format(
        "the rows of {} are with the parameter servers, and nobody here reads them yet: register the module, "
        "make it in the factory of a tandem::Model, and compile() that (or make its optimizer in the "
        "strategy's scope) before the first lookup",
        table->name.empty() ? "this Embedding" : table->name));
  }
  std::vector<std::int64_t> sizes = ids.sizes().vec();
  sizes.push_back(table->columns);
  const bool recording = at::GradMode::is_enabled();
  at::Tensor rows, places, leaf;
  {
    const torch::NoGradGuard no_grad;
    std::tie(rows, places, std::ignore) =
        at::_unique2(ids.flatten().to(at::kCPU), /*sorted=*/true, /*return_inverse=*/true);
    leaf = rows.numel() == 0 ? at::empty({0, table->columns})
                             : table->source->pull_rows(table->number, rows, recording);
    leaf = leaf.to(ids.device());
    places = places.to(ids.device());
  }
  if (recording) {
    leaf.requires_grad_();
    // Backward reaches the leaf once: its only use is below. A lookup that no backward follows leaves
    // nothing.
    leaf.register_hook([weak = std::weak_ptr(table), rows](const at::Tensor& gradient) {
      const auto still = weak.lock();
      if (still && gradient.defined()) still->gradients.push_back({rows, gradient.detach()});
    });
  }
  return leaf.index_select(0, places).view(sizes);
}

RowGradient sum_of(const std::vector<RowGradient>& gradients) {
  const torch::NoGradGuard no_grad;
  if (gradients.size() == 1) {
    return {gradients[0].rows, gradients[0].values.to(at::kCPU).contiguous()};
  }
  std::vector<at::Tensor> all_rows, all_values;
  for (const auto& [rows, values] : gradients) {
    all_rows.push_back(rows);
    all_values.push_back(values.to(at::kCPU));
  }
  const at::Tensor values = at::cat(all_values);
  const auto [rows, places, counts] =
      at::_unique2(at::cat(all_rows), /*sorted=*/true, /*return_inverse=*/true);
  at::Tensor sum = at::zeros({rows.numel(), values.size(1)}, values.options());
  return {rows, sum.index_add_(0, places, values)};
}

}  // namespace tandem::internal
