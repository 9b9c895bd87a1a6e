#pragma once

#include <string>

namespace tandem::internal {

// A number as Python prints it: the fewest digits that read back as the same number, with ".0" if it is
// whole, "nan" and "inf".
std::string python_float(double value);

}  // namespace tandem::internal
