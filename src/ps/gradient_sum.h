#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "ps/wire.h"

namespace tandem::internal::ps {

// Of the gradients of one shard that a step has so far. Rows stay rows until something dense comes.
struct GradientSum {
  // How values lie in the shard.
  struct Layout {
    WireType type = WireType::kFloat32;
    std::size_t bytes = 0;
    std::size_t row_bytes = 0;
  };

  PayloadKind kind = PayloadKind::kNothing;
  std::vector<std::int64_t> rows = {};
  std::vector<std::byte> values = {};  // keeps its room from step to step
  double learning_rate = 0;            // of the first worker

  void clear();
  void add(const Layout& layout, PayloadKind added, std::span<const std::int64_t> row_ids,
           std::span<const std::byte> more);

 private:
  std::span<std::byte> row(std::size_t index, std::size_t row_bytes);
  void spread(const Layout& layout);
  void merge(const Layout& layout, std::span<const std::int64_t> row_ids, std::span<const std::byte> more);
};

}  // namespace tandem::internal::ps
