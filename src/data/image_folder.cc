#include "tandem/data/image_folder.h"

#include <ATen/ops/scalar_tensor.h>
#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <cmath>
#include <filesystem>
#include <mutex>
#include <set>
#include <string_view>
#include <system_error>

#include "base/byte_source.h"
#include "base/log.h"
#include "data/image_options.h"
#include "tandem/error.h"

namespace fs = std::filesystem;

namespace tandem::data {
namespace {

// A picture that anybody would train on has fewer bytes.
constexpr std::uintmax_t kMostFileBytes = std::uintmax_t{1} << 28;

bool is_picture_name(const fs::path& path) {
  std::string extension = path.extension().string();
  std::ranges::transform(extension, extension.begin(), [](unsigned char c) { return std::tolower(c); });
  return extension == ".jpg" || extension == ".jpeg" || extension == ".png";
}

NotFound unreadable(const fs::path& path, const std::error_code& error) {
  return NotFound(fmt::format("cannot read the folder \"{}\": {}", path.string(), error.message()));
}

// Sorted, without hidden ones.
std::vector<std::string> folders_in(const fs::path& dir) {
  std::vector<std::string> names;
  std::error_code error;
  fs::directory_iterator entries(dir, error);
  for (; !error && entries != fs::directory_iterator(); entries.increment(error)) {
    std::error_code ignored;
    const std::string name = entries->path().filename().string();
    if (!name.starts_with('.') && entries->is_directory(ignored)) names.push_back(name);
  }
  if (error) throw unreadable(dir, error);
  std::ranges::sort(names);
  return names;
}

// Sorted: what a folder lists first is not the same on every machine.
std::vector<std::string> pictures_in(const fs::path& dir) {
  std::vector<std::string> files;
  std::error_code error;
  fs::recursive_directory_iterator entries(dir, error);
  for (; !error && entries != fs::recursive_directory_iterator(); entries.increment(error)) {
    std::error_code ignored;
    if (is_picture_name(entries->path()) && entries->is_regular_file(ignored)) {
      files.push_back(entries->path().string());
    }
  }
  if (error) throw unreadable(dir, error);
  std::ranges::sort(files);
  return files;
}

std::string read_whole(const std::string& path) {
  std::error_code error;
  const std::uintmax_t size = fs::file_size(path, error);
  if (error) throw NotFound(fmt::format("cannot read \"{}\": {}", path, error.message()));
  if (size > kMostFileBytes) {
    throw DataLoss(fmt::format("\"{}\" has {} bytes, and at most {} are read", path, size, kMostFileBytes));
  }
  const internal::ByteSource source = internal::file_source(path);
  std::string bytes(size, '\0');
  std::size_t done = 0;
  while (done < bytes.size()) {
    const std::size_t got = source(bytes.data() + done, bytes.size() - done);
    if (got == 0) break;
    done += got;
  }
  bytes.resize(done);
  return bytes;
}

}  // namespace

struct ImageFolder::State {
  struct Picture {
    std::string file;
    std::int64_t label = 0;
  };
  // Where the pictures of a class are in the list.
  struct Range {
    std::int64_t begin = 0;
    std::int64_t end = 0;
  };

  ImageFolderOptions options;
  std::vector<std::string> classes;
  std::vector<Picture> pictures;
  std::vector<Range> of_class;
  std::vector<std::int64_t> train, test;  // numbers of pictures

  std::mutex mutex;  // guards what follows
  std::set<std::int64_t> broken;

  const std::vector<std::int64_t>& numbers(Split split) const {
    return split == Split::kTrain ? train : test;
  }

  void list(const std::string& dir);
  at::Tensor load(std::int64_t number, const internal::PrepareOptions& prepare, const ExampleRandom& random);
  bool is_broken(std::int64_t number);
  void note_broken(std::int64_t number, const char* why);
};

void ImageFolder::State::list(const std::string& dir) {
  classes = folders_in(dir);
  if (classes.empty()) {
    throw NotFound(fmt::format("\"{}\" has no folder in it: expected one for each class of pictures", dir));
  }
  for (std::size_t label = 0; label < classes.size(); ++label) {
    const fs::path folder = fs::path(dir) / classes[label];
    const std::vector<std::string> files = pictures_in(folder);
    if (files.empty()) {
      throw NotFound(fmt::format("the class folder \"{}\" has no .jpg, .jpeg or .png file: fill or remove it",
                                 folder.string()));
    }
    const std::int64_t begin = std::ssize(pictures);
    for (std::int64_t i = 0; i < std::ssize(files); ++i) {
      const auto tests_before = [&](std::int64_t n) {
        return static_cast<std::int64_t>(std::floor(static_cast<double>(n) * options.test_part));
      };
      const bool for_test = tests_before(i + 1) > tests_before(i);
      (for_test ? test : train).push_back(std::ssize(pictures));
      pictures.push_back({files[i], static_cast<std::int64_t>(label)});
    }
    of_class.push_back({begin, std::ssize(pictures)});
  }
}

bool ImageFolder::State::is_broken(std::int64_t number) {
  const std::lock_guard lock(mutex);
  return broken.contains(number);
}

void ImageFolder::State::note_broken(std::int64_t number, const char* why) {
  {
    const std::lock_guard lock(mutex);
    if (!broken.insert(number).second) return;
  }
  internal::log_warning("skipped a picture, the next of its class takes its place: {}", why);
}

// The picture, or the first one after it in its class that is whole. Which one that is depends on the files
// alone, and each is prepared with the numbers that the first would have had: what others have found broken
// already only saves trying.
at::Tensor ImageFolder::State::load(std::int64_t number, const internal::PrepareOptions& prepare,
                                    const ExampleRandom& random) {
  const Range range = of_class[static_cast<std::size_t>(pictures[static_cast<std::size_t>(number)].label)];
  for (std::int64_t tries = range.end - range.begin; tries > 0; --tries) {
    if (!is_broken(number)) {
      const std::string& file = pictures[static_cast<std::size_t>(number)].file;
      try {
        ExampleRandom same = random;
        return internal::prepared_tensor(read_whole(file), file, prepare, same);
      } catch (const DataLoss& error) {
        if (options.broken == BrokenPicture::kStop) throw;
        note_broken(number, error.what());
      }
    }
    number = number + 1 == range.end ? range.begin : number + 1;
  }
  throw DataLoss(fmt::format("class \"{}\": none of its {} pictures can be decoded",
                             classes[static_cast<std::size_t>(pictures[number].label)],
                             range.end - range.begin));
}

ImageFolder::ImageFolder(const std::string& dir, ImageFolderOptions options)
    : state_(std::make_shared<State>()) {
  if (!(options.test_part >= 0 && options.test_part < 1)) {
    throw InvalidArgument(
        fmt::format("a test part of {} of the pictures: expected 0 or more, less than 1", options.test_part));
  }
  state_->options = options;
  state_->list(dir);
}

const std::vector<std::string>& ImageFolder::classes() const {
  return state_->classes;
}

std::int64_t ImageFolder::size(Split split) const {
  return std::ssize(state_->numbers(split));
}

Dataset ImageFolder::files(Split split) const {
  if (state_->numbers(split).empty()) {
    throw InvalidArgument(fmt::format("the {} split of {} pictures is empty: test_part is {}",
                                      split == Split::kTrain ? "training" : "test", state_->pictures.size(),
                                      state_->options.test_part));
  }
  return Dataset::from_function(size(split), [state = state_, split](std::int64_t index) {
    const std::int64_t number = state->numbers(split)[static_cast<std::size_t>(index)];
    return Batch{at::scalar_tensor(number, at::kLong),
                 at::scalar_tensor(state->pictures[static_cast<std::size_t>(number)].label, at::kLong)};
  });
}

std::function<Batch(Batch, ExampleRandom&)> ImageFolder::decode(ImageOptions options) const {
  return
      [state = state_, prepare = internal::prepare_options(options)](Batch example, ExampleRandom& random) {
        example.x = state->load(example.x.tensor().item<std::int64_t>(), prepare, random);
        return example;
      };
}

std::vector<std::string> ImageFolder::skipped() const {
  std::vector<std::string> names;
  const std::lock_guard lock(state_->mutex);
  for (const std::int64_t number : state_->broken) {
    names.push_back(state_->pictures[static_cast<std::size_t>(number)].file);
  }
  return names;
}

}  // namespace tandem::data
