#include "cli/tensor_set.h"

#include <fmt/format.h>

#include <filesystem>

#include "checkpoint/checkpoint_store.h"
#include "cluster/text.h"
#include "tandem/error.h"

namespace tandem::internal {
namespace {

namespace fs = std::filesystem;

std::string newest_of_run(const std::string& path, const std::string& key) {
  const auto ids = CheckpointStore(path, {.key = key}).list();
  if (ids.empty()) throw NoUsableCheckpoint(fmt::format("there is no checkpoint in {}", quote(path)));
  return path + "/" + ids.front().folder();
}

}  // namespace

bool is_checkpoint_folder(const std::string& path) {
  const fs::path folder = fs::path(path).has_filename() ? fs::path(path) : fs::path(path).parent_path();
  if (!fs::is_directory(folder)) return false;
  return CheckpointId::parse(folder.filename().string()).has_value() || fs::exists(folder / "COMMIT");
}

TensorSet::TensorSet(const std::string& path, const std::string& key)
    : files_(std::make_unique<PosixFileSystem>()) {
  std::error_code ignored;
  if (!fs::exists(path, ignored)) throw NotFound(fmt::format("there is no file or folder {}", quote(path)));
  if (!fs::is_directory(path)) {
    file_ = std::make_unique<SafetensorsFile>(*files_, path);
    name_ = path;
    for (const TensorEntry& tensor : file_->tensors()) tensors_.emplace(tensor.name, &tensor);
    return;
  }
  const fs::path folder = is_checkpoint_folder(path) ? path : newest_of_run(path, key);
  checkpoint_ = std::make_unique<Checkpoint>(
      *files_, (folder.has_filename() ? folder : folder.parent_path()).string(), key);
  name_ = checkpoint_->id().text();
  for (const auto& [name, place] : checkpoint_->tensors()) tensors_.emplace(name, place.tensor);
}

std::uint64_t TensorSet::bytes() const {
  std::uint64_t sum = 0;
  for (const auto& [name, tensor] : tensors_) sum += tensor->bytes();
  return sum;
}

std::vector<std::vector<std::byte>> TensorSet::read() const {
  std::vector<std::vector<std::byte>> values;
  std::vector<TensorRequest> requests;
  for (const auto& [name, tensor] : tensors_) {
    values.emplace_back(tensor->bytes());
    requests.push_back({std::string(name), values.back()});
  }
  if (checkpoint_) {
    checkpoint_->read(requests);
  } else {
    for (const TensorRequest& request : requests) file_->read(*tensors_.at(request.name), request.bytes);
  }
  return values;
}

}  // namespace tandem::internal
