#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "tandem/data/split.h"

namespace tandem::internal {

// The files of CIFAR-10's binary version: records of a label and 3x32x32 pixels.
class Cifar10Files {
 public:
  static constexpr std::int64_t kPictureBytes = 3 * 32 * 32;
  static constexpr int kClasses = 10;

  // Finds those of a split in `dir` or in `dir`/cifar-10-batches-bin, and counts their records by their
  // sizes. Throws NotFound for a missing file, DataLoss for one that is truncated or shorter than its
  // siblings.
  Cifar10Files(const std::filesystem::path& dir, data::Split split);

  std::int64_t records() const { return per_file_ * std::ssize(names_); }

  // Room for kPictureBytes and a label of each record. Throws DataLoss, naming file and byte, for a label
  // that is none or a file that ends early.
  void read(std::uint8_t* images, std::int64_t* labels) const;

 private:
  std::filesystem::path folder_;
  std::vector<std::string> names_;
  std::int64_t per_file_ = 0;
};

}  // namespace tandem::internal
