#include "train/python_float.h"

#include <fmt/format.h>

#include <cmath>

namespace tandem::internal {

std::string python_float(double value) {
  if (std::isnan(value)) return "nan";  // which has a sign elsewhere
  std::string text = fmt::format("{}", value);
  if (text.find_first_not_of("-0123456789") == std::string::npos) text += ".0";
  return text;
}

}  // namespace tandem::internal
