#pragma once

#include <string>
#include <vector>

namespace tandem::internal {

// The names in one of Slurm's node lists: "n[01-03,7],gpu[1-2]-ib" is n01, n02, n03, n7, gpu1-ib, gpu2-ib. A
// number keeps as many digits as the first of its range has. Several brackets in one name are allowed: the
// last one turns fastest. Throws InvalidArgument naming the variable, its value and a correct example.
std::vector<std::string> expand_nodes(const std::string& list, const std::string& variable);

// "2(x3),1" is 2, 2, 2, 1. Throws as above.
std::vector<int> expand_tasks_per_node(const std::string& list, const std::string& variable);

}  // namespace tandem::internal
