#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "cli/fetch.h"

namespace tandem::internal {

// A set of data that programs of tandem read, as its authors publish it.
struct DataSet {
  std::string name;
  std::string base_url;
  std::vector<PublishedFile> files;
  // The files are one archive, with a folder of this name in it; empty: they are read as they are.
  std::string archived_folder = {};
};

// "cifar10", "mnist", "fashion_mnist". Throws InvalidArgument for another.
const DataSet& data_set(const std::string& name);
std::vector<std::string> data_set_names();

// Unpacks the archive of a set in `folder` beside it, all of it or nothing, in place of an older one. The
// program `tar` does it. Throws DataLoss if it is damaged or has other files in it.
void unpack_archive(const DataSet& set, const std::string& archive, const std::string& folder);

struct GenerateOptions {
  std::int64_t train_examples = 0;
  std::int64_t test_examples = 0;
  std::uint64_t seed = 0;
};

// Writes pictures that a network can learn, in the format and under the names of a set. Throws
// InvalidArgument if CIFAR-10's five training files cannot be equally long.
void generate_set(const DataSet& set, const std::string& folder, const GenerateOptions& options);

}  // namespace tandem::internal
