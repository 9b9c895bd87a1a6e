#pragma once

#include <cstddef>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "checkpoint/checkpoint.h"

namespace tandem::internal {

// What a path on the command line names: a checkpoint, the newest one of a run, or a plain safetensors file.
class TensorSet {
 public:
  // Throws NotFound if there is nothing, DataLoss if it is damaged, NoUsableCheckpoint for a folder without a
  // checkpoint. The newest of a run is taken as it is: its values are read later, and may be damaged.
  TensorSet(const std::string& path, const std::string& key);

  // For messages: "step 1200 g7", or the file.
  const std::string& name() const { return name_; }
  // Nothing if it is a plain file.
  const Checkpoint* checkpoint() const { return checkpoint_.get(); }
  const SafetensorsFile* file() const { return file_.get(); }

  // By name.
  const std::map<std::string_view, const TensorEntry*>& tensors() const { return tensors_; }
  std::uint64_t bytes() const;

  // The values of each, in the order of tensors().
  std::vector<std::vector<std::byte>> read() const;

 private:
  std::unique_ptr<FileSystem> files_;
  std::unique_ptr<Checkpoint> checkpoint_;
  std::unique_ptr<SafetensorsFile> file_;
  std::string name_;
  std::map<std::string_view, const TensorEntry*> tensors_;
};

// Whether the path is the folder of one checkpoint, not of a run.
bool is_checkpoint_folder(const std::string& path);

}  // namespace tandem::internal
