#pragma once

#include <torch/torch.h>

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "tandem/dataset.h"
#include "tandem/error.h"

namespace tandem {

namespace internal {

// A tensor (or tensors by name), or a torch::data::Example of them, with a target or without.
template <typename Example>
concept TorchExample = std::is_convertible_v<Example, Tensors> || requires(Example example) {
  { example.data } -> std::convertible_to<Tensors>;
};

template <TorchExample Example>
Batch batch_of(Example example) {
  if constexpr (std::is_convertible_v<Example, Tensors>) {
    return {std::move(example)};
  } else if constexpr (requires { example.target; }) {
    return {std::move(example.data), std::move(example.target)};
  } else {
    return {std::move(example.data)};
  }
}

// One example at a time, as torch::data::datasets::Dataset.
template <typename TorchDataset>
concept GivesExamples = requires(TorchDataset& dataset, std::size_t index) {
  { dataset.get(index) } -> TorchExample;
};

// Those of several indices, as torch::data::datasets::BatchDataset.
template <typename TorchDataset>
concept GivesBatches = requires(TorchDataset& dataset, torch::ArrayRef<std::size_t> indices) {
  dataset.get_batch(indices);
};

template <typename TorchDataset>
concept GivesVectors = GivesBatches<TorchDataset> &&
    requires(TorchDataset& dataset, torch::ArrayRef<std::size_t> indices) {
  { dataset.get_batch(indices).front() } -> TorchExample;
};

}  // namespace internal

namespace data {

// The examples of any torch::data dataset with random access: its own (TensorDataset, MNIST), a user's
// Dataset<Self> or BatchDataset, or what .map(transform) made of one. An example's data becomes x, its
// target, if it has one, y.
//
//   auto pictures = torch::data::datasets::MNIST(dir).map(torch::data::transforms::Normalize<>(0.13, 0.31));
//   auto train = data::from_torch(pictures).shuffle(60000).batch(64);
//
// Leave Stack out: batch() stacks. Transforms with random numbers draw from libtorch's generator, so that a
// resume cannot repeat them: Dataset::map can.
//
// The dataset is moved or copied in, and shared by all iterations. Its get() or get_batch() is called from
// any thread, and from several at once where iterations run at once.
//
// Throws InvalidArgument if size() tells none.
template <typename TorchDataset>
Dataset from_torch(TorchDataset dataset) {
  static_assert(
      internal::GivesExamples<TorchDataset> || internal::GivesBatches<TorchDataset>,
      "from_torch: the dataset has no random access: expected get(index) or get_batch(indices); for a "
      "stream or a stateful dataset use Dataset::from_generator");
  static_assert(internal::GivesExamples<TorchDataset> || internal::GivesVectors<TorchDataset> ||
                    !internal::GivesBatches<TorchDataset>,
                "from_torch: get_batch() does not return a vector of Example<Tensor, ...>: leave out the "
                "Stack transform (Dataset::batch() stacks); for a stateful dataset use "
                "Dataset::from_generator");
  const torch::optional<std::size_t> size = dataset.size();
  if (!size) {
    throw InvalidArgument("from_torch: the dataset does not tell its size: use Dataset::from_generator");
  }

  const auto shared = std::make_shared<TorchDataset>(std::move(dataset));
  return Dataset::from_function(static_cast<std::int64_t>(*size), [shared](std::int64_t index) -> Batch {
    const auto number = static_cast<std::size_t>(index);
    if constexpr (internal::GivesExamples<TorchDataset>) {
      return internal::batch_of(shared->get(number));
    } else {
      auto examples = shared->get_batch(number);
      if (examples.size() != 1) {
        throw InvalidArgument("from_torch: get_batch() gave " + std::to_string(examples.size()) +
                              " examples for index " + std::to_string(index) + ": expected 1");
      }
      return internal::batch_of(std::move(examples.front()));
    }
  });
}

}  // namespace data

}  // namespace tandem
