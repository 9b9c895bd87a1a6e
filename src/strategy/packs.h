#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "strategy/flat_buffers.h"

namespace tandem::internal {

// Gradients that travel together: a range of one storage.
struct Pack {
  int storage = 0;
  std::int64_t begin = 0;  // in elements of the storage
  std::int64_t end = 0;
  std::vector<std::size_t> slots = {};
};

// TensorFlow's rule: slots are packed from the last one on, since backward reaches it first, and a pack
// closes once it exceeds `bytes_per_pack`. 0: one pack below 32 MiB, packs of 32 MiB above. In the order in
// which they leave: those that backward completes first, first.
std::vector<Pack> plan_packs(const std::vector<Slot>& slots, const std::vector<FlatGroup>& groups,
                             const std::vector<FlatStorage>& storages, std::size_t bytes_per_pack);

}  // namespace tandem::internal
