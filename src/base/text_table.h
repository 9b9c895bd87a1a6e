#pragma once

#include <string>
#include <vector>

namespace tandem::internal {

// Lines with their cells under each other, two blanks apart; the first row is the headline. Text is easier to
// compare from the left, numbers from the right. Counts characters, not bytes: names may have other scripts.
std::string align_columns(const std::vector<std::vector<std::string>>& rows,
                          const std::vector<bool>& right_aligned);

}  // namespace tandem::internal
