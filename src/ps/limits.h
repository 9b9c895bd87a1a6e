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

}  // namespace tandem::internal::ps
