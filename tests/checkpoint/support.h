#pragma once

#include <gtest/gtest.h>

#include <cstring>
#include <string>
#include <vector>

#include "base/random.h"
#include "checkpoint/checkpoint_store.h"

namespace tandem::testing_support {

// Tensors with values that a seed tells.
class State {
 public:
  struct Tensor {
    std::string name;
    std::string dtype;
    std::vector<std::int64_t> shape;
    std::vector<std::byte> values;
  };

  // `rows`: of the largest tensor, of 4 KiB each.
  explicit State(std::uint64_t seed, std::int64_t rows = 2, const std::string& prefix = {}) {
    add(seed, prefix + "layer1.weight", "F32", {rows, 1024});
    add(seed, prefix + "layer1.bias", "F32", {10});
    add(seed, prefix + "layer2.weight", "BF16", {3, 5});
    add(seed, prefix + "steps", "I64", {});
    add(seed, prefix + "empty", "F32", {0, 7});
    add(seed, prefix + "mask", "BOOL", {3});
  }

  const std::vector<Tensor>& tensors() const { return tensors_; }
  std::vector<internal::TensorBytes> bytes() const {
    std::vector<internal::TensorBytes> all;
    for (const Tensor& one : tensors_) all.push_back({one.name, one.dtype, one.shape, one.values});
    return all;
  }

 private:
  void add(std::uint64_t seed, const std::string& name, const std::string& dtype,
           std::vector<std::int64_t> shape) {
    Tensor tensor{name, dtype, std::move(shape), {}};
    tensor.values.resize(*internal::tensor_bytes(dtype, tensor.shape));
    std::uint64_t state = internal::seed_of_stream(seed, tensors_.size());
    for (std::size_t i = 0; i < tensor.values.size(); i += 8) {
      const std::uint64_t bits = internal::mix(state += internal::kCounterStep);
      std::memcpy(tensor.values.data() + i, &bits, std::min<std::size_t>(8, tensor.values.size() - i));
    }
    tensors_.push_back(std::move(tensor));
  }

  std::vector<Tensor> tensors_;
};

// Reads everything that the state has. What is in `read` may be used only if this returned.
inline std::vector<std::vector<std::byte>> read_all(const internal::Checkpoint& checkpoint,
                                                    const State& state) {
  std::vector<std::vector<std::byte>> read;
  std::vector<internal::TensorRequest> requests;
  for (const auto& tensor : state.tensors()) {
    read.emplace_back(tensor.values.size());
    requests.push_back({tensor.name, read.back()});
  }
  checkpoint.read(requests);
  return read;
}

// Whether the checkpoint has exactly this state; throws what reading it throws.
inline bool holds(const internal::Checkpoint& checkpoint, const State& state) {
  const auto read = read_all(checkpoint, state);
  bool same = true;
  for (std::size_t i = 0; i < read.size(); ++i) {
    const auto& tensor = state.tensors()[i];
    const auto* entry = checkpoint.find(tensor.name);
    same = same && read[i] == tensor.values && entry->dtype == tensor.dtype && entry->shape == tensor.shape;
  }
  return same;
}

}  // namespace tandem::testing_support
