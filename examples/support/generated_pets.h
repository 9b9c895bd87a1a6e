#pragma once

#include <cstdint>
#include <string>

namespace tandem::examples {

struct GeneratedPetsOptions {
  int per_class = 200;
  int side = 96;  // pixels
  std::uint64_t seed = 0;
};

// Draws heads on noise into `folder`/cats and `folder`/dogs, as PNG files: cats have pointed ears on top,
// dogs hanging ones at the sides. Where, how large and in which colours is random, so a network has something
// to learn.
void write_generated_pets(const std::string& folder, const GeneratedPetsOptions& options = {});

}  // namespace tandem::examples
