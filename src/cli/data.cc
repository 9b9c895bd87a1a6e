#include <fmt/format.h>
#include <fmt/ranges.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <map>
#include <memory>
#include <optional>
#include <sstream>
#include <system_error>

#include "cli/commands.h"
#include "cli/data_sets.h"
#include "cli/fetch.h"
#include "tandem/error.h"

namespace fs = std::filesystem;

namespace tandem::internal {
namespace {

struct DataFlags {
  std::string set;
  std::string folder;
  std::string from;
  std::string url;
  std::string checksums;
  bool generate = false;
  std::optional<std::int64_t> examples;
  std::uint64_t seed = 0;
};

void make_folder(const std::string& folder) {
  std::error_code error;
  fs::create_directories(folder, error);
  if (error) throw NotFound(fmt::format("cannot make the folder \"{}\": {}", folder, error.message()));
}

// Lines as sha256sum writes them: the digest, two spaces, the name.
std::map<std::string, std::string> read_checksums(const std::string& path) {
  std::ifstream file(path);
  if (!file) throw NotFound(fmt::format("--checksums: cannot read \"{}\"", path));
  std::map<std::string, std::string> sums;
  std::string line;
  while (std::getline(file, line)) {
    std::istringstream words(line);
    std::string digest, name, rest;
    if (!(words >> digest >> name) || digest.size() != 64 || words >> rest) {
      throw InvalidArgument(
          fmt::format("--checksums: \"{}\" in \"{}\": expected a SHA-256 and a name", line, path));
    }
    sums[name] = digest;
  }
  return sums;
}

// The set with the checksums of another source.
DataSet chosen_set(const DataFlags& flags) {
  DataSet set = data_set(flags.set);
  if (!flags.url.empty()) set.base_url = flags.url;
  while (set.base_url.ends_with('/')) set.base_url.pop_back();
  if (flags.checksums.empty()) return set;
  const auto sums = read_checksums(flags.checksums);
  for (PublishedFile& file : set.files) {
    const auto found = sums.find(file.name);
    if (found == sums.end()) {
      throw InvalidArgument(
          fmt::format("--checksums: \"{}\" has no line for {}", flags.checksums, file.name));
    }
    file.sha256 = found->second;
  }
  return set;
}

// --from FILE for one file, or the folder that has them.
std::string file_at_hand(const DataFlags& flags, const PublishedFile& file, std::size_t files) {
  if (fs::is_directory(flags.from)) return flags.from + "/" + file.name;
  if (files == 1) return flags.from;
  throw InvalidArgument(fmt::format("--from {}: the set {} has {} files: give the folder that holds them",
                                    flags.from, flags.set, files));
}

void take_files(const DataFlags& flags, const DataSet& set) {
  for (const PublishedFile& file : set.files) {
    const std::string source = file_at_hand(flags, file, set.files.size());
    check_published(source, file);
    if (!set.archived_folder.empty()) {
      unpack_archive(set, source, flags.folder);
      continue;
    }
    const std::string target = flags.folder + "/" + file.name;
    std::error_code error;
    if (fs::equivalent(source, target, error)) continue;
    fs::copy_file(source, target, fs::copy_options::overwrite_existing, error);
    if (error)
      throw NotFound(fmt::format("cannot copy \"{}\" to \"{}\": {}", source, target, error.message()));
  }
}

void fetch_files(const DataFlags& flags, const DataSet& set) {
  for (const PublishedFile& file : set.files) {
    fetch(file, set.base_url, flags.folder);
    if (!set.archived_folder.empty()) unpack_archive(set, flags.folder + "/" + file.name, flags.folder);
  }
}

std::string program_for(const DataSet& set, const std::string& folder) {
  return set.name == "cifar10"
             ? fmt::format("resnet_cifar_main --data_dir {}/{}", folder, set.archived_folder)
             : fmt::format("mnist --data_dir {}", folder);
}

int get_data(const DataFlags& flags) {
  const DataSet set = chosen_set(flags);
  if (flags.examples && *flags.examples < 10) {
    throw InvalidArgument(fmt::format("--examples is {}: expected 10 or more", *flags.examples));
  }
  make_folder(flags.folder);
  if (flags.generate) {
    const std::int64_t train = flags.examples.value_or(set.name == "cifar10" ? 50'000 : 60'000);
    const std::int64_t test = flags.examples ? std::max<std::int64_t>(10, train / 5) : 10'000;
    generate_set(set, flags.folder, {.train_examples = train, .test_examples = test, .seed = flags.seed});
    std::cout << fmt::format("generated {} training and {} test pictures in the format of {}: no real data\n",
                             train, test, set.name);
  } else if (!flags.from.empty()) {
    take_files(flags, set);
  } else {
    fetch_files(flags, set);
  }
  std::cout << fmt::format("{} is ready: {}\n", set.name, program_for(set, flags.folder));
  return 0;
}

}  // namespace

Command add_data(CLI::App& app) {
  const auto flags = std::make_shared<DataFlags>();
  CLI::App* command = app.add_subcommand("data", "Fetches, checks and unpacks a set of pictures");
  command->add_option("set", flags->set, fmt::format("{}", fmt::join(data_set_names(), ", ")))->required();
  command->add_option("folder", flags->folder, "Where to put it")->required();
  auto* from = command->add_option("--from", flags->from, "The archive, or the folder of files, at hand");
  auto* generate = command->add_flag("--generate", flags->generate,
                                     "A stand-in that a network can learn, in the same format");
  auto* url = command->add_option("--url", flags->url, "Another place that has the same files");
  command->add_option("--checksums", flags->checksums, "A file as sha256sum writes it, for other files");
  command->add_option("--examples", flags->examples, "Training pictures to generate")->needs(generate);
  command->add_option("--seed", flags->seed, "For other generated pictures")
      ->needs(generate)
      ->capture_default_str();
  from->excludes(generate)->excludes(url);
  generate->excludes(url);
  return {command, [flags] { return get_data(*flags); }};
}

}  // namespace tandem::internal
