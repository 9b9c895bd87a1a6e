#include "support/generated_pets.h"

#include <fmt/format.h>

#include <array>
#include <cmath>
#include <filesystem>
#include <vector>

#include "base/files.h"
#include "summary/png.h"
#include "tandem/dataset.h"

namespace tandem::examples {
namespace {

using Color = std::array<std::uint8_t, 3>;

double between(ExampleRandom& random, double low, double high) {
  return low + (high - low) * random.uniform();
}

Color color(ExampleRandom& random, int low, int high) {
  Color drawn;
  for (auto& value : drawn) value = static_cast<std::uint8_t>(low + random.uniform_int(high - low));
  return drawn;
}

// Places are relative to the head: its middle is 0, its edge at distance 1, y grows downwards.
bool in_head(double x, double y) {
  return x * x + y * y < 1;
}
bool in_pointed_ear(double x, double y) {
  const double across = std::abs(x) - 0.55;
  return y > -1.7 && y < -0.6 && std::abs(across) < 0.4 * (y + 1.7) / 1.1;
}
bool in_hanging_ear(double x, double y) {
  const double across = (std::abs(x) - 1.05) / 0.35;
  const double down = (y - 0.15) / 0.75;
  return across * across + down * down < 1;
}
bool in_eye(double x, double y) {
  const double across = std::abs(x) - 0.4;
  return across * across + (y + 0.2) * (y + 0.2) < 0.03;
}

std::string draw(bool cat, int side, ExampleRandom& random) {
  const Color background = color(random, 90, 255);
  const Color fur = color(random, 20, 200);
  const Color eyes = color(random, 0, 60);
  const double radius = side * between(random, 0.18, 0.28);
  const double middle_x = side * between(random, 0.4, 0.6);
  const double middle_y = side * between(random, 0.48, 0.6);
  std::vector<std::uint8_t> pixels;
  for (int row = 0; row < side; ++row) {
    for (int column = 0; column < side; ++column) {
      const double x = (column - middle_x) / radius;
      const double y = (row - middle_y) / radius;
      const bool ear = cat ? in_pointed_ear(x, y) : in_hanging_ear(x, y);
      const Color& here = in_eye(x, y) ? eyes : ear || in_head(x, y) ? fur : background;
      const std::int64_t noise = random.uniform_int(41) - 20;
      for (const std::uint8_t value : here) {
        pixels.push_back(static_cast<std::uint8_t>(std::clamp<std::int64_t>(value + noise, 0, 255)));
      }
    }
  }
  return internal::encode_png({.pixels = pixels.data(), .height = side, .width = side, .channels = 3});
}

}  // namespace

void write_generated_pets(const std::string& folder, const GeneratedPetsOptions& options) {
  for (const bool cat : {true, false}) {
    const auto of_class = std::filesystem::path(folder) / (cat ? "cats" : "dogs");
    std::filesystem::create_directories(of_class);
    for (int i = 0; i < options.per_class; ++i) {
      ExampleRandom random(options.seed, cat, i);
      internal::create_file(of_class / fmt::format("{:04}.png", i), draw(cat, options.side, random), 0644);
    }
  }
}

}  // namespace tandem::examples
