#pragma once

#include "ps/plan.h"

namespace tandem::testing_support {

inline constexpr std::size_t kCountingElements = 5000;

// Four variables of one size, so that every shard is one.
inline internal::ps::PlacementPlan counting_plan(int num_ps) {
  std::vector<internal::ps::PlanVariable> variables;
  for (const char* name : {"a", "b", "c", "d"}) {
    variables.push_back({name, "F32", {static_cast<std::int64_t>(kCountingElements)}});
  }
  return {variables, {.num_ps = num_ps}};
}

}  // namespace tandem::testing_support
