// What TensorFlow itself answered.
#include <gtest/gtest.h>

#include <vector>

#include "data/image/augment.h"
#include "data/image/resize.h"
#include "support/oracle.h"

namespace tandem::internal {
namespace {

std::vector<float> flat(const nlohmann::json& rows) {
  std::vector<float> values;
  for (const auto& row : rows) {
    for (const auto& value : row) values.push_back(value.get<float>());
  }
  return values;
}

TEST(ImageOracle, ResizesToTheBitAsTensorFlow) {
  int cases = 0;
  for (const auto& entry : testing_support::read_oracle("images")) {
    const int height = static_cast<int>(entry["image"].size());
    const int width = static_cast<int>(entry["image"][0].size());
    const std::vector<float> image = flat(entry["image"]);
    const std::vector<std::uint8_t> bytes(image.begin(), image.end());
    const std::vector<float> expected = flat(entry["resized"]);
    const ResizeOptions options{.height = entry["size"][0], .width = entry["size"][1]};
    std::vector<float> got(expected.size());
    resize(PictureView<float>{image.data(), height, width, 1, width}, options, got);
    EXPECT_EQ(got, expected) << "case " << cases;
    resize(PictureView<std::uint8_t>{bytes.data(), height, width, 1, width}, options, got);
    EXPECT_EQ(got, expected) << "case " << cases;
    ++cases;
  }
  EXPECT_GT(cases, 5);
}

TEST(ImageOracle, StandardizesAsTensorFlow) {
  for (const auto& entry : testing_support::read_oracle("images")) {
    std::vector<float> image = flat(entry["image"]);
    const std::vector<float> expected = flat(entry["standardized"]);
    standardize(image);
    ASSERT_EQ(image.size(), expected.size());
    for (std::size_t i = 0; i < image.size(); ++i) EXPECT_NEAR(image[i], expected[i], 1e-6);
  }
}

}  // namespace
}  // namespace tandem::internal
