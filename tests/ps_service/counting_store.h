#pragma once

#include <cstring>
#include <map>
#include <vector>

#include "ps/shard_store.h"
#include "tandem/error.h"

namespace tandem::testing_support {

// Adds what is pushed: a push that is lost or applied twice shows in the sums. Counts the updates of each
// shard beside them, as an optimizer's state.
class CountingStore final : public internal::ps::ShardStore {
 public:
  void create(const internal::ps::PlacementPlan& plan, int ps, const std::string& optimizer) override {
    if (optimizer == "none") throw InvalidArgument("there is no optimizer \"none\"");
    shards_.clear();
    for (const std::size_t id : plan.shards_on(ps)) {
      const auto& shard = plan.shards()[id];
      const auto& dtype = plan.variables()[static_cast<std::size_t>(shard.variable)].dtype;
      shards_[id] = {
          .is_double = dtype == "F64",
          .row_bytes = shard.bytes / static_cast<std::uint64_t>(std::max<std::int64_t>(1, shard.rows())),
          .values = std::vector<std::byte>(shard.bytes)};
    }
  }
  std::span<std::byte> values(std::size_t shard) override { return shards_.at(shard).values; }

  void apply(std::size_t shard, const internal::ps::Update& update) override {
    Counted& counted = shards_.at(shard);
    ++counted.updates;
    if (update.kind == internal::ps::PayloadKind::kDense) {
      add(counted.is_double, counted.values, update.values);
      return;
    }
    for (std::size_t i = 0; i < update.row_ids.size(); ++i) {
      const auto row = static_cast<std::size_t>(update.row_ids[i]);
      add(counted.is_double, std::span(counted.values).subspan(row * counted.row_bytes, counted.row_bytes),
          update.values.subspan(i * counted.row_bytes, counted.row_bytes));
    }
  }

  std::vector<internal::ps::StateTensor> state(std::size_t shard) override {
    return {{"updates", "I64", {1}, std::as_bytes(std::span(&shards_.at(shard).updates, 1))}};
  }
  void restore_state(std::size_t shard, std::span<const internal::ps::StateTensor> state) override {
    std::int64_t updates = 0;
    if (!state.empty()) {
      if (state.size() != 1 || state[0].name != "updates" || state[0].bytes.size() != 8) {
        throw DataLoss("no count of updates");
      }
      std::memcpy(&updates, state[0].bytes.data(), 8);
    }
    shards_.at(shard).updates = updates;
  }

  std::int64_t updates(std::size_t shard) const { return shards_.at(shard).updates; }

 private:
  struct Counted {
    bool is_double = false;
    std::size_t row_bytes = 0;
    std::vector<std::byte> values = {};
    std::int64_t updates = 0;
  };

  template <typename T>
  static void add(std::span<std::byte> to, std::span<const std::byte> from) {
    T* sums = reinterpret_cast<T*>(to.data());
    const T* values = reinterpret_cast<const T*>(from.data());
    for (std::size_t i = 0; i < to.size() / sizeof(T); ++i) sums[i] += values[i];
  }
  static void add(bool is_double, std::span<std::byte> to, std::span<const std::byte> from) {
    is_double ? add<double>(to, from) : add<float>(to, from);
  }

  std::map<std::size_t, Counted> shards_;
};

// The same for every test: two ps tasks know it as one cluster.
inline const std::string kClusterId = "0123456789abcdef0123456789abcdef";
inline const std::string kKey = "an old silver key of thirty-two.";

}  // namespace tandem::testing_support
