#include "cli/data_sets.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <filesystem>

#include "base/compression.h"
#include "base/files.h"
#include "base/new_folder.h"
#include "cli/run_tool.h"
#include "data/synthetic_pictures.h"
#include "tandem/error.h"

namespace fs = std::filesystem;

namespace tandem::internal {
namespace {

using data::Split;

constexpr int kCifarRecord = 1 + 3 * 32 * 32;
constexpr int kCifarTrainFiles = 5;

const std::vector<DataSet>& all_sets() {
  static const std::vector<DataSet> sets{
      {.name = "cifar10",
       .base_url = "https://www.cs.toronto.edu/~kriz",
       .files = {{"cifar-10-binary.tar.gz",
                  "c4a38c50a1bc5f3a1c5537f2155ab9d68f9f25eb1ed8d9ddda3db29a59bca1dd"}},
       .archived_folder = "cifar-10-batches-bin"},
      // The author's own server lets nobody in any more.
      {.name = "mnist",
       .base_url = "https://ossci-datasets.s3.amazonaws.com/mnist",
       .files = {{"train-images-idx3-ubyte.gz",
                  "440fcabf73cc546fa21475e81ea370265605f56be210a4024d2ca8f203523609"},
                 {"train-labels-idx1-ubyte.gz",
                  "3552534a0a558bbed6aed32b30c495cca23d567ec52cac8be1a0730e8010255c"},
                 {"t10k-images-idx3-ubyte.gz",
                  "8d422c7b0a1c1c79245a5bcf07fe86e33eeafee792b84584aec276f5a2dbc4e6"},
                 {"t10k-labels-idx1-ubyte.gz",
                  "f7ae60f92e00ec6debd23a6088c31dbd2371eca3ffa0defaefb259924204aec6"}}},
      {.name = "fashion_mnist",
       .base_url = "http://fashion-mnist.s3-website.eu-central-1.amazonaws.com",
       .files = {{"train-images-idx3-ubyte.gz",
                  "3aede38d61863908ad78613f6a32ed271626dd12800ba2636569512369268a84"},
                 {"train-labels-idx1-ubyte.gz",
                  "a04f17134ac03560a47e3764e11b92fc97de4d1bfaf8ba1a3aa29af54cc90845"},
                 {"t10k-images-idx3-ubyte.gz",
                  "346e55b948d973a97e58d2351dde16a484bd415d4595297633bb08f03db6a073"},
                 {"t10k-labels-idx1-ubyte.gz",
                  "67da17c76eaffca5446c3361aaab5c3cd6d1c2608764d35dfb1850b086bf8dd5"}}},
  };
  return sets;
}

std::vector<std::string> cifar_files() {
  std::vector<std::string> names;
  for (int i = 1; i <= kCifarTrainFiles; ++i) names.push_back(fmt::format("data_batch_{}.bin", i));
  names.push_back("test_batch.bin");
  return names;
}

void check_cifar_folder(const std::string& folder, const std::string& archive) {
  for (const std::string& name : cifar_files()) {
    std::error_code error;
    const std::uintmax_t size = fs::file_size(folder + "/" + name, error);
    if (error || size == 0 || size % kCifarRecord != 0) {
      throw DataLoss(
          fmt::format("\"{}\" holds no {} with whole records of {} bytes", archive, name, kCifarRecord));
    }
  }
}

std::string cifar_records(const SyntheticPictures& pictures, std::int64_t begin, std::int64_t end) {
  std::string records(static_cast<std::size_t>(end - begin) * kCifarRecord, '\0');
  for (std::int64_t i = begin; i < end; ++i) {
    char* const record = records.data() + (i - begin) * kCifarRecord;
    record[0] = static_cast<char>(pictures.label(i));
    pictures.draw(i, reinterpret_cast<std::uint8_t*>(record) + 1);
  }
  return records;
}

void generate_cifar(const std::string& folder, const GenerateOptions& options) {
  if (options.train_examples % kCifarTrainFiles != 0) {
    throw InvalidArgument(
        fmt::format("{} training pictures cannot be shared among CIFAR-10's {} files: "
                    "expected a multiple of {}",
                    options.train_examples, kCifarTrainFiles, kCifarTrainFiles));
  }
  const SyntheticPictures train(kSyntheticCifar10, Split::kTrain, options.seed);
  const SyntheticPictures test(kSyntheticCifar10, Split::kTest, options.seed);
  const std::int64_t per_file = options.train_examples / kCifarTrainFiles;
  for (int file = 0; file < kCifarTrainFiles; ++file) {
    replace_file(fmt::format("{}/data_batch_{}.bin", folder, file + 1),
                 cifar_records(train, file * per_file, (file + 1) * per_file));
  }
  replace_file(folder + "/test_batch.bin", cifar_records(test, 0, options.test_examples));
  replace_file(
      folder + "/batches.meta.txt",
      "pattern0\npattern1\npattern2\npattern3\npattern4\npattern5\npattern6\npattern7\npattern8\npattern9\n");
}

// An idx file's header: the kind of its values and its sizes, big-endian.
std::string idx_header(const std::vector<std::int64_t>& sizes) {
  std::string header{'\0', '\0', '\x08', static_cast<char>(sizes.size())};
  for (const std::int64_t size : sizes) {
    for (int shift = 24; shift >= 0; shift -= 8) header += static_cast<char>(size >> shift);
  }
  return header;
}

void write_gzipped(const std::string& path, const std::string& contents) {
  Packer packer(Compression::kGzip);
  std::string packed;
  packer.pack(contents, packed);
  packer.finish(packed);
  replace_file(path, packed);
}

void generate_idx(const std::string& folder, const std::string& prefix, Split split, std::int64_t count,
                  std::uint64_t seed) {
  const SyntheticPictures pictures(kSyntheticMnist, split, seed);
  const int values = kSyntheticMnist.values();
  std::string images = idx_header({count, kSyntheticMnist.side, kSyntheticMnist.side});
  std::string labels = idx_header({count});
  const std::size_t header = images.size();
  images.resize(header + static_cast<std::size_t>(count) * values);
  for (std::int64_t i = 0; i < count; ++i) {
    labels += static_cast<char>(pictures.label(i));
    pictures.draw(i, reinterpret_cast<std::uint8_t*>(images.data()) + header + i * values);
  }
  write_gzipped(folder + "/" + prefix + "-images-idx3-ubyte.gz", images);
  write_gzipped(folder + "/" + prefix + "-labels-idx1-ubyte.gz", labels);
}

}  // namespace

std::vector<std::string> data_set_names() {
  std::vector<std::string> names;
  for (const DataSet& set : all_sets()) names.push_back(set.name);
  return names;
}

const DataSet& data_set(const std::string& name) {
  for (const DataSet& set : all_sets()) {
    if (set.name == name) return set;
  }
  throw InvalidArgument(
      fmt::format("there is no set \"{}\": expected {}", name, fmt::join(data_set_names(), ", ")));
}

void unpack_archive(const DataSet& set, const std::string& archive, const std::string& folder) {
  NewFolder unpacked(folder + "/" + set.archived_folder);
  const ToolResult result = run_tool({"tar", "--extract", "--gzip", "--file", archive, "--directory",
                                      unpacked.file(""), "--strip-components=1", "--no-same-owner",
                                      "--no-same-permissions", "--", set.archived_folder});
  if (result.exit_code != 0) {
    throw DataLoss(fmt::format("\"{}\" cannot be unpacked: tar ended with {}", archive, result.exit_code));
  }
  check_cifar_folder(unpacked.file(""), archive);
  fs::permissions(unpacked.file(""), fs::perms(0755));  // pictures are no secret
  unpacked.replace();
}

void generate_set(const DataSet& set, const std::string& folder, const GenerateOptions& options) {
  if (set.name == "cifar10") {
    const std::string inside = folder + "/" + set.archived_folder;
    fs::create_directories(inside);
    generate_cifar(inside, options);
    return;
  }
  generate_idx(folder, "train", Split::kTrain, options.train_examples, options.seed);
  generate_idx(folder, "t10k", Split::kTest, options.test_examples, options.seed);
}

}  // namespace tandem::internal
