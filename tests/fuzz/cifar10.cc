// Any bytes as CIFAR-10's test file: refused with one line that names it, or read with a picture and a label
// from 0 to 9 for each record.
#include <cstdint>
#include <string>
#include <vector>

#include "data/cifar10_files.h"
#include "fuzz/one_file.h"
#include "fuzz/require.h"
#include "tandem/error.h"

namespace {

using namespace tandem;
using namespace tandem::internal;
using fuzz::require;

constexpr std::size_t kRecord = 1 + Cifar10Files::kPictureBytes;

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size < 1) return -1;
  static const fuzz::OneFile file("test_batch.bin");
  // Few inputs are of a length that can be: the first byte says whether it is made one.
  std::vector<std::uint8_t> bytes(data + 1, data + size);
  if (data[0] % 2 == 1) bytes.resize((bytes.size() / kRecord + 1) * kRecord);
  file.write(bytes.data(), bytes.size());
  try {
    const Cifar10Files files(file.folder(), data::Split::kTest);
    require(files.records() == static_cast<std::int64_t>(bytes.size() / kRecord), "no record is lost");
    std::vector<std::uint8_t> images(files.records() * Cifar10Files::kPictureBytes);
    std::vector<std::int64_t> labels(files.records());
    files.read(images.data(), labels.data());
    for (std::size_t i = 0; i < labels.size(); ++i) {
      require(labels[i] >= 0 && labels[i] < Cifar10Files::kClasses, "a label is one of ten");
      require(labels[i] == bytes[i * kRecord], "it is the record's own");
    }
    return 0;
  } catch (const DataLoss& error) {
    const std::string line = error.what();
    require(line.find(file.name()) != std::string::npos, "a refusal names the file");
    require(line.find('\n') == std::string::npos && line.size() < 400, "a refusal is one line");
    return -1;
  }
}
