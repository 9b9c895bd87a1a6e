#include "tandem/batch.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <ranges>

#include "tandem/error.h"

namespace tandem {
namespace {

std::string names_of(const Tensors::Map& named) {
  return fmt::format("{}", fmt::join(named | std::views::keys, ", "));
}

std::int64_t rows_of(const at::Tensor& tensor) {
  if (tensor.dim() == 0)
    throw InvalidArgument("a scalar has no rows: expected a tensor with a batch dimension");
  return tensor.size(0);
}

}  // namespace

const at::Tensor& Tensors::tensor() const {
  if (is_map())
    throw InvalidArgument(fmt::format("expected one tensor, got several by name: {}", names_of(named_)));
  return tensor_;
}

const at::Tensor& Tensors::operator[](const std::string& name) const {
  const auto found = named_.find(name);
  if (found == named_.end()) {
    throw InvalidArgument(
        fmt::format("no tensor named \"{}\"; there {}", name,
                    is_map() ? "are: " + names_of(named_) : "is one tensor without a name"));
  }
  return found->second;
}

std::int64_t Tensors::rows() const {
  if (!is_map()) return tensor_.defined() ? rows_of(tensor_) : 0;
  const std::int64_t rows = rows_of(named_.begin()->second);
  for (const auto& [name, tensor] : named_) {
    if (rows_of(tensor) != rows) {
      throw InvalidArgument(fmt::format("\"{}\" has {} rows, \"{}\" has {}: expected the same number", name,
                                        rows_of(tensor), named_.begin()->first, rows));
    }
  }
  return rows;
}

Tensors Tensors::transform(const std::function<at::Tensor(const at::Tensor&)>& fn) const {
  if (!is_map()) return tensor_.defined() ? Tensors(fn(tensor_)) : Tensors();
  Map out;
  for (const auto& [name, tensor] : named_) out.emplace(name, fn(tensor));
  return out;
}

std::int64_t Batch::rows() const {
  const std::int64_t rows = x.rows();
  const auto check = [&](std::int64_t other, const char* what) {
    if (other != rows)
      throw InvalidArgument(fmt::format("x has {} rows, {} has {}: expected the same", rows, what, other));
  };
  if (y.defined()) check(y.rows(), "y");
  if (sample_weight.defined()) check(rows_of(sample_weight), "sample_weight");
  return rows;
}

Batch Batch::slice(std::int64_t begin, std::int64_t end) const {
  return transform([&](const at::Tensor& tensor) { return tensor.slice(0, begin, end); });
}

Batch Batch::transform(const std::function<at::Tensor(const at::Tensor&)>& fn) const {
  return {x.transform(fn), y.transform(fn), sample_weight.defined() ? fn(sample_weight) : at::Tensor()};
}

}  // namespace tandem
