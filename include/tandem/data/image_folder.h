#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "tandem/data/image.h"
#include "tandem/data/split.h"
#include "tandem/dataset.h"

namespace tandem::data {

// What to do about a file that cannot be decoded.
enum class BrokenPicture {
  // The next whole picture of its class takes its place, so that an epoch keeps its length, and what a
  // worker reads does not depend on what others find. A line in the log names the file, once.
  kSkip,
  kStop,  // DataLoss, naming the file
};

struct ImageFolderOptions {
  BrokenPicture broken = BrokenPicture::kSkip;
  // This part of each class is the test split, spread evenly over its files; 0: all is for training.
  double test_part = 0;
};

// Pictures in a folder per class: every .jpg, .jpeg and .png file below `dir/<class>`, whatever the case. The
// classes are numbered in the order of their names.
//
//   const data::ImageFolder pets("pets", {.test_part = 0.2});
//   auto train = pets.files().shuffle(1024).map(pets.decode({.random_flip = true}), {.parallelism = 4})
//                    .batch(32).prefetch(2);
//   auto test = pets.files(data::Split::kTest).map(pets.decode()).batch(32);
//
// A value: a shared handle. Any thread may use it.
class ImageFolder {
 public:
  // Lists the files, and reads none. Throws NotFound if there is no such folder, no class in it, or a class
  // without a picture, which it names; InvalidArgument for a test_part outside [0, 1).
  explicit ImageFolder(const std::string& dir, ImageFolderOptions options = {});

  const std::vector<std::string>& classes() const;
  std::int64_t size(Split split = Split::kTrain) const;

  // The pictures undecoded, class by class: x is the number of a picture, y that of its class, both int64
  // scalars. To shuffle these costs next to nothing. Throws InvalidArgument if the split has none.
  Dataset files(Split split = Split::kTrain) const;

  // A map for files(): x becomes float32 [channels, height, width]. The same picture for any number of
  // threads, workers and replicas. Throws InvalidArgument for options that cannot work; the map throws
  // DataLoss under kStop, and if a class has no whole picture at all.
  std::function<Batch(Batch, ExampleRandom&)> decode(ImageOptions options = {}) const;

  // The files that were passed over so far, by name.
  std::vector<std::string> skipped() const;

 private:
  struct State;
  std::shared_ptr<State> state_;
};

}  // namespace tandem::data
