#pragma once

#include <cstddef>
#include <string>

#include "tandem/communicator.h"

namespace tandem::internal {

const char* algorithm_name(AllReduceAlgorithm algorithm);  // "halving_doubling"

// What AllReduceAlgorithm::kAuto means for so many bytes between so many tasks. A fixed table, not a
// measurement at start: from three tasks on another algorithm rounds differently, and two runs shall be equal
// to the bit. bench/collectives measures what the table says.
AllReduceAlgorithm choose_algorithm(std::size_t bytes, int tasks, bool several_hosts);

// The rows of the table for so many tasks, for the log: "bcube up to 2 MiB, ring above".
std::string describe_choice(int tasks, bool several_hosts);

}  // namespace tandem::internal
