#include "data/image/augment.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <set>
#include <vector>

#include "base/random.h"
#include "support/errors.h"
#include "tandem/error.h"

namespace tandem::internal {
namespace {

using testing_support::message_of;

// A stream of random numbers that counts them.
struct Stream {
  std::uint64_t state;
  int taken = 0;

  double operator()() {
    ++taken;
    return static_cast<double>(mix(state += kCounterStep) >> 11) * 0x1p-53;
  }
};

// Given numbers, one after the other.
RandomNumbers given(std::vector<double> numbers) {
  return [numbers = std::move(numbers), next = std::size_t{0}]() mutable { return numbers.at(next++); };
}

TEST(Augment, CropsEverywhereInsideAndNowhereElse) {
  Stream stream{1};
  std::set<std::pair<int, int>> places;
  for (int i = 0; i < 500; ++i) {
    const Region region = random_crop(7, 6, 4, 5, std::ref(stream));
    EXPECT_EQ(region.height, 4);
    EXPECT_EQ(region.width, 5);
    places.insert({region.top, region.left});
  }
  EXPECT_EQ(places.size(), 4u * 2);
  EXPECT_EQ(places.begin()->first, 0);
  EXPECT_EQ(places.rbegin()->first, 3);
  EXPECT_EQ(stream.taken, 1000);
  EXPECT_EQ(random_crop(4, 5, 4, 5, std::ref(stream)), (Region{0, 0, 4, 5}));
  EXPECT_EQ(message_of<InvalidArgument>([&] { random_crop(4, 5, 4, 6, std::ref(stream)); }),
            "crop of 6x4 pixels from a picture of 5x4: expected 1x1 up to all of it");
}

TEST(Augment, CropsInTheMiddle) {
  EXPECT_EQ(center_crop(10, 11, 4, 4), (Region{3, 3, 4, 4}));
  EXPECT_THROW(center_crop(3, 11, 4, 4), InvalidArgument);
}

TEST(Augment, CropsOfRandomAreaAndForm) {
  Stream stream{2};
  double smallest = 1;
  double largest = 0;
  for (int i = 0; i < 2000; ++i) {
    const Region region = random_resized_crop(300, 400, std::ref(stream));
    EXPECT_GE(region.top, 0);
    EXPECT_GE(region.left, 0);
    EXPECT_LE(region.top + region.height, 300);
    EXPECT_LE(region.left + region.width, 400);
    const double ratio = static_cast<double>(region.width) / region.height;
    EXPECT_GT(ratio, 0.74);
    EXPECT_LT(ratio, 1.35);
    const double area = region.height * region.width / 120000.0;
    smallest = std::min(smallest, area);
    largest = std::max(largest, area);
  }
  EXPECT_NEAR(smallest, 0.08, 0.01);
  EXPECT_GT(largest, 0.95);
}

TEST(Augment, CropsAsTorchvisionWouldWithTheseNumbers) {
  // Half of the area, as wide as high: the square root of 0.5 * 100 * 100 is 70.7.
  const ResizedCropOptions all{.min_area = 0, .max_area = 1};
  EXPECT_THROW(random_resized_crop(100, 100, given({}), all), InvalidArgument);
  const ResizedCropOptions half{.min_area = 0.5, .max_area = 0.5};
  EXPECT_EQ(random_resized_crop(100, 100, given({0.3, 0.5, 0.0, 0.999}), half), (Region{0, 29, 71, 71}));
}

TEST(Augment, TakesTheMiddleWhenNothingFits) {
  Stream stream{3};
  // All of the area of a long picture is never of the right form.
  const ResizedCropOptions options{.min_area = 1};
  EXPECT_EQ(random_resized_crop(30, 300, std::ref(stream), options), (Region{0, 130, 30, 40}));
  EXPECT_EQ(random_resized_crop(300, 30, std::ref(stream), options), (Region{130, 0, 40, 30}));
  EXPECT_EQ(random_resized_crop(1, 1, std::ref(stream)), (Region{0, 0, 1, 1}));
}

TEST(Augment, ScalesARegionWithThePicture) {
  EXPECT_EQ(scale_region({10, 20, 30, 40}, 100, 200, 50, 100), (Region{5, 10, 15, 20}));
  EXPECT_EQ(scale_region({0, 0, 100, 200}, 100, 200, 13, 25), (Region{0, 0, 13, 25}));
  EXPECT_EQ(scale_region({99, 199, 1, 1}, 100, 200, 13, 25), (Region{12, 24, 1, 1}));
}

TEST(Augment, FlipsHalfOfThem) {
  Stream stream{4};
  int flipped = 0;
  for (int i = 0; i < 10000; ++i) flipped += random_flip(std::ref(stream));
  EXPECT_NEAR(flipped, 5000, 200);
  EXPECT_EQ(stream.taken, 10000);
}

// Two pixels, red and a dark grey.
std::vector<float> two_pixels() {
  return {1.0f, 0.2f, 0.0f, 0.2f, 0.0f, 0.2f};
}

std::vector<float> jittered(const ColorJitterOptions& options, std::vector<double> numbers) {
  std::vector<float> values = two_pixels();
  color_jitter({values, 3}, options, given(std::move(numbers)));
  return values;
}

void expect_near(const std::vector<float>& got, const std::vector<double>& expected) {
  ASSERT_EQ(got.size(), expected.size());
  for (std::size_t i = 0; i < got.size(); ++i) EXPECT_NEAR(got[i], expected[i], 1e-6) << i;
}

TEST(Augment, ChangesBrightnessContrastAndSaturation) {
  // The factor is 1 - value + 2 * value * number.
  expect_near(jittered({.brightness = 0.5}, {1, 0, 0, 0.9, 0.9}), {1, 0.3, 0, 0.3, 0, 0.3});
  const double mean = (0.2989 + 0.2 * 0.9999) / 2;
  const auto half_way = [&](double value) { return mean + (value - mean) / 2; };
  expect_near(jittered({.contrast = 0.5}, {0, 0, 0, 0.9, 0.9}),
              {half_way(1), half_way(0.2), half_way(0), half_way(0.2), half_way(0), half_way(0.2)});
  const double red = 0.2989;
  const double dark = 0.2 * 0.9999;
  expect_near(jittered({.saturation = 1}, {0, 0, 0, 0.9, 0.9}), {red, dark, red, dark, red, dark});
  expect_near(jittered({}, {0, 0.5, 1, 0.9, 0.9}), {1, 0.2, 0, 0.2, 0, 0.2});
}

TEST(Augment, DrawsTheSameNumbersWhateverTheOptions) {
  for (const ColorJitterOptions& options :
       {ColorJitterOptions{}, ColorJitterOptions{.brightness = 1, .contrast = 1, .saturation = 1}}) {
    Stream stream{5};
    std::vector<float> values = two_pixels();
    color_jitter({values, 3}, options, std::ref(stream));
    EXPECT_EQ(stream.taken, 5);
    for (const float value : values) {
      EXPECT_GE(value, 0);
      EXPECT_LE(value, 1);
    }
  }
}

TEST(Augment, GivesTheSamePictureForTheSameNumbers) {
  const auto once = [] {
    Stream stream{6};
    std::vector<float> values = two_pixels();
    color_jitter({values, 3}, {.brightness = 0.4, .contrast = 0.4, .saturation = 0.4}, std::ref(stream));
    return values;
  };
  EXPECT_EQ(once(), once());
}

TEST(Augment, JittersInEveryOrder) {
  std::set<std::vector<float>> results;
  for (const double third : {0.0, 0.4, 0.9}) {
    for (const double second : {0.0, 0.9}) {
      results.insert(
          jittered({.brightness = 0.5, .contrast = 0.5, .saturation = 0.5}, {0.9, 0.1, 0.2, third, second}));
    }
  }
  EXPECT_GE(results.size(), 4u);  // some orders come to the same
}

TEST(Augment, RefusesJitterThatMakesNoSense) {
  EXPECT_EQ(message_of<InvalidArgument>([] {
              jittered({.contrast = -1}, {0, 0, 0, 0, 0});
            }),
            "color jitter with contrast -1: expected 0 or more");
  std::vector<float> four(4);
  EXPECT_THROW(color_jitter({four, 4}, {}, given({0, 0, 0, 0, 0})), InvalidArgument);
  std::vector<float> grey{0.5f, 0.1f};
  EXPECT_NO_THROW(color_jitter({grey, 1}, {.saturation = 1}, given({0, 0, 0, 0, 0})));
  EXPECT_EQ(grey, (std::vector<float>{0.5f, 0.1f}));
}

TEST(Augment, Normalizes) {
  std::vector<float> values{1, 2, 3, 4};
  const std::vector<float> mean{1, 3};
  const std::vector<float> deviation{0.5f, 2};
  normalize({values, 2}, mean, deviation);
  EXPECT_EQ(values, (std::vector<float>{0, 2, 0, 0.5f}));
  EXPECT_THROW(normalize({values, 4}, mean, deviation), InvalidArgument);
  const std::vector<float> zero{1, 0};
  EXPECT_THROW(normalize({values, 2}, mean, zero), InvalidArgument);
}

TEST(Augment, StandardizesAPictureOfOneColourToZero) {
  std::vector<float> values(12, 77.0f);
  standardize(values);
  EXPECT_EQ(values, std::vector<float>(12, 0.0f));
  std::vector<float> none;
  EXPECT_NO_THROW(standardize(none));
}

}  // namespace
}  // namespace tandem::internal
