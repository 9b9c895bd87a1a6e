#include "comm/choose_algorithm.h"

#include <fmt/format.h>

namespace tandem::internal {
namespace {

constexpr std::size_t kKiB = 1024;

// Up to here halving-doubling, which needs fewer messages, is the faster one; above it the ring, which moves
// the same bytes in an order that caches like better. Between machines a message costs more, so its reach is
// wider.
std::size_t crossover(int tasks, bool several_hosts) {
  if (tasks <= 2) return 0;  // the ring of two is one exchange each way
  return (several_hosts ? 1024 : 256) * kKiB;
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
  return bytes <= crossover(tasks, several_hosts) ? AllReduceAlgorithm::kHalvingDoubling
                                                  : AllReduceAlgorithm::kRing;
}

std::string describe_choice(int tasks, bool several_hosts) {
  const std::size_t bytes = crossover(tasks, several_hosts);
  if (bytes == 0) return "ring";
  return fmt::format("halving_doubling up to {} KiB, ring above", bytes / kKiB);
}

}  // namespace tandem::internal
