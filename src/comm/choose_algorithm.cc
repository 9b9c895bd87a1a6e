#include "comm/choose_algorithm.h"

#include <fmt/format.h>

#include <limits>
#include <vector>

namespace tandem::internal {
namespace {

constexpr std::size_t kMiB = 1 << 20;

struct Row {
  std::size_t up_to;  // bytes
  AllReduceAlgorithm algorithm;
};

// Measured by bench/collectives on one machine. Small sums cost messages, of which bcube needs the fewest;
// large ones cost memory traffic, where the ring's order is the kindest to caches; in between its smaller
// chunks win, unless there are but two tasks. Between machines a message costs more, so bcube reaches
// further.
std::vector<Row> table(int tasks, bool several_hosts) {
  std::vector<Row> rows{{(several_hosts ? 4 : 2) * kMiB, AllReduceAlgorithm::kBcube}};
  if (tasks > 2) rows.push_back({8 * kMiB, AllReduceAlgorithm::kRingChunked});
  rows.push_back({std::numeric_limits<std::size_t>::max(), AllReduceAlgorithm::kRing});
  return rows;
}

}  // namespace

const char* algorithm_name(AllReduceAlgorithm algorithm) {
  switch (algorithm) {
    case AllReduceAlgorithm::kAuto:
      return "auto";
    case AllReduceAlgorithm::kRing:
      return "ring";
    case AllReduceAlgorithm::kRingChunked:
      return "ring_chunked";
    case AllReduceAlgorithm::kHalvingDoubling:
      return "halving_doubling";
    case AllReduceAlgorithm::kBcube:
      return "bcube";
  }
  return "?";
}

AllReduceAlgorithm choose_algorithm(std::size_t bytes, int tasks, bool several_hosts) {
  for (const Row& row : table(tasks, several_hosts)) {
    if (bytes <= row.up_to) return row.algorithm;
  }
  return AllReduceAlgorithm::kRing;
}

std::string describe_choice(int tasks, bool several_hosts) {
  std::string text;
  for (const Row& row : table(tasks, several_hosts)) {
    if (!text.empty()) text += ", ";
    text += algorithm_name(row.algorithm);
    text += row.up_to == std::numeric_limits<std::size_t>::max()
                ? " above"
                : fmt::format(" up to {} MiB", row.up_to / kMiB);
  }
  return text;
}

}  // namespace tandem::internal
