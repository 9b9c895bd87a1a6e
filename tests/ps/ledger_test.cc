#include "ps/push_ledger.h"

#include <gtest/gtest.h>

#include <cstring>
#include <set>

#include "base/crc32c.h"
#include "base/random.h"
#include "support/errors.h"
#include "tandem/error.h"

namespace tandem::internal::ps {
namespace {

using testing_support::message_of;
using Verdict = PushLedger::Verdict;

const Incarnation kFirst{1, 1};
const Incarnation kSecond{1, 2};

PushLedger with_worker(int worker = 0, Incarnation incarnation = kFirst) {
  PushLedger ledger;
  ledger.admit(worker, incarnation, 1);
  return ledger;
}

void apply(PushLedger& ledger, const PushId& push, std::uint64_t version = 1) {
  ASSERT_EQ(ledger.decide(push).verdict, Verdict::kApply);
  ledger.record(push, {.version = version});
}

TEST(PushLedger, AppliesTheNextRepeatsThePastAndRefusesGaps) {
  PushLedger ledger = with_worker();
  const auto id = [](std::uint64_t seq) { return PushId{.incarnation = kFirst, .seq = seq}; };
  EXPECT_EQ(ledger.decide(id(2)).reply.status, Status::kGap);
  EXPECT_EQ(ledger.decide(id(2)).last_seq, 0u);
  EXPECT_EQ(ledger.decide(id(0)).verdict, Verdict::kRefuse);
  apply(ledger, id(1), 10);
  EXPECT_EQ(ledger.decide(id(1)).verdict, Verdict::kRepeat);
  EXPECT_EQ(ledger.decide(id(1)).reply, (PushReply{.version = 10}));
  ledger.record(id(2), {.status = Status::kRejected, .version = 10});
  apply(ledger, id(3), 11);
  EXPECT_EQ(ledger.decide(id(2)).reply.status, Status::kRejected)
      << "every push of the window keeps its reply";
  EXPECT_EQ(ledger.decide(id(3)).reply.version, 11u);
  const auto gap = ledger.decide(id(9));
  EXPECT_EQ(gap.verdict, Verdict::kRefuse);
  EXPECT_EQ(gap.last_seq, 3u);
}

TEST(PushLedger, KnowsOnlyWhoWasAdmitted) {
  PushLedger ledger = with_worker(3);
  EXPECT_EQ(ledger.decide({.worker = 2, .incarnation = kFirst, .seq = 1}).reply.status, Status::kNotAdmitted);
  EXPECT_EQ(ledger.decide({.worker = 3, .incarnation = kSecond, .seq = 1}).reply.status,
            Status::kNotAdmitted);
}

TEST(PushLedger, AWorkerThatRestartsBeginsAnewAndItsGhostIsLockedOut) {
  PushLedger ledger = with_worker();
  apply(ledger, {.incarnation = kFirst, .seq = 1});
  const auto admission = ledger.admit(0, kSecond, 1);
  EXPECT_TRUE(admission.admitted);
  EXPECT_EQ(admission.last_seq, 0u);
  EXPECT_EQ(admission.lost, 0u);
  apply(ledger, {.incarnation = kSecond, .seq = 1});
  EXPECT_EQ(ledger.decide({.incarnation = kFirst, .seq = 2}).reply.status, Status::kNotAdmitted);
  EXPECT_FALSE(ledger.admit(0, kFirst, 2).admitted);
  EXPECT_EQ(ledger.last_seq(0), 1u) << "a ghost's hello changes nothing";
}

TEST(PushLedger, CountsWhatASnapshotHasLost) {
  PushLedger ledger = with_worker();
  for (std::uint64_t seq = 1; seq <= 3; ++seq) apply(ledger, {.incarnation = kFirst, .seq = seq});
  PushLedger later = PushLedger::from_bytes(ledger.to_bytes());
  EXPECT_EQ(later.durable_seq(0), 3u);
  const auto replaying = later.admit(0, kFirst, 2);  // it has kept 2 and all after it
  EXPECT_EQ(replaying.lost, 0u);
  EXPECT_EQ(replaying.last_seq, 3u);
  const auto forgetful = later.admit(0, kFirst, 8);
  EXPECT_EQ(forgetful.lost, 4u);  // 4 to 7
  apply(later, {.incarnation = kFirst, .seq = 8});
  EXPECT_EQ(later.admit(1, kSecond, 5).lost, 4u) << "a worker that came after the snapshot";
}

TEST(PushLedger, AClosureIsAppliedOnceWhoeverRunsIt) {
  PushLedger ledger = with_worker();
  ledger.admit(1, kFirst, 1);
  const auto push = [](int worker, std::uint64_t seq, std::uint64_t closure, std::uint32_t index = 0) {
    return PushId{
        .worker = worker, .incarnation = kFirst, .seq = seq, .closure = closure, .closure_push = index};
  };
  apply(ledger, push(0, 1, 7));
  apply(ledger, push(0, 2, 7, 1));
  ASSERT_EQ(ledger.decide(push(1, 1, 7)).verdict, Verdict::kSkip);
  ledger.record(push(1, 1, 7), {.status = Status::kSuppressed, .version = 1});
  ASSERT_EQ(ledger.decide(push(1, 2, 7, 1)).verdict, Verdict::kSkip);
  ledger.record(push(1, 2, 7, 1), {.status = Status::kSuppressed, .version = 1});
  apply(ledger, push(1, 3, 7, 2));  // the first one did not get that far
  apply(ledger, push(1, 4, 6));
  EXPECT_EQ(ledger.decide(push(1, 1, 7)).reply.status, Status::kSuppressed);
  ledger.record(push(0, 3, 8), {.status = Status::kRejected, .version = 1});
  EXPECT_EQ(ledger.decide(push(1, 5, 8)).verdict, Verdict::kApply) << "a rejected one is not applied";
  ledger.settle_closures_below(20);
  EXPECT_EQ(ledger.decide(push(1, 5, 19)).verdict, Verdict::kSkip);
  EXPECT_EQ(ledger.decide(push(1, 5, 19, 9)).verdict, Verdict::kSkip) << "also one that was never seen";
  EXPECT_EQ(ledger.decide(push(1, 5, 20)).verdict, Verdict::kApply);
}

TEST(PushLedger, WhatIsDurableIsWhatTheSnapshotHeld) {
  PushLedger ledger = with_worker();
  apply(ledger, {.incarnation = kFirst, .seq = 1});
  const auto marks = ledger.marks();
  apply(ledger, {.incarnation = kFirst, .seq = 2});
  EXPECT_EQ(ledger.durable_seq(0), 0u);
  ledger.set_durable(marks);
  EXPECT_EQ(ledger.durable_seq(0), 1u);
  const auto later = ledger.marks();
  ledger.admit(0, kSecond, 1);
  ledger.set_durable(later);
  EXPECT_EQ(ledger.durable_seq(0), 0u) << "of another process";
}

TEST(PushLedger, AnyDamageOfItsBytesIsFound) {
  PushLedger ledger = with_worker();
  ledger.admit(4, kFirst, 9);
  ledger.admit(4, kSecond, 1);
  apply(ledger, {.incarnation = kFirst, .seq = 1, .closure = 3}, 77);
  apply(ledger, {.incarnation = kFirst, .seq = 2, .closure = 3, .closure_push = 1}, 78);
  const std::string bytes = ledger.to_bytes();
  EXPECT_EQ(PushLedger::from_bytes(bytes).to_bytes(), bytes);
  EXPECT_EQ(PushLedger::from_bytes(bytes).decide({.incarnation = kFirst, .seq = 1}).reply.version, 77u);
  for (std::size_t i = 0; i < bytes.size() * 8; ++i) {
    std::string damaged = bytes;
    damaged[i / 8] ^= static_cast<char>(1 << i % 8);
    EXPECT_THROW(PushLedger::from_bytes(damaged), DataLoss) << i;
  }
  for (std::size_t length = 0; length < bytes.size(); ++length) {
    EXPECT_THROW(PushLedger::from_bytes(bytes.substr(0, length)), DataLoss);
  }
}

// With the right checksum: the checks behind it.
TEST(PushLedger, RefusesBytesThatNoLedgerWrites) {
  PushLedger ledger = with_worker(5);
  apply(ledger, {.worker = 5, .incarnation = kFirst, .seq = 1, .closure = 3});
  const std::string bytes = ledger.to_bytes();
  const auto refused = [&](std::size_t at, std::uint32_t value) {
    std::string changed = bytes.substr(0, bytes.size() - 4);
    std::memcpy(changed.data() + at, &value, sizeof value);
    const std::uint32_t crc = crc32c(changed.data(), changed.size());
    changed.append(reinterpret_cast<const char*>(&crc), sizeof crc);
    return message_of<DataLoss>([&] { PushLedger::from_bytes(changed); });
  };
  const std::string begin = "the push ledger of a shard: ";
  EXPECT_EQ(refused(0, 0), begin + "it is of another format");
  EXPECT_EQ(refused(4, 60000), begin + "it ends too early");
  EXPECT_EQ(refused(4, 0xffffffff), begin + "a list has too many entries");
  EXPECT_EQ(refused(8, 0xffffffff), begin + "a worker's number is wrong");
  EXPECT_EQ(refused(28, 0), begin + "a worker has more replies than pushes");
  EXPECT_EQ(refused(32, 0xffffffff), begin + "a worker has too many pushes");
  EXPECT_EQ(refused(36, 5), begin + "a list has too many entries");
  EXPECT_EQ(refused(40, 200), begin + "a reply is none");
  EXPECT_EQ(refused(53, 0), begin + "its closures are no set");
}

TEST(ClosureSet, IsASetWhateverTheOrder) {
  for (std::uint64_t seed = 0; seed < 200; ++seed) {
    ClosureSet closures;
    std::set<std::uint64_t> model;
    std::uint64_t floor = 1;
    for (std::uint64_t i = 0; i < 200; ++i) {
      const std::uint64_t bits = seed_of_stream(seed, i);
      const std::uint64_t id = 1 + bits % 120;
      if (bits >> 60 == 0) {
        floor = std::max(floor, id / 4);
        closures.settle_below(id / 4);
      } else {
        closures.insert(id);
        model.insert(id);
      }
      std::uint64_t last = closures.settled_below();
      for (const auto& [begin, end] : closures.ranges()) {
        ASSERT_GT(begin, last);
        ASSERT_GT(end, begin);
        last = end;
      }
    }
    for (std::uint64_t id = 1; id <= 130; ++id) {
      ASSERT_EQ(closures.contains(id), id < floor || model.contains(id)) << seed << " " << id;
    }
    ClosureSet read;
    ASSERT_TRUE(read.restore(closures.settled_below(), closures.ranges()));
    ASSERT_EQ(read, closures);
  }
}

TEST(ClosureSet, StaysSmallHoweverManyHolesThereAre) {
  ClosureSet closures;
  for (std::uint64_t id = 2; id < 100'000; id += 2) closures.insert(id);
  EXPECT_LE(closures.ranges().size(), ClosureSet::kMostRanges);
  EXPECT_FALSE(closures.contains(99'997)) << "recent holes are known";
  EXPECT_TRUE(closures.contains(99'996));
  EXPECT_TRUE(closures.contains(3)) << "an old hole counts as done: never twice";
}

TEST(ClosureSet, RestoresOnlySets) {
  ClosureSet closures;
  EXPECT_FALSE(closures.restore(0, {}));
  EXPECT_FALSE(closures.restore(5, {{5, 6}}));
  EXPECT_FALSE(closures.restore(5, {{7, 7}}));
  EXPECT_FALSE(closures.restore(5, {{7, 9}, {9, 10}}));
  EXPECT_TRUE(closures.restore(5, {{7, 9}, {10, 12}}));
}

}  // namespace
}  // namespace tandem::internal::ps
