#pragma once

#include <cassert>
#include <cstdint>
#include <span>

#include "ps/wire.h"

namespace tandem::internal::ps {

// Entries of a push that is sent by hand. The values must be whole ones of the type, and whole rows.

inline Push::Entry describe_dense(std::uint32_t shard, WireType type, std::span<const std::byte> values) {
  assert(values.size() % wire_type_bytes(type) == 0);
  return {.shard = shard,
          .kind = PayloadKind::kDense,
          .type = type,
          .count = values.size() / wire_type_bytes(type),
          .crc = payload_crc({.values = values})};
}

inline Push::Entry describe_rows(std::uint32_t shard, WireType type, std::span<const std::int64_t> row_ids,
                                 std::span<const std::byte> values) {
  assert(!row_ids.empty() && values.size() % (row_ids.size() * wire_type_bytes(type)) == 0);
  return {.shard = shard,
          .kind = PayloadKind::kRows,
          .type = type,
          .rows = row_ids.size(),
          .count = values.size() / wire_type_bytes(type),
          .crc = payload_crc({.row_ids = std::as_bytes(row_ids), .values = values})};
}

}  // namespace tandem::internal::ps
