#pragma once

#include <cstdint>

namespace tandem {

// Random numbers for one example, a function of (seed, epoch, index of the example) alone: an augmented
// picture is the same for any number of replicas, workers and map threads, and after a resume.
class ExampleRandom {
 public:
  ExampleRandom(std::uint64_t seed, std::int64_t epoch, std::int64_t index);

  std::uint64_t bits();
  std::int64_t uniform_int(std::int64_t n);  // 0 to n - 1; throws InvalidArgument unless n > 0
  double uniform();                          // [0, 1)

 private:
  std::uint64_t state_;
};

}  // namespace tandem
