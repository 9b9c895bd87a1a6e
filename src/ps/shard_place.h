#pragma once

#include <array>
#include <map>
#include <memory>
#include <mutex>
#include <string>

#include "ps/gradient_sum.h"
#include "ps/shard_table.h"

namespace tandem::internal::ps {

// A push whose step is not whole yet.
struct ShardTable::Held {
  PushId id = {};
  Status status = Status::kApplied;
};

struct ShardTable::Place {
  std::size_t id = 0;
  const Shard* shard = nullptr;
  WireType type = WireType::kFloat32;
  std::size_t row_bytes = 0;

  std::mutex mutex = {};  // of what is below, and of the store's shard
  std::uint64_t version = 0;
  std::uint64_t updates = 0;
  PushLedger ledger = {};
  std::array<std::weak_ptr<const ShardCopy>, 3> copies = {};  // of the newest version, by type
  std::string reason = {};

  WholeStep whole = WholeStep();
  std::map<int, Held> held = {};
  GradientSum sum = {};

  std::size_t wire_bytes(WireType wanted) const {
    return shard->bytes / wire_type_bytes(type) * wire_type_bytes(wanted);
  }
};

}  // namespace tandem::internal::ps
