#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace tandem::internal::ps {

// A piece of an optimizer's state, as StateTensor, with memory of its own.
struct StateImage {
  std::string name = {};   // "exp_avg"; unique within the shard, without slashes
  std::string dtype = {};  // as safetensors names it
  std::vector<std::int64_t> shape = {};
  std::vector<std::byte> bytes = {};

  friend bool operator==(const StateImage&, const StateImage&) = default;
};

// All of a shard at one version: what a checkpoint keeps of it.
struct ShardImage {
  std::vector<std::byte> values = {};  // row-major, in the variable's dtype
  std::vector<StateImage> state = {};  // by name; none before the first update

  friend bool operator==(const ShardImage&, const ShardImage&) = default;
};

}  // namespace tandem::internal::ps
