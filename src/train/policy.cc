#include "tandem/policy.h"

#include <fmt/format.h>

#include "tandem/error.h"

namespace tandem {
namespace {

c10::ScalarType dtype_of_policy(const std::string& name) {
  if (name == "float32") return c10::ScalarType::Float;
  if (name == "mixed_bfloat16") return c10::ScalarType::BFloat16;
  if (name == "mixed_float16") return c10::ScalarType::Half;
  throw InvalidArgument(
      fmt::format("policy \"{}\": expected float32, mixed_bfloat16 or mixed_float16", name));
}

}  // namespace

Policy::Policy(const std::string& name) : name_(name), compute_dtype_(dtype_of_policy(name)) {}

}  // namespace tandem
