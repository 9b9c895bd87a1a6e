#include "strategy/packs.h"

#include <c10/core/ScalarType.h>

#include <algorithm>
#include <numeric>

namespace tandem::internal {
namespace {

constexpr std::size_t kDefaultBytes = std::size_t{32} << 20;

}  // namespace

std::vector<Pack> plan_packs(const std::vector<Slot>& slots, const std::vector<FlatGroup>& groups,
                             const std::vector<FlatStorage>& storages, std::size_t bytes_per_pack) {
  const std::size_t limit = bytes_per_pack > 0 ? bytes_per_pack : kDefaultBytes;
  const auto group_of = [&](std::size_t slot) -> const FlatGroup& {
    return groups[static_cast<std::size_t>(slots[slot].group)];
  };
  const auto begin_of = [&](std::size_t slot) { return group_of(slot).begin + slots[slot].begin; };

  std::vector<std::size_t> by_place(slots.size());
  std::iota(by_place.begin(), by_place.end(), std::size_t{0});
  std::ranges::sort(by_place, {},
                    [&](std::size_t slot) { return std::pair(group_of(slot).storage, begin_of(slot)); });

  std::vector<Pack> packs;
  for (auto slot = by_place.rbegin(); slot != by_place.rend(); ++slot) {
    const int storage = group_of(*slot).storage;
    const FlatStorage& flat = storages[static_cast<std::size_t>(storage)];
    const auto size = [&](const Pack& pack) {
      return static_cast<std::size_t>(pack.end - pack.begin) * c10::elementSize(flat.dtype);
    };
    const bool open = !packs.empty() && packs.back().storage == storage && size(packs.back()) <= limit;
    if (!open) {
      const bool follows = !packs.empty() && packs.back().storage == storage;
      packs.push_back({.storage = storage, .end = follows ? packs.back().begin : flat.elements});
    }
    packs.back().begin = begin_of(*slot);
    packs.back().slots.push_back(*slot);
  }

  // Backward goes from the last parameter to the first: a pack is complete with its first one.
  std::ranges::stable_sort(packs, std::ranges::greater(),
                           [](const Pack& pack) { return *std::ranges::min_element(pack.slots); });
  return packs;
}

}  // namespace tandem::internal
