#include "data/files_view.h"

#include <fmt/format.h>

#include <exception>
#include <filesystem>
#include <numeric>
#include <system_error>
#include <utility>

#include "base/random.h"
#include "data/views.h"
#include "tandem/error.h"

namespace tandem::internal {
namespace {

// Streams of a file's own maps and shuffles, from this one on, and of the order of the files.
constexpr std::uint64_t kFileStream = 0x66696c6500000000;
constexpr std::uint64_t kOrderStream = 0x66696c6573;

// Files that have less together are opened, or read, just to count their elements.
constexpr std::uintmax_t kSmallBytes = std::uintmax_t{64} << 20;

class FilesIterator final : public ElementIterator {
 public:
  FilesIterator(const FilesView& view, std::uint64_t seed, std::int64_t epoch)
      : view_(view), seed_(seed), epoch_(epoch) {}

  bool next(Element& element) override {
    while (has_file()) {
      open();
      if (elements_->next(element)) {
        pass(1);
        element.index += file() << kFileBits;
        return true;
      }
      close();
    }
    return false;
  }

  std::int64_t skip(std::int64_t n) override {
    std::int64_t skipped = 0;
    while (skipped < n && has_file()) {
      if (const std::int64_t whole = whole_file(); whole >= 0 && whole <= n - skipped) {
        skipped += whole;
        ++turn_;
        continue;
      }
      open();
      const std::int64_t in_file = elements_->skip(n - skipped);
      skipped += in_file;
      pass(in_file);
      if (skipped < n) close();
    }
    return skipped;
  }

 private:
  bool has_file() {
    if (order_.empty()) order_ = view_.order(seed_, epoch_);
    return turn_ < order_.size();
  }

  std::int64_t file() const { return order_[turn_]; }

  // How many elements can be passed over without opening the file whose turn it is; else unknown.
  std::int64_t whole_file() const { return elements_ ? Dataset::kUnknown : view_.list().count(file()); }

  void open() {
    if (elements_) return;
    view_of_file_ = view_.list().open(file()).view();
    elements_ = view_of_file_->make_iterator(seed_of_stream(seed_, kFileStream + file()), epoch_);
    given_ = 0;
    expected_ = view_.list().options().count ? view_.list().count(file()) : Dataset::kUnknown;
  }

  void pass(std::int64_t elements) {
    given_ += elements;
    if (expected_ >= 0 && given_ > expected_) refuse_count("more");
  }

  void close() {
    if (expected_ >= 0 && given_ < expected_) refuse_count(fmt::format("{}", given_));
    elements_.reset();
    view_of_file_.reset();
    ++turn_;
  }

  // Views below, and seeks, rely on the count.
  [[noreturn]] void refuse_count(const std::string& found) const {
    throw FailedPrecondition(fmt::format("from_files: {} has {} elements: expected {}, as count() told",
                                         view_.list().name(file()), found, expected_));
  }

  const FilesView& view_;
  std::uint64_t seed_;
  std::int64_t epoch_;
  std::vector<std::int64_t> order_;
  std::size_t turn_ = 0;

  // Of the file whose turn it is, once it is open.
  std::shared_ptr<const DatasetView> view_of_file_;
  std::unique_ptr<ElementIterator> elements_;
  std::int64_t given_ = 0;
  std::int64_t expected_ = Dataset::kUnknown;
};

}  // namespace

FileList::FileList(std::vector<std::string> files, std::function<Dataset(const std::string&)> read,
                   FilesOptions options)
    : files_(std::move(files)),
      read_(std::move(read)),
      options_(std::move(options)),
      counts_(files_.size()) {}

std::int64_t FileList::count(std::int64_t file) const {
  {
    const std::lock_guard lock(mutex_);
    if (counts_[file]) return *counts_[file];
  }
  const std::int64_t count = ask(file);
  const std::lock_guard lock(mutex_);
  counts_[file] = count;
  return count;
}

std::int64_t FileList::ask(std::int64_t file) const {
  if (options_.count) {
    const std::int64_t count = options_.count(files_[file]);
    if (count < 0 && count != Dataset::kUnknown) {
      throw InvalidArgument(
          fmt::format("from_files: count() told {} for {}: expected 0 or more, or Dataset::kUnknown", count,
                      files_[file]));
    }
    return count;
  }
  if (!is_small()) return Dataset::kUnknown;
  // What is wrong with the file is told when its turn comes.
  try {
    return open(file).cardinality();
  } catch (const std::exception&) {
    return Dataset::kUnknown;
  }
}

bool FileList::is_small() const {
  std::call_once(measured_, [this] {
    std::uintmax_t bytes = 0;
    for (const std::string& name : files_) {
      std::error_code error;
      const std::uintmax_t size = std::filesystem::file_size(name, error);
      if (error || size > kSmallBytes - bytes) return;
      bytes += size;
    }
    is_small_ = true;
  });
  return is_small_;
}

std::unique_ptr<ElementIterator> FilesView::make_iterator(std::uint64_t seed, std::int64_t epoch) const {
  return std::make_unique<FilesIterator>(*this, seed, epoch);
}

// A cache asks at each element.
std::int64_t FilesView::cardinality() const {
  const std::lock_guard lock(mutex_);
  if (!cardinality_) cardinality_ = sum_of_counts();
  return *cardinality_;
}

std::int64_t FilesView::sum_of_counts() const {
  std::int64_t sum = 0;
  for (std::int64_t file = first_; file < list_->size(); file += step_) {
    const std::int64_t count = list_->count(file);
    if (count < 0) return count;
    sum += count;
  }
  return sum;
}

std::int64_t FilesView::num_files() const {
  return first_ < list_->size() ? (list_->size() - first_ - 1) / step_ + 1 : 0;
}

std::vector<std::int64_t> FilesView::order(std::uint64_t seed, std::int64_t epoch) const {
  std::vector<std::int64_t> files(list_->size());
  std::iota(files.begin(), files.end(), 0);
  if (list_->options().shuffle) {
    ExampleRandom random(seed_of_stream(list_->options().seed.value_or(seed), kOrderStream), epoch, 0);
    for (std::int64_t left = std::ssize(files); left > 1; --left) {
      std::swap(files[random.uniform_int(left)], files[left - 1]);
    }
  }
  std::erase_if(files, [this](std::int64_t file) { return !has(file); });
  return files;
}

View files_view(std::vector<std::string> files, std::function<Dataset(const std::string&)> read,
                FilesOptions options) {
  if (files.empty()) throw InvalidArgument("from_files: the list is empty: expected at least 1 file");
  if (!read) throw InvalidArgument("from_files: read is empty: expected a function that reads a file");
  return std::make_shared<FilesView>(
      std::make_shared<const FileList>(std::move(files), std::move(read), std::move(options)));
}

}  // namespace tandem::internal
