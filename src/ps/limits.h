#pragma once

#include <cstddef>
#include <cstdint>

namespace tandem::internal::ps {

// What is believed of others: anything beyond is damage or an attack.
inline constexpr int kMostWorkers = 1 << 16;
inline constexpr int kMostPs = 1 << 16;
inline constexpr std::size_t kMostShards = std::size_t{1} << 18;
inline constexpr std::uint64_t kMostElements = std::uint64_t{1} << 40;  // of one shard
inline constexpr std::uint64_t kMostSeq = std::uint64_t{1} << 62;  // of pushes, closures, versions and steps
inline constexpr std::size_t kLongestVariableName = 1024;
inline constexpr std::size_t kMostDimensions = 64;

// Of optimizer state: tensors, with the values of all shards, and bytes beside so many bytes of values.
// libtorch's optimizers keep up to three times the values.
inline constexpr std::size_t kMostShardTensors = std::size_t{1} << 20;
inline constexpr std::size_t kLongestStateName = 128;
constexpr std::uint64_t most_state_bytes(std::uint64_t value_bytes) {
  return 64 * value_bytes + (std::uint64_t{1} << 20);
}

}  // namespace tandem::internal::ps
