#pragma once

#include <gtest/gtest.h>

#include <bit>
#include <chrono>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "comm/engine.h"
#include "tandem/communicator.h"

// What holds for every engine: called by every member of a group, be it a thread or a process.
namespace tandem::testing_support {

inline constexpr ElementType kElementTypes[] = {ElementType::kUint8,   ElementType::kInt32,
                                                ElementType::kInt64,   ElementType::kFloat32,
                                                ElementType::kFloat64, ElementType::kBfloat16};
inline constexpr std::int64_t kCounts[] = {0, 1, 7, 1000, 100003};

// Values of any type, told as double. Those that the tests use are whole and small, so every type has them.
class Values {
 public:
  Values(ElementType type, std::int64_t count)
      : type_(type), count_(count), bytes_(static_cast<std::size_t>(count) * element_size(type)) {}

  // What member `rank` brings: other values at each place and from each member.
  static Values of_member(int rank, ElementType type, std::int64_t count) {
    Values values(type, count);
    for (std::int64_t i = 0; i < count; ++i) values.set(i, brought(rank, i));
    return values;
  }
  static double brought(int rank, std::int64_t i) { return static_cast<double>((i * 7 + rank * 5 + 1) % 11); }
  static double sum(int members, std::int64_t i) {
    double sum = 0;
    for (int rank = 0; rank < members; ++rank) sum += brought(rank, i);
    return sum;
  }

  Elements elements() { return {bytes_.data(), count_, type_}; }
  const std::vector<char>& bytes() const { return bytes_; }

  double operator[](std::int64_t i) const {
    switch (type_) {
      case ElementType::kUint8:
        return get<std::uint8_t>(i);
      case ElementType::kInt32:
        return get<std::int32_t>(i);
      case ElementType::kInt64:
        return static_cast<double>(get<std::int64_t>(i));
      case ElementType::kFloat32:
        return get<float>(i);
      case ElementType::kFloat64:
        return get<double>(i);
      case ElementType::kBfloat16:
        return std::bit_cast<float>(std::uint32_t{get<std::uint16_t>(i)} << 16);
    }
    return 0;
  }

  void set(std::int64_t i, double value) {
    switch (type_) {
      case ElementType::kUint8:
        return put(i, static_cast<std::uint8_t>(value));
      case ElementType::kInt32:
        return put(i, static_cast<std::int32_t>(value));
      case ElementType::kInt64:
        return put(i, static_cast<std::int64_t>(value));
      case ElementType::kFloat32:
        return put(i, static_cast<float>(value));
      case ElementType::kFloat64:
        return put(i, value);
      case ElementType::kBfloat16:  // cut off; whole and small values lose nothing
        return put(i,
                   static_cast<std::uint16_t>(std::bit_cast<std::uint32_t>(static_cast<float>(value)) >> 16));
    }
  }

 private:
  template <typename T>
  T get(std::int64_t i) const {
    T value;
    std::memcpy(&value, bytes_.data() + static_cast<std::size_t>(i) * sizeof(T), sizeof(T));
    return value;
  }
  template <typename T>
  void put(std::int64_t i, T value) {
    std::memcpy(bytes_.data() + static_cast<std::size_t>(i) * sizeof(T), &value, sizeof(T));
  }

  ElementType type_;
  std::int64_t count_;
  std::vector<char> bytes_;
};

// Fails once, not at each of 100003 places.
template <typename Expected>
void expect_values(const Values& values, std::int64_t begin, std::int64_t end, Expected expected,
                   const std::string& what) {
  for (std::int64_t i = begin; i < end; ++i) {
    if (values[i] == expected(i)) continue;
    ADD_FAILURE() << what << ": " << values[i] << " instead of " << expected(i) << " at " << i;
    return;
  }
}

template <typename Fn>
void for_all_types_and_counts(Fn fn) {
  for (const ElementType type : kElementTypes) {
    for (const std::int64_t count : kCounts) {
      fn(type, count, std::to_string(count) + " of " + element_name(type));
    }
  }
}

// Twice with the same memory, as a training step does, and with other memory in between.
inline void check_all_reduce(Communicator& group) {
  const int members = group.size();
  for_all_types_and_counts([&](ElementType type, std::int64_t count, const std::string& what) {
    Values values(type, count);
    for (int round = 0; round < 2; ++round) {
      for (std::int64_t i = 0; i < count; ++i) values.set(i, Values::brought(group.rank(), i));
      group.all_reduce(what, values.elements());
      expect_values(
          values, 0, count, [&](std::int64_t i) { return Values::sum(members, i); }, "all_reduce of " + what);
      Values other = Values::of_member(group.rank(), ElementType::kFloat32, 33);
      group.all_reduce("other", other.elements());
      expect_values(
          other, 0, 33, [&](std::int64_t i) { return Values::sum(members, i); }, "all_reduce of other");
    }
  });
}

// Values that must be rounded: right within what rounding may do, and the same to the last bit everywhere.
inline void check_equal_bits(Communicator& group) {
  constexpr std::int64_t kCount = 10007;
  for (const ElementType type : {ElementType::kFloat32, ElementType::kFloat64}) {
    std::vector<double> expected(kCount, 0);
    std::vector<double> magnitude(kCount, 0);
    Values values(type, kCount);
    for (int rank = 0; rank < group.size(); ++rank) {
      std::mt19937_64 random(static_cast<std::uint64_t>(rank) + 1);
      std::normal_distribution<double> normal(0, 100);
      for (std::int64_t i = 0; i < kCount; ++i) {
        Values one(type, 1);
        one.set(0, normal(random));
        expected[static_cast<std::size_t>(i)] += one[0];
        magnitude[static_cast<std::size_t>(i)] += std::abs(one[0]);
        if (rank == group.rank()) values.set(i, one[0]);
      }
    }
    group.all_reduce("rounded", values.elements());
    const double epsilon = type == ElementType::kFloat32 ? 1e-6 : 1e-14;
    for (std::int64_t i = 0; i < kCount; ++i) {
      const auto at = static_cast<std::size_t>(i);
      ASSERT_NEAR(values[i], expected[at], epsilon * magnitude[at] * group.size())
          << element_name(type) << " " << i;
    }
    std::vector<char> everyones(values.bytes().size() * static_cast<std::size_t>(group.size()));
    group.all_gather("everyone's", values.elements(), everyones.data());
    for (int rank = 0; rank < group.size(); ++rank) {
      const char* its = everyones.data() + values.bytes().size() * static_cast<std::size_t>(rank);
      EXPECT_EQ(std::memcmp(its, values.bytes().data(), values.bytes().size()), 0)
          << element_name(type) << ": members " << group.rank() << " and " << rank << " have different bits";
    }
  }
}

inline void check_broadcast(Communicator& group) {
  for_all_types_and_counts([&](ElementType type, std::int64_t count, const std::string& what) {
    for (int root = 0; root < group.size(); ++root) {
      Values values = Values::of_member(group.rank(), type, count);
      group.broadcast(what, values.elements(), root);
      expect_values(
          values, 0, count, [&](std::int64_t i) { return Values::brought(root, i); }, "broadcast of " + what);
    }
  });
}

inline void check_reduce(Communicator& group) {
  for_all_types_and_counts([&](ElementType type, std::int64_t count, const std::string& what) {
    for (int root = 0; root < group.size(); ++root) {
      Values values = Values::of_member(group.rank(), type, count);
      group.reduce(what, values.elements(), root);
      expect_values(
          values, 0, count,
          [&](std::int64_t i) {
            return group.rank() == root ? Values::sum(group.size(), i) : Values::brought(group.rank(), i);
          },
          "reduce of " + what);
    }
  });
}

inline void check_all_gather(Communicator& group) {
  for_all_types_and_counts([&](ElementType type, std::int64_t count, const std::string& what) {
    Values mine = Values::of_member(group.rank(), type, count);
    Values all(type, count * group.size());
    group.all_gather(what, mine.elements(), all.elements().data);
    for (int rank = 0; rank < group.size(); ++rank) {
      expect_values(
          all, count * rank, count * (rank + 1),
          [&](std::int64_t i) { return Values::brought(rank, i - count * rank); }, "all_gather of " + what);
    }
  });
}

inline void check_reduce_scatter(Communicator& group) {
  for_all_types_and_counts([&](ElementType type, std::int64_t count, const std::string& what) {
    Values values = Values::of_member(group.rank(), type, count);
    const auto share = group.reduce_scatter(what, values.elements());
    EXPECT_EQ(share, internal::scattered_share(count, group.rank(), group.size()));
    expect_values(
        values, share.first, share.second, [&](std::int64_t i) { return Values::sum(group.size(), i); },
        "reduce_scatter of " + what);
  });
}

// Round the ring, and back to whoever sent.
inline void check_send_and_receive(Communicator& group) {
  const int next = (group.rank() + 1) % group.size();
  const int previous = (group.rank() + group.size() - 1) % group.size();
  for_all_types_and_counts([&](ElementType type, std::int64_t count, const std::string& what) {
    Values mine = Values::of_member(group.rank(), type, count);
    Values received(type, count);
    const auto send = [&] { group.send(what, mine.elements(), next); };
    const auto receive = [&] { group.receive(what, received.elements(), previous); };
    // Somebody must begin by receiving: a send may wait until it is received.
    if (group.rank() == 0) {
      send();
      receive();
    } else {
      receive();
      send();
    }
    expect_values(
        received, 0, count, [&](std::int64_t i) { return Values::brought(previous, i); },
        "receive of " + what);
  });
}

inline void check_barrier(Communicator& group) {
  using Clock = std::chrono::steady_clock;
  constexpr auto kLate = std::chrono::milliseconds(60);
  for (int late = 0; late < group.size(); ++late) {
    group.barrier("together");
    const auto before = Clock::now();
    if (group.rank() == late) std::this_thread::sleep_for(kLate);
    group.barrier("one is late");
    // The others begin to count no later than the late one left the barrier before, give or take a moment.
    EXPECT_GE(Clock::now() - before, kLate / 2) << "member " << group.rank() << " did not wait for " << late;
  }
}

inline void check_many_at_once(Communicator& group) {
  constexpr int kMany = 20;
  std::vector<Values> values;
  for (int i = 0; i < kMany; ++i) {
    values.push_back(Values::of_member(group.rank(), ElementType::kFloat32, 1000 * i));
  }
  std::vector<Pending> pending;
  for (int i = 0; i < kMany; ++i) {
    pending.push_back(
        group.all_reduce_async("pack " + std::to_string(i), values[static_cast<std::size_t>(i)].elements()));
  }
  for (int i = 0; i < kMany; ++i) {
    pending[static_cast<std::size_t>(i)].wait();
    EXPECT_TRUE(pending[static_cast<std::size_t>(i)].done());
    expect_values(
        values[static_cast<std::size_t>(i)], 0, 1000 * i,
        [&](std::int64_t at) { return Values::sum(group.size(), at); }, "one of many");
  }
  EXPECT_GE(group.traffic().operations, std::uint64_t{kMany});
}

struct Check {
  const char* name;
  void (*run)(Communicator&);
};
// All but all_reduce, which is tried with every algorithm.
inline constexpr Check kChecks[] = {
    {"EqualBits", check_equal_bits},
    {"Broadcast", check_broadcast},
    {"Reduce", check_reduce},
    {"AllGather", check_all_gather},
    {"ReduceScatter", check_reduce_scatter},
    {"SendAndReceive", check_send_and_receive},
    {"Barrier", check_barrier},
    {"ManyAtOnce", check_many_at_once},
};

inline constexpr AllReduceAlgorithm kAlgorithms[] = {
    AllReduceAlgorithm::kAuto, AllReduceAlgorithm::kRing, AllReduceAlgorithm::kRingChunked,
    AllReduceAlgorithm::kHalvingDoubling, AllReduceAlgorithm::kBcube};

}  // namespace tandem::testing_support
