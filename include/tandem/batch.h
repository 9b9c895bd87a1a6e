#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <map>
#include <string>

namespace tandem {

// One tensor, or several by name: what a model reads or is compared with.
//
// Converts from and to at::Tensor, so that a model with one input never sees the difference.
class Tensors {
 public:
  using Map = std::map<std::string, at::Tensor>;

  Tensors() = default;
  Tensors(at::Tensor tensor) : tensor_(std::move(tensor)) {}  // NOLINT: implicit by intent
  Tensors(Map named) : named_(std::move(named)) {}            // NOLINT: implicit by intent

  // False when it holds neither a tensor nor a name.
  bool defined() const { return tensor_.defined() || !named_.empty(); }
  bool is_map() const { return !named_.empty(); }

  // The tensor; throws InvalidArgument for a map, listing its names.
  const at::Tensor& tensor() const;
  operator const at::Tensor&() const { return tensor(); }  // NOLINT: implicit by intent

  const Map& map() const { return named_; }
  // Throws InvalidArgument if there is no such name, listing those there are.
  const at::Tensor& operator[](const std::string& name) const;

  // Length of the first dimension; 0 if undefined. Throws InvalidArgument if named tensors disagree or a
  // tensor has no dimension.
  std::int64_t rows() const;

  // fn applied to each tensor, under the same names.
  Tensors transform(const std::function<at::Tensor(const at::Tensor&)>& fn) const;

 private:
  at::Tensor tensor_;
  Map named_;
};

// What flows through a Dataset: one example before Dataset::batch(), many (along the first dimension) after.
struct Batch {
  Tensors x = {};
  Tensors y = {};
  at::Tensor sample_weight = {};  // undefined: every example counts 1

  // Rows of x. Throws InvalidArgument if y or sample_weight have another number.
  std::int64_t rows() const;

  // Rows [begin, end) as views: nothing is copied.
  Batch slice(std::int64_t begin, std::int64_t end) const;

  // fn applied to each tensor.
  Batch transform(const std::function<at::Tensor(const at::Tensor&)>& fn) const;
};

}  // namespace tandem
