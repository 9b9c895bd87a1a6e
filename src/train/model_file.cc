#include <fmt/format.h>
#include <torch/torch.h>

#include "checkpoint/tensors.h"
#include "strategy/strategy_impl.h"
#include "tandem/error.h"
#include "tandem/model.h"
#include "train/chief_does.h"
#include "train/model_state.h"
#include "train/training_state.h"

namespace tandem {
namespace {

constexpr const char* kMeta = "tandem";  // in the file's metadata

}  // namespace

void Model::save(const std::string& path) {
  internal::StrategyImpl& strategy = state_->strategy.impl();
  const internal::TrainingState now =
      strategy.or_stop_all([&] { return internal::capture(*state_, internal::CaptureScope::kModel); });
  internal::chief_does(strategy, "save", [&] {
    internal::PosixFileSystem files;
    internal::write_safetensors(files, path, internal::bytes_of_all(now.shared),
                                {{"format", "pt"}, {kMeta, now.meta}});
  });
}

void Model::load(const std::string& path) {
  internal::StrategyImpl& strategy = state_->strategy.impl();
  internal::NamedTensors tensors;
  std::string meta;
  internal::chief_does(strategy, "load", [&] {
    internal::PosixFileSystem files;
    const internal::SafetensorsFile file(files, path);
    const auto found = file.metadata().find(kMeta);
    if (found == file.metadata().end()) {
      throw DataLoss(fmt::format(
          "\"{}\" has weights, but not what Model::save() adds to them: use Model::load_weights()", path));
    }
    meta = found->second;
    for (const internal::TensorEntry& entry : file.tensors()) {
      const at::Tensor tensor = internal::empty_like_entry(entry);
      file.read(entry, internal::writable_bytes(tensor));
      tensors[entry.name] = tensor;
    }
  });
  if (!strategy.takes_part_in_saving()) return;
  strategy.or_stop_all([&] {
    if (internal::SyncGroup* tasks = strategy.tasks()) {
      meta = tasks->broadcast_text("load (meta)", meta);
      const at::Tensor line =
          tasks->broadcast_bytes("load", tasks->is_chief() ? internal::pack(tensors) : at::Tensor());
      if (!tasks->is_chief()) tensors = internal::unpack(line, tasks->member(0));
    }
    internal::apply(*state_, tensors, meta, fmt::format("\"{}\"", path));
  });
}

}  // namespace tandem
