#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "data/dataset_view.h"
#include "tandem/dataset.h"

namespace tandem::internal {

// A list of files, how each is read, and what is known of their lengths. Any thread may call it.
class FileList {
 public:
  FileList(std::vector<std::string> files, std::function<Dataset(const std::string&)> read,
           FilesOptions options);

  std::int64_t size() const { return std::ssize(files_); }
  const std::string& name(std::int64_t file) const { return files_[file]; }
  const FilesOptions& options() const { return options_; }

  Dataset open(std::int64_t file) const { return read_(files_[file]); }

  // How many elements a file has; kUnknown where that cannot be told, or would take long.
  std::int64_t count(std::int64_t file) const;

 private:
  std::int64_t ask(std::int64_t file) const;
  bool is_small() const;

  std::vector<std::string> files_;
  std::function<Dataset(const std::string&)> read_;
  FilesOptions options_;

  mutable std::once_flag measured_;
  mutable bool is_small_ = false;
  mutable std::mutex mutex_;  // guards what follows
  mutable std::vector<std::optional<std::int64_t>> counts_;
};

// The elements of all files of a list, or of every step-th, one file after the other.
class FilesView final : public DatasetView {
 public:
  explicit FilesView(std::shared_ptr<const FileList> list) : list_(std::move(list)) {}

  // The files worker, worker + workers, ... of another. They keep their numbers in the list.
  FilesView(const FilesView& all, int workers, int worker)
      : list_(all.list_), first_(all.first_ + worker * all.step_), step_(workers * all.step_) {}

  std::unique_ptr<ElementIterator> make_iterator(std::uint64_t seed, std::int64_t epoch) const override;
  std::int64_t cardinality() const override;

  const FileList& list() const { return *list_; }
  std::int64_t num_files() const;

  // The numbers of its files in the list, in the order of that epoch.
  std::vector<std::int64_t> order(std::uint64_t seed, std::int64_t epoch) const;

 private:
  std::int64_t sum_of_counts() const;
  bool has(std::int64_t file) const { return file >= first_ && (file - first_) % step_ == 0; }

  std::shared_ptr<const FileList> list_;
  std::int64_t first_ = 0;
  std::int64_t step_ = 1;

  mutable std::mutex mutex_;  // guards what follows
  mutable std::optional<std::int64_t> cardinality_;
};

}  // namespace tandem::internal
