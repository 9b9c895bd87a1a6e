#include "tandem/data/image_folder.h"

#include <gtest/gtest.h>
#include <torch/torch.h>

#include "data/support.h"
#include "image/pictures.h"
#include "tandem/error.h"

namespace tandem::data {
namespace {

using testing_support::encode_jpeg;
using testing_support::encode_png_picture;
using testing_support::waves;

// A picture of one grey, so that its pixels say which it is.
std::string plain(int grey, int side = 24) {
  return encode_png_picture(
      {side, side, 3, std::vector<std::uint8_t>(static_cast<std::size_t>(3 * side * side), grey)});
}

// Five cats of grey 0 to 40, four dogs of grey 100 to 130.
void write_pets(const TempFolder& folder) {
  for (int i = 0; i < 5; ++i) write_file(folder / ("cats/" + std::to_string(i) + ".png"), plain(10 * i));
  for (int i = 0; i < 4; ++i)
    write_file(folder / ("dogs/" + std::to_string(i) + ".PNG"), plain(100 + 10 * i));
  write_file(folder / "dogs/notes.txt", "not a picture, and not named as one");
  write_file(folder / ".hidden/0.png", plain(0));
}

const ImageOptions kSmall{.height = 8, .width = 8};

// The grey of each picture, and its label.
std::vector<std::pair<int, int>> greys_of(const Dataset& dataset, IterateOptions options = {}) {
  std::vector<std::pair<int, int>> greys;
  auto elements = dataset.iterate(options);
  while (const auto element = elements.next()) {
    greys.emplace_back(std::lround(element->x.tensor().mean().item<double>() * 255),
                       element->y.tensor().item<int>());
  }
  return greys;
}

using Greys = std::vector<std::pair<int, int>>;

TEST(ImageFolderTest, GivesThePicturesClassByClassInTheOrderOfNames) {
  const TempFolder folder;
  write_pets(folder);
  const ImageFolder pets(folder.path());
  EXPECT_EQ(pets.classes(), (std::vector<std::string>{"cats", "dogs"}));
  EXPECT_EQ(pets.files().cardinality(), 9);
  EXPECT_EQ(greys_of(pets.files().map(pets.decode(kSmall))),
            (Greys{{0, 0}, {10, 0}, {20, 0}, {30, 0}, {40, 0}, {100, 1}, {110, 1}, {120, 1}, {130, 1}}));
}

TEST(ImageFolderTest, SetsAPartOfEachClassAside) {
  const TempFolder folder;
  write_pets(folder);
  const ImageFolder pets(folder.path(), {.test_part = 0.4});
  EXPECT_EQ(greys_of(pets.files(Split::kTest).map(pets.decode(kSmall))), (Greys{{20, 0}, {40, 0}, {120, 1}}));
  EXPECT_EQ(pets.size() + pets.size(Split::kTest), 9);
  EXPECT_THROW(ImageFolder(folder.path()).files(Split::kTest), InvalidArgument);
  EXPECT_THROW(ImageFolder(folder.path(), {.test_part = 1}), InvalidArgument);
}

TEST(ImageFolderTest, GivesTheSamePicturesForAnyNumberOfThreads) {
  const TempFolder folder;
  for (int i = 0; i < 12; ++i) {
    const auto picture = waves(40 + i, 60, 3);
    write_file(folder / ("a/" + std::to_string(i) + ".jpg"), encode_jpeg(picture));
    write_file(folder / ("b/" + std::to_string(i) + ".png"), encode_png_picture(picture));
  }
  const ImageFolder pictures(folder.path());
  const ImageOptions options{.height = 16,
                             .width = 16,
                             .mean = {0.5f, 0.5f, 0.5f},
                             .deviation = {0.25f, 0.25f, 0.25f},
                             .min_crop_area = 0.2,
                             .random_flip = true,
                             .brightness = 0.3,
                             .contrast = 0.3,
                             .saturation = 0.3};
  const auto all = [&](int threads, IterateOptions pass) {
    auto batches = pictures.files()
                       .shuffle(24)
                       .map(pictures.decode(options), {.parallelism = threads})
                       .batch(24)
                       .iterate(pass);
    return batches.next()->x.tensor();
  };
  const at::Tensor alone = all(0, {.seed = 3});
  EXPECT_TRUE(all(1, {.seed = 3}).equal(alone));
  EXPECT_TRUE(all(5, {.seed = 3}).equal(alone));
  EXPECT_FALSE(all(5, {.seed = 4}).equal(alone));
  EXPECT_FALSE(all(5, {.seed = 3, .epoch = 1}).equal(alone));
}

TEST(ImageFolderTest, SkipsABrokenPictureAndTellsItsName) {
  const TempFolder folder;
  write_pets(folder);
  const std::string whole = encode_jpeg(waves(64, 64, 3));
  write_file(folder / "cats/1.png", "a text");
  write_file(folder / "cats/4.png", "");
  write_file(folder / "dogs/3.PNG", whole.substr(0, whole.size() / 2));
  const ImageFolder pets(folder.path());
  const Greys expected{{0, 0}, {20, 0}, {20, 0}, {30, 0}, {0, 0}, {100, 1}, {110, 1}, {120, 1}, {100, 1}};
  for (const int threads : {0, 3}) {
    EXPECT_EQ(greys_of(pets.files().map(pets.decode(kSmall), {.parallelism = threads})), expected);
  }
  EXPECT_EQ(pets.skipped(), (std::vector<std::string>{folder.file("cats/1.png"), folder.file("cats/4.png"),
                                                      folder.file("dogs/3.PNG")}));
}

TEST(ImageFolderTest, StopsAtABrokenPictureIfToldTo) {
  const TempFolder folder;
  write_pets(folder);
  write_file(folder / "cats/1.png", "a text");
  const ImageFolder pets(folder.path(), {.broken = BrokenPicture::kStop});
  EXPECT_EQ(
      message_of<DataLoss>([&] { greys_of(pets.files().map(pets.decode(kSmall))); }),
      "\"" + folder.file("cats/1.png") + "\" is no picture: it begins neither as a JPEG nor as a PNG file");
}

TEST(ImageFolderTest, RefusesAClassWithoutAWholePicture) {
  const TempFolder folder;
  write_pets(folder);
  for (int i = 0; i < 4; ++i) write_file(folder / ("dogs/" + std::to_string(i) + ".PNG"), "a text");
  const ImageFolder pets(folder.path());
  EXPECT_EQ(message_of<DataLoss>([&] { greys_of(pets.files().map(pets.decode(kSmall))); }),
            "class \"dogs\": none of its 4 pictures can be decoded");
}

TEST(ImageFolderTest, RefusesAFolderThatIsNoneOrHasAnEmptyClass) {
  const TempFolder folder;
  EXPECT_EQ(message_of<NotFound>([&] { ImageFolder(folder.path()); }),
            "\"" + folder.path() + "\" has no folder in it: expected one for each class of pictures");
  EXPECT_EQ(message_of<NotFound>([&] { ImageFolder(folder.file("none")); }),
            "cannot read the folder \"" + folder.file("none") + "\": No such file or directory");
  write_pets(folder);
  write_file(folder / "birds/notes.txt", "none yet");
  EXPECT_EQ(
      message_of<NotFound>([&] { ImageFolder(folder.path()); }),
      "the class folder \"" + folder.file("birds") + "\" has no .jpg, .jpeg or .png file: fill or remove it");
}

TEST(ImageFolderTest, RefusesOptionsThatCannotWork) {
  const TempFolder folder;
  write_pets(folder);
  const ImageFolder pets(folder.path());
  EXPECT_THROW(pets.decode({.height = 0}), InvalidArgument);
  EXPECT_THROW(pets.decode({.mean = {0.5f}}), InvalidArgument);
  EXPECT_THROW(pets.decode({.min_crop_area = 2}), InvalidArgument);
}

}  // namespace
}  // namespace tandem::data
