#include "data/stacker.h"

#include <ATen/ops/empty.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstring>
#include <ranges>

#include "data/one_thread.h"
#include "tandem/error.h"

namespace tandem::internal {
namespace {

// Each tensor of a batch, in the order in which Batch::transform() goes.
template <typename Fn>
void visit(const Batch& batch, Fn&& fn) {
  for (const Tensors* tensors : {&batch.x, &batch.y}) {
    for (const auto& [name, tensor] : tensors->map()) fn(tensor);
    if (!tensors->is_map() && tensors->defined()) fn(tensors->tensor());
  }
  if (batch.sample_weight.defined()) fn(batch.sample_weight);
}

// The names of the same, for messages.
std::vector<std::string> names_of(const Batch& batch) {
  std::vector<std::string> names;
  const auto add = [&](const char* role, const Tensors& tensors) {
    for (const auto& [name, tensor] : tensors.map()) names.push_back(fmt::format("{}[\"{}\"]", role, name));
    if (!tensors.is_map() && tensors.defined()) names.push_back(role);
  };
  add("x", batch.x);
  add("y", batch.y);
  if (batch.sample_weight.defined()) names.push_back("sample_weight");
  return names;
}

bool same_names(const Tensors& a, const Tensors& b) {
  if (a.is_map() != b.is_map()) return false;
  if (!a.is_map()) return a.defined() == b.defined();
  return std::ranges::equal(a.map() | std::views::keys, b.map() | std::views::keys);
}

bool same_names(const Batch& a, const Batch& b) {
  return same_names(a.x, b.x) && same_names(a.y, b.y) &&
         a.sample_weight.defined() == b.sample_weight.defined();
}

std::string name_of(const Element& element) {
  const std::int64_t file = element.index >> kFileBits;
  const std::int64_t example = element.index - (file << kFileBits);
  return file == 0 ? fmt::format("example {}", example) : fmt::format("example {} of file {}", example, file);
}

std::string describe(const at::Tensor& tensor, at::IntArrayRef sizes) {
  return fmt::format("{} [{}]", c10::toString(tensor.scalar_type()), fmt::join(sizes, ", "));
}

}  // namespace

void Stacker::add(const Element& element) {
  if (size_ == 0) begin(element);
  if (!same_names(element.value, first_.value)) {
    throw InvalidArgument(fmt::format("batch: {} has {}, but {}, the first of its batch, has {}",
                                      name_of(element), fmt::join(names_of(element.value), ", "),
                                      name_of(first_), fmt::join(names_of(first_.value), ", ")));
  }
  std::size_t column = 0;
  visit(element.value, [&](const at::Tensor& row) { copy_row(row, column++, element); });
  ++size_;
}

void Stacker::begin(const Element& element) {
  first_ = element;
  visit(element.value, [&](const at::Tensor& row) {
    std::vector<std::int64_t> sizes = row.sizes().vec();
    sizes.insert(sizes.begin(), rows_);
    columns_.push_back({at::empty(sizes, row.options()), row.numel() * row.element_size()});
  });
}

void Stacker::copy_row(const at::Tensor& row, std::size_t column, const Element& element) {
  const auto& [rows, row_bytes] = columns_[column];
  const at::IntArrayRef sizes = rows.sizes().slice(1);
  if (row.scalar_type() != rows.scalar_type() || row.sizes() != sizes) {
    throw InvalidArgument(fmt::format("batch: {} of {} is {}, but {} of {}, the first of its batch, is {}",
                                      names_of(first_.value)[column], name_of(element),
                                      describe(row, row.sizes()), names_of(first_.value)[column],
                                      name_of(first_), describe(rows, sizes)));
  }
  if (row.is_contiguous() && row.device().is_cpu() && rows.device().is_cpu() && !row.is_neg() &&
      !row.is_conj()) {
    std::memcpy(static_cast<char*>(rows.data_ptr()) + size_ * row_bytes, row.data_ptr(), row_bytes);
  } else {
    const OneThreadScope one_thread;
    rows.select(0, size_).copy_(row.detach());
  }
}

Element Stacker::finish() {
  std::size_t column = 0;
  Element batch = std::move(first_);
  batch.value = batch.value.transform([&](const at::Tensor&) {
    const at::Tensor& rows = columns_[column++].rows;
    return size_ < rows_ ? rows.slice(0, 0, size_) : rows;
  });
  return batch;
}

}  // namespace tandem::internal
