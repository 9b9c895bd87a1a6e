#include "ps/plan.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>
#include <set>

#include "base/random.h"
#include "support/errors.h"
#include "tandem/error.h"

namespace tandem::internal::ps {
namespace {

using testing_support::message_of;

PlanVariable variable(std::string name, std::vector<std::int64_t> shape, std::string dtype = "F32") {
  return {.name = std::move(name), .dtype = std::move(dtype), .shape = std::move(shape)};
}

class Random {
 public:
  explicit Random(std::uint64_t seed) : state_(seed_of_stream(seed, 7)) {}
  std::uint64_t below(std::uint64_t n) { return mix(state_ += kCounterStep) % n; }

 private:
  std::uint64_t state_;
};

std::vector<PlanVariable> some_model(Random& random) {
  constexpr std::array kDtypes{"F32", "F64", "BF16", "F16"};
  std::vector<PlanVariable> model;
  const std::uint64_t count = random.below(20);
  for (std::uint64_t i = 0; i < count; ++i) {
    PlanVariable one = variable("layer" + std::to_string(i) + ".weight", {}, kDtypes[random.below(4)]);
    for (std::uint64_t axes = random.below(4); axes > 0; --axes) {
      one.shape.push_back(static_cast<std::int64_t>(random.below(60)));
    }
    one.option_group = static_cast<int>(random.below(2));
    model.push_back(one);
  }
  return model;
}

Partitioner some_partitioner(Random& random) {
  switch (random.below(4)) {
    case 0:
      return {};
    case 1:
      return FixedShardsPartitioner(1 + static_cast<std::int64_t>(random.below(9)));
    case 2:
      return MinSizePartitioner(1 + static_cast<std::int64_t>(random.below(4000)),
                                1 + static_cast<std::int64_t>(random.below(9)));
    default:
      return MaxSizePartitioner(1 + static_cast<std::int64_t>(random.below(4000)));
  }
}

TEST(SplitRows, GivesTheFirstPartsOneMore) {
  EXPECT_EQ(split_rows(13, 5), (std::vector<std::int64_t>{0, 3, 6, 9, 11, 13}));
  EXPECT_EQ(split_rows(4, 2), (std::vector<std::int64_t>{0, 2, 4}));
  EXPECT_EQ(split_rows(0, 1), (std::vector<std::int64_t>{0, 0}));
}

TEST(Plan, CutsPlacesAndNamesAsTensorFlowDoes) {
  const PlacementPlan plan({variable("w", {13, 2}), variable("b", {2}), variable("step", {}, "I64")},
                           {.num_ps = 3, .partitioner = MaxSizePartitioner(24)});
  ASSERT_EQ(plan.shards().size(), 7u);
  EXPECT_EQ(plan.shard_name(0), "w/part_0");
  EXPECT_EQ(plan.shard_name(4), "w/part_4");
  EXPECT_EQ(plan.shard_name(5), "b");
  EXPECT_EQ(plan.shard_shape(0), (std::vector<std::int64_t>{3, 2}));
  EXPECT_EQ(plan.shard_shape(4), (std::vector<std::int64_t>{2, 2}));
  EXPECT_EQ(plan.shard_shape(6), (std::vector<std::int64_t>{}));
  EXPECT_EQ(
      plan.shards()[4],
      (Shard{.variable = 0, .part = 4, .parts = 5, .row_begin = 11, .row_end = 13, .ps = 1, .bytes = 16}));
  EXPECT_EQ(plan.shards_on(0), (std::vector<std::size_t>{0, 3, 6}));
  EXPECT_EQ(plan.bytes_on(0), 24u + 16u + 8u);
  EXPECT_EQ(plan.bytes(), 13u * 8 + 8 + 8);
  EXPECT_EQ(plan.shards_of(0).size(), 5u);
  EXPECT_EQ(plan.shards_of(2).size(), 1u);
}

TEST(Plan, PrintsATableAndSaysWhoGetsNothing) {
  const PlacementPlan plan({variable("w", {256, 256}), variable("b", {256})},
                           {.num_ps = 4, .partitioner = MinSizePartitioner(128 << 10, 2)});
  EXPECT_EQ(plan.idle_ps(), (std::vector<int>{3}));
  EXPECT_EQ(plan.table(),
            "PS   SHARDS  PARTS   BYTES       SIZE    SHARE\n"
            "0         1      1  131072  128.0 KiB   49.8 %\n"
            "1         1      1  131072  128.0 KiB   49.8 %\n"
            "2         1      0    1024    1.0 KiB    0.4 %\n"
            "3         0      0       0        0 B    0.0 %\n"
            "all       3      2  263168  257.0 KiB  100.0 %\n"
            "ps 3 gets nothing: 3 shards for 4 ps tasks\n");
}

TEST(Plan, HasEveryRowOfEveryVariableOnceForAnyModel) {
  for (std::uint64_t seed = 0; seed < 3000; ++seed) {
    SCOPED_TRACE(seed);
    Random random(seed);
    const auto model = some_model(random);
    const int num_ps = 1 + static_cast<int>(random.below(6));
    const bool greedy = random.below(2) == 1;
    const PlanOptions options{
        .num_ps = num_ps,
        .ps_strategy = greedy ? PsStrategy(GreedyLoadBalancing(num_ps)) : PsStrategy(RoundRobin(num_ps)),
        .partitioner = some_partitioner(random)};
    const PlacementPlan plan(model, options);
    std::vector<std::set<std::int64_t>> rows(model.size());
    std::vector<std::uint64_t> loads(static_cast<std::size_t>(num_ps));
    std::uint64_t largest = 0;
    for (std::size_t i = 0; i < plan.shards().size(); ++i) {
      const Shard& shard = plan.shards()[i];
      for (std::int64_t row = shard.row_begin; row < shard.row_end; ++row) {
        ASSERT_TRUE(rows[static_cast<std::size_t>(shard.variable)].insert(row).second);
      }
      loads[static_cast<std::size_t>(shard.ps)] += shard.bytes;
      largest = std::max(largest, shard.bytes);
    }
    for (std::size_t i = 0; i < model.size(); ++i) {
      ASSERT_EQ(rows[i].size(), static_cast<std::size_t>(model[i].rows()));
      const auto parts = plan.shards_of(i);
      const auto [least, most] = std::ranges::minmax(parts, {}, &Shard::rows);
      ASSERT_LE(most.rows() - least.rows(), 1);
      ASSERT_GE(parts.front().rows(), parts.back().rows());
    }
    for (int ps = 0; ps < num_ps; ++ps) ASSERT_EQ(loads[static_cast<std::size_t>(ps)], plan.bytes_on(ps));
    if (greedy) {
      ASSERT_LE(std::ranges::max(loads) * static_cast<std::uint64_t>(num_ps),
                plan.bytes() + largest * static_cast<std::uint64_t>(num_ps - 1));
    }
    const PlacementPlan again(model, options);  // on another task
    ASSERT_EQ(again.digest(), plan.digest());
    const PlacementPlan read = PlacementPlan::from_json(plan.to_json());
    ASSERT_EQ(read, plan);
    ASSERT_EQ(read.canonical(), plan.canonical());
  }
}

TEST(Plan, TheDigestTellsEveryDifference) {
  const auto digest = [](std::vector<PlanVariable> model, PlanOptions options) {
    return PlacementPlan(std::move(model), options).digest();
  };
  const PlanVariable w = variable("w", {6, 2});
  const PlanVariable b = variable("b", {6, 2});
  PlanVariable in_group = w;
  in_group.option_group = 1;
  const std::set<std::string> digests{
      digest({}, {.num_ps = 2}),
      digest({w, b}, {.num_ps = 2}),
      digest({b, w}, {.num_ps = 2}),
      digest({w, b}, {.num_ps = 3}),
      digest({w}, {.num_ps = 2}),
      digest({in_group, b}, {.num_ps = 2}),
      digest({variable("w", {6, 2}, "F64"), b}, {.num_ps = 2}),
      digest({variable("w", {12}), b}, {.num_ps = 2}),
      digest({variable("w", {2, 6}), b}, {.num_ps = 2}),
      digest({w, b}, {.num_ps = 2, .partitioner = FixedShardsPartitioner(2)}),
      digest({w, b}, {.num_ps = 2, .ps_strategy = [](const VariableToPlace&) { return 1; }}),
  };
  EXPECT_EQ(digests.size(), 11u);
  EXPECT_EQ(digest({w}, {.num_ps = 1}).size(), 64u);
}

TEST(Plan, ATableTravelsWithHowItBegins) {
  const auto planned = [](std::optional<NormalValues> first, std::vector<std::int64_t> shape = {6, 2}) {
    PlanVariable table = variable("t", std::move(shape));
    table.first_values = first;
    return PlacementPlan({variable("w", {3}), table},
                         {.num_ps = 2, .partitioner = FixedShardsPartitioner(2)});
  };
  const PlacementPlan plan = planned(NormalValues{.stddev = 0.1, .seed = ~std::uint64_t{0}});
  EXPECT_EQ(PlacementPlan::from_json(plan.to_json()), plan);
  EXPECT_FALSE(plan.is_table(1));
  EXPECT_TRUE(plan.is_table(2));
  EXPECT_TRUE(plan.is_table(3));
  // The seed is of no matter to those who come later; all else is.
  EXPECT_EQ(planned(NormalValues{.stddev = 0.1, .seed = 3}).digest(), plan.digest());
  EXPECT_NE(planned(NormalValues{.stddev = 0.2}).digest(), plan.digest());
  EXPECT_NE(planned({}).digest(), plan.digest());

  EXPECT_EQ(message_of<InvalidArgument>([&] { planned(NormalValues{.stddev = -1}); }),
            "variable \"t\" begins with a stddev of -1: expected 0 or more");
  EXPECT_EQ(message_of<InvalidArgument>([&] { planned(NormalValues{}, {6}); }),
            "variable \"t\" is a table of shape [6]: expected rows and columns");
  auto json = nlohmann::json::parse(plan.to_json());
  json["variables"][1]["first_values"]["seed"] = -1;
  EXPECT_EQ(message_of<InvalidArgument>([&] { PlacementPlan::from_json(json.dump()); }),
            "placement plan: \"seed\" of the first values of variable \"t\" is not a whole number from 0");
  json["variables"][1]["first_values"] = 7;
  EXPECT_EQ(message_of<InvalidArgument>([&] { PlacementPlan::from_json(json.dump()); }),
            "placement plan: the first values of variable \"t\" is not an object");
}

TEST(Plan, SaysWhereTwoPlansDiffer) {
  const PlacementPlan a({variable("w", {6})}, {.num_ps = 2});
  const PlacementPlan b({variable("w", {7})}, {.num_ps = 2});
  EXPECT_EQ(
      plan_difference(a.canonical(), "worker:0", b.canonical(), "worker:1"),
      "worker:0 has \"shard 0 ps 0 rows 0 to 6 of F32 [6] group 0 part 0 of 1 of variable w\", worker:1 has "
      "\"shard 0 ps 0 rows 0 to 7 of F32 [7] group 0 part 0 of 1 of variable w\"");
  const PlacementPlan c({variable("w", {6}), variable("b", {6})}, {.num_ps = 2});
  EXPECT_NE(
      plan_difference(a.canonical(), "worker:0", c.canonical(), "worker:1").find("worker:0 has nothing more"),
      std::string::npos);
  EXPECT_EQ(plan_difference(a.canonical(), "worker:0", a.canonical(), "worker:1"),
            "worker:0 and worker:1 have the same plan");
  EXPECT_EQ(plan_difference("a\x01\xff", "x", "b", "y").find_first_of("\x01\xff\n"), std::string::npos);
}

TEST(Plan, RefusesWhatIsWrongInOneLine) {
  const auto refused = [](std::vector<PlanVariable> model, const PlanOptions& options = {}) {
    return message_of<InvalidArgument>([&] { PlacementPlan(std::move(model), options); });
  };
  EXPECT_EQ(refused({}, {.num_ps = 0}), "a plan for 0 ps tasks: expected 1 to 65536");
  EXPECT_EQ(refused({variable("", {1})}), "variable \"\" has no name");
  EXPECT_EQ(refused({variable("a\nb", {1})}),
            "variable \"a\\x0ab\" has a name with characters that cannot be printed");
  EXPECT_EQ(refused({variable("w", {1}), variable("w", {2})}), "two variables or parts have the name \"w\"");
  EXPECT_EQ(
      refused({variable("w", {4}), variable("w/part_1", {2})}, {.partitioner = FixedShardsPartitioner(2)}),
      "two variables or parts have the name \"w/part_1\"");
  EXPECT_EQ(refused({variable("w", {1}, "float")}), "variable \"w\" has the unknown dtype \"float\"");
  EXPECT_EQ(refused({variable("w", {-1})}),
            "variable \"w\" cannot have the shape [-1]: expected sizes from 0 and at most 2^40 elements");
  EXPECT_EQ(
      refused({variable("w", {1 << 30, 1 << 30, 1 << 30})}).find("variable \"w\" cannot have the shape"), 0u);
  EXPECT_EQ(refused({variable("w", {4, 4})}, {.partitioner =
                                                  [](const auto&, int) {
                                                    return std::vector<std::int64_t>{1, 2};
                                                  }}),
            "the partitioner cuts variable \"w\" of shape [4, 4] into [1, 2]: expected 1 to 4 parts along "
            "the first "
            "axis and 1 along the others");
  EXPECT_EQ(refused({variable("w", {1})}, {.ps_strategy = [](const VariableToPlace&) { return -1; }}),
            "ps_strategy puts \"w\" on ps task -1: expected a number from 0 to 0");
  EXPECT_EQ(refused({variable("w", {1 << 20})}, {.partitioner = MaxSizePartitioner(4)}),
            "variable \"w\" in 1048576 parts: a plan has at most 262144 shards");
}

TEST(Plan, ReadsRowsThatAreNotCutEvenly) {
  const PlacementPlan plan = PlacementPlan::from_json(
      R"({"format":"tandem-ps-plan-1","num_ps":2,"variables":[{"name":"w","dtype":"F32","shape":[5,2],)"
      R"("option_group":1,"parts":[{"rows":[0,1],"ps":1},{"rows":[1,5],"ps":1}]}]})");
  EXPECT_EQ(plan.shards()[1].bytes, 32u);
  EXPECT_EQ(plan.idle_ps(), std::vector<int>{0});
}

TEST(Plan, RefusesJsonThatIsNoPlan) {
  using Json = nlohmann::json;
  const Json good = Json::parse(PlacementPlan({variable("w", {5, 2}), variable("b", {2})},
                                              {.num_ps = 2, .partitioner = FixedShardsPartitioner(2)})
                                    .to_json());
  const auto refused = [&](const std::string& pointer, const Json& value) {
    Json json = good;
    json[Json::json_pointer(pointer)] = value;
    const auto line = message_of<InvalidArgument>([&] { PlacementPlan::from_json(json.dump()); });
    EXPECT_EQ(line.find('\n'), std::string::npos);
    return line;
  };
  const std::string part = "/variables/0/parts/0";
  EXPECT_EQ(refused("/format", "x"), "placement plan: \"format\" of the plan is not \"tandem-ps-plan-1\"");
  EXPECT_EQ(refused("/num_ps", 0), "a plan for 0 ps tasks: expected 1 to 65536");
  EXPECT_EQ(refused("/num_ps", -1),
            "placement plan: \"num_ps\" of the plan is not a whole number from 0 to 65536");
  EXPECT_EQ(refused("/variables", 1),
            "placement plan: \"variables\" of the plan is not an array of at most 262144 "
            "entries");
  EXPECT_EQ(refused("/variables/0/shape/0", 6), "placement plan: variable \"w\" has 5 of its 6 rows");
  EXPECT_EQ(refused("/variables/0/dtype", "F31"), "variable \"w\" has the unknown dtype \"F31\"");
  EXPECT_EQ(refused("/variables/0/name", "b/part_0"), "two variables or parts have the name \"b/part_0\"");
  EXPECT_EQ(refused("/variables/0/parts", Json::array()),
            "placement plan: variable \"w\" has 0 of its 5 rows");
  EXPECT_EQ(refused(part + "/ps", 2),
            "placement plan: \"ps\" of variable \"w\" is not a whole number from 0 to 1");
  EXPECT_EQ(refused(part + "/rows/0", 1),
            "placement plan: variable \"w\" has rows 1 to 3 where those from 0 on are due");
  EXPECT_EQ(refused(part + "/rows/1", 2),
            "placement plan: variable \"w\" has rows 3 to 5 where those from 2 on are due");
  EXPECT_EQ(refused(part + "/rows/1", 0),
            "placement plan: variable \"w\" has rows 0 to 0 where those from 0 on are due");
  EXPECT_EQ(refused(part + "/rows/1", 9),
            "placement plan: \"rows\" of variable \"w\" is not a whole number from 0 to 5");
  EXPECT_EQ(refused(part + "/rows", Json::array({1})),
            "placement plan: \"rows\" of variable \"w\" is not a pair");
  EXPECT_EQ(refused(part, 7), "placement plan: variable \"w\" is not an object");
  const auto refused_text = [](const std::string& text) {
    return message_of<InvalidArgument>([&] { PlacementPlan::from_json(text); });
  };
  EXPECT_EQ(refused_text("{"), "placement plan: not JSON at byte 2");
  EXPECT_EQ(refused_text("[]"), "placement plan: the plan is not an object");
  EXPECT_EQ(refused_text(R"({"format":1,"format":2})"), "placement plan: the key \"format\" is there twice");
  EXPECT_EQ(refused_text(std::string(100, '[')), "placement plan: nested more than 6 deep");
}

}  // namespace
}  // namespace tandem::internal::ps
