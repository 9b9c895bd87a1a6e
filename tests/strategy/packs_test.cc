#include "strategy/packs.h"

#include <gtest/gtest.h>

namespace tandem::internal {
namespace {

// Slots of 64 float32 (256 bytes) each, in the groups that are named.
struct Layout {
  explicit Layout(const std::vector<int>& groups_of_slots, at::ScalarType second_dtype = at::kFloat) {
    groups = {{.dtype = at::kFloat}, {.dtype = second_dtype, .option_group = 1}};
    for (std::size_t i = 0; i < groups_of_slots.size(); ++i) {
      FlatGroup& group = groups[static_cast<std::size_t>(groups_of_slots[i])];
      slots.push_back({.name = std::to_string(i),
                       .group = groups_of_slots[i],
                       .begin = group.elements,
                       .end = group.elements + 60,
                       .sizes = {60},
                       .strides = {1}});
      group.elements += 64;
    }
    if (second_dtype == at::kFloat) {
      groups[1].begin = groups[0].elements;
      storages = {{.dtype = at::kFloat, .elements = groups[0].elements + groups[1].elements}};
    } else {
      groups[1].storage = 1;
      storages = {{.dtype = at::kFloat, .elements = groups[0].elements},
                  {.dtype = second_dtype, .elements = groups[1].elements}};
    }
  }

  std::vector<Pack> packs(std::size_t bytes_per_pack) const {
    return plan_packs(slots, groups, storages, bytes_per_pack);
  }

  std::vector<Slot> slots;
  std::vector<FlatGroup> groups;
  std::vector<FlatStorage> storages;
};

using Slots = std::vector<std::size_t>;

TEST(Packs, GoFromTheLastParameterToTheFirst) {
  const Layout layout({0, 0, 0, 0, 0});
  // A pack closes once it exceeds the limit: 256 bytes do not exceed 256.
  const auto packs = layout.packs(256);
  ASSERT_EQ(packs.size(), 3u);
  EXPECT_EQ(packs[0].slots, (Slots{4, 3}));
  EXPECT_EQ(packs[1].slots, (Slots{2, 1}));
  EXPECT_EQ(packs[2].slots, (Slots{0}));
  EXPECT_EQ(layout.packs(255).size(), 5u);
}

TEST(Packs, CoverTheWholeStorageOnce) {
  const Layout layout({0, 1, 0, 1, 0, 0});
  for (const std::size_t bytes : {0u, 1u, 300u, 600u, 100000u}) {
    std::vector<int> covered(static_cast<std::size_t>(layout.storages[0].elements), 0);
    std::vector<int> seen(layout.slots.size(), 0);
    for (const Pack& pack : layout.packs(bytes)) {
      for (std::int64_t i = pack.begin; i < pack.end; ++i) ++covered[static_cast<std::size_t>(i)];
      for (const std::size_t slot : pack.slots) ++seen[slot];
    }
    EXPECT_EQ(std::count(covered.begin(), covered.end(), 1), layout.storages[0].elements) << bytes;
    EXPECT_EQ(std::count(seen.begin(), seen.end(), 1), static_cast<int>(layout.slots.size())) << bytes;
  }
}

TEST(Packs, SmallModelsTravelAsOneWhateverTheirOptionGroups) {
  EXPECT_EQ(Layout({0, 1, 0, 1, 0}).packs(0).size(), 1u);
  std::vector<int> many;  // 40 MiB
  for (int i = 0; i < 160 * 1024; ++i) many.push_back(0);
  EXPECT_EQ(Layout(many).packs(0).size(), 2u);
}

TEST(Packs, OfDifferentDtypesDoNotMix) {
  const auto packs = Layout({0, 1, 0, 1}, at::kDouble).packs(0);
  ASSERT_EQ(packs.size(), 2u);
  EXPECT_NE(packs[0].storage, packs[1].storage);
}

// Backward reaches the first parameter last, so what holds it must not hold up what follows.
TEST(Packs, LeaveInTheOrderInWhichBackwardCompletesThem) {
  const auto packs = Layout({0, 1, 1, 0, 0, 0}).packs(300);
  std::vector<std::size_t> first_slots;
  for (const Pack& pack : packs)
    first_slots.push_back(*std::min_element(pack.slots.begin(), pack.slots.end()));
  EXPECT_TRUE(std::is_sorted(first_slots.rbegin(), first_slots.rend()));
}

}  // namespace
}  // namespace tandem::internal
