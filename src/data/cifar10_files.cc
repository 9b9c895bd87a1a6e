#include "data/cifar10_files.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <system_error>

#include "data/files.h"
#include "tandem/error.h"

namespace fs = std::filesystem;

namespace tandem::internal {
namespace {

constexpr std::int64_t kPictureBytes = Cifar10Files::kPictureBytes;
constexpr std::int64_t kRecord = 1 + kPictureBytes;
constexpr std::int64_t kFullFile = 10000;  // records in each file of the real set
constexpr int kClasses = Cifar10Files::kClasses;

std::vector<std::string> files_of(data::Split split) {
  if (split == data::Split::kTest) return {"test_batch.bin"};
  return {"data_batch_1.bin", "data_batch_2.bin", "data_batch_3.bin", "data_batch_4.bin", "data_batch_5.bin"};
}

fs::path folder_of(const fs::path& dir, data::Split split) {
  for (const fs::path& folder : {dir, dir / "cifar-10-batches-bin"}) {
    for (const auto& name : files_of(split)) {
      if (is_file(folder / name)) return folder;
    }
  }
  std::error_code ignored;
  throw NotFound(
      fmt::format("{}: {}; expected {} of CIFAR-10's binary version there or in its folder "
                  "cifar-10-batches-bin",
                  dir.string(), fs::exists(dir, ignored) ? "no CIFAR-10 files" : "no such folder",
                  fmt::join(files_of(split), ", ")));
}

// From its size alone.
std::int64_t records_in(const fs::path& file) {
  if (!is_file(file)) {
    throw NotFound(fmt::format("{}: no such file; expected CIFAR-10's binary version, records of {} bytes",
                               file.string(), kRecord));
  }
  const auto bytes = static_cast<std::int64_t>(fs::file_size(file));
  if (bytes == 0 || bytes % kRecord != 0) {
    throw DataLoss(
        fmt::format("{}: {} bytes, and the last whole record ends at byte {}: expected whole records of "
                    "{} bytes (a label and 3x32x32 pixels)",
                    file.string(), bytes, bytes - bytes % kRecord, kRecord));
  }
  return bytes / kRecord;
}

// A file that was cut off between two records has nothing wrong with it but its length.
void check_alike(const fs::path& file, std::int64_t records, const fs::path& other, std::int64_t expected) {
  if (records == expected) return;
  throw DataLoss(fmt::format("{}: {} records, the file ends at byte {}: expected {} records, as in {}",
                             file.string(), records, records * kRecord, expected, other.string()));
}

void check_lengths(const fs::path& folder, const std::vector<std::string>& names,
                   const std::vector<std::int64_t>& records, data::Split split) {
  const auto longest = std::ranges::max_element(records);
  for (std::size_t i = 0; i < names.size(); ++i) {
    check_alike(folder / names[i], records[i], folder / names[longest - records.begin()], *longest);
  }
  if (split == data::Split::kTrain) return;
  for (const auto& name : files_of(data::Split::kTrain)) {
    const fs::path train = folder / name;
    if (is_file(train) && fs::file_size(train) == kFullFile * kRecord) {
      check_alike(folder / names[0], records[0], train, kFullFile);
    }
  }
}

void read_records(const fs::path& file, std::int64_t count, std::uint8_t* images, std::int64_t* labels) {
  std::ifstream in(file, std::ios::binary);
  if (!in) throw NotFound(fmt::format("{}: cannot be opened: {}", file.string(), std::strerror(errno)));
  std::array<char, kRecord> record;
  for (std::int64_t i = 0; i < count; ++i) {
    if (!in.read(record.data(), kRecord)) {
      throw DataLoss(fmt::format("{}: reading stopped at byte {}: expected {} records of {} bytes",
                                 file.string(), i * kRecord + in.gcount(), count, kRecord));
    }
    const auto label = static_cast<std::uint8_t>(record[0]);
    if (label >= kClasses) {
      throw DataLoss(fmt::format("{}: label {} at byte {}: expected 0 to {}", file.string(), label,
                                 i * kRecord, kClasses - 1));
    }
    labels[i] = label;
    std::memcpy(images + i * kPictureBytes, record.data() + 1, kPictureBytes);
  }
}

}  // namespace

Cifar10Files::Cifar10Files(const fs::path& dir, data::Split split)
    : folder_(folder_of(dir, split)), names_(files_of(split)) {
  std::vector<std::int64_t> records;
  for (const auto& name : names_) records.push_back(records_in(folder_ / name));
  check_lengths(folder_, names_, records, split);
  per_file_ = records[0];
}

void Cifar10Files::read(std::uint8_t* images, std::int64_t* labels) const {
  for (std::int64_t i = 0; i < std::ssize(names_); ++i) {
    read_records(folder_ / names_[i], per_file_, images + i * per_file_ * kPictureBytes,
                 labels + i * per_file_);
  }
}

}  // namespace tandem::internal
