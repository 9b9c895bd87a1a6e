#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "base/log.h"
#include "base/secret_file.h"
#include "tandem/checkpoint.h"
#include "tandem/error.h"
#include "train/checkpoint_saver.h"
#include "train/model_state.h"
#include "train/training_state.h"

namespace tandem {
namespace {

internal::CheckpointSaverOptions saver_options(const CheckpointOptions& options) {
  const auto count = [](const char* name, int value) {
    if (value < 0) throw InvalidArgument(fmt::format("{} is {}: expected 0 or more", name, value));
  };
  count("max_to_keep", options.max_to_keep);
  count("max_fallback", options.max_fallback);
  count("stop_after_failures", options.stop_after_failures);
  if (!(options.keep_checkpoint_every_n_hours >= 0) || std::isinf(options.keep_checkpoint_every_n_hours)) {
    throw InvalidArgument(fmt::format("keep_checkpoint_every_n_hours is {}: expected 0 or more",
                                      options.keep_checkpoint_every_n_hours));
  }
  return {.store = {.keep = options.max_to_keep,
                    .keep_every = std::chrono::seconds(
                        static_cast<std::int64_t>(options.keep_checkpoint_every_n_hours * 3600)),
                    .max_fallback = options.max_fallback,
                    .key = options.key_file.empty() ? "" : internal::read_token(options.key_file)},
          .stop_after_failures = options.stop_after_failures};
}

}  // namespace

struct CheckpointManager::Impl {
  Model model;
  std::shared_ptr<internal::CheckpointSaver> saver;
  internal::TrackedDatasets datasets = {};

  Model::State& state() const { return internal::ModelAccess::state(model); }

  // Another manager of the same model may have a save under way.
  void finish_others() const {
    if (state().saver && state().saver != saver) state().saver->finish();
    state().saver.reset();
  }
};

CheckpointManager::CheckpointManager(Model model, std::string directory, CheckpointOptions options) {
  if (directory.empty()) {
    throw InvalidArgument("CheckpointManager: the directory is empty: expected the path of a folder");
  }
  const auto strategy = internal::ModelAccess::state(model).strategy.impl().shared_from_this();
  impl_ = std::make_unique<Impl>(Impl{
      std::move(model),
      std::make_shared<internal::CheckpointSaver>(strategy, std::move(directory), saver_options(options))});
}

CheckpointManager::~CheckpointManager() {
  if (impl_ && impl_->state().saver == impl_->saver) impl_->state().saver.reset();
}
CheckpointManager::CheckpointManager(CheckpointManager&&) noexcept = default;
CheckpointManager& CheckpointManager::operator=(CheckpointManager&&) noexcept = default;

void CheckpointManager::track(const std::string& name, DistributedDataset& dataset) {
  impl_->datasets[name] = &dataset;
}

std::string CheckpointManager::save() {
  save_async();
  return wait();
}

void CheckpointManager::save_async() {
  Model::State& state = impl_->state();
  if (!state.strategy.impl().takes_part_in_saving()) return;
  state.strategy.impl().or_stop_all([&] {
    impl_->finish_others();
    impl_->saver->save(state.global_step,
                       internal::capture(state, internal::CaptureScope::kTraining, impl_->datasets));
    state.saver = impl_->saver;
  });
}

std::string CheckpointManager::wait() {
  return impl_->state().strategy.impl().or_stop_all([&] { return impl_->saver->finish(); });
}

std::optional<RestoredCheckpoint> CheckpointManager::restore() {
  Model::State& state = impl_->state();
  if (!state.strategy.impl().takes_part_in_saving()) return {};
  return state.strategy.impl().or_stop_all([&]() -> std::optional<RestoredCheckpoint> {
    impl_->finish_others();
    const auto loaded = impl_->saver->load();
    if (!loaded) return {};
    state.resume = internal::apply(state, loaded->tensors, loaded->meta, "checkpoint " + loaded->folder,
                                   impl_->datasets);
    return RestoredCheckpoint{loaded->folder, state.global_step};
  });
}

std::vector<std::string> CheckpointManager::checkpoints() const {
  std::vector<std::string> folders;
  const internal::CheckpointStore& store = impl_->saver->store();
  for (const internal::CheckpointId& id : store.list()) folders.push_back(store.folder() + "/" + id.folder());
  std::ranges::reverse(folders);
  return folders;
}

void CheckpointManager::remove_all() {
  impl_->saver->remove_all();
}

std::optional<std::string> latest_checkpoint(const std::string& directory) {
  const internal::CheckpointStore store(directory);
  const auto found = store.find_whole();
  if (!found) return {};
  for (const std::string& warning : found->warnings) internal::log_warning("{}", warning);
  return store.folder() + "/" + found->id.folder();
}

}  // namespace tandem
