#include "train/checkpoint_saver.h"

#include <fmt/format.h>
#include <torch/torch.h>

#include <algorithm>
#include <filesystem>

#include "base/log.h"
#include "checkpoint/tensors.h"
#include "tandem/error.h"
#include "trace/recorder.h"
#include "train/packed_tensors.h"
#include "train/training_state.h"

namespace tandem::internal {
namespace {

// What each of `tasks` writes of the tensors that all of them have: the largest first, each to whom has the
// least so far.
std::vector<std::string> names_for(int task, int tasks, const NamedTensors& tensors) {
  std::vector<std::pair<std::size_t, std::string>> by_size;
  for (const auto& [name, tensor] : tensors) by_size.emplace_back(tensor.nbytes(), name);
  std::ranges::sort(by_size, [](const auto& a, const auto& b) {
    return a.first != b.first ? a.first > b.first : a.second < b.second;
  });
  std::vector<std::size_t> load(static_cast<std::size_t>(tasks), 0);
  std::vector<std::string> mine;
  for (const auto& [bytes, name] : by_size) {
    const auto least = std::ranges::min_element(load);
    *least += bytes + 1;  // tensors without values take turns too
    if (least - load.begin() == task) mine.push_back(name);
  }
  return mine;
}

}  // namespace

CheckpointSaver::CheckpointSaver(std::shared_ptr<StrategyImpl> strategy, std::string folder,
                                 CheckpointSaverOptions options)
    : strategy_(std::move(strategy)), options_(options), store_(std::move(folder), options.store) {}

CheckpointSaver::~CheckpointSaver() = default;  // the futures of std::async wait

void CheckpointSaver::save(std::int64_t step, TrainingState state) {
  finish();
  begin(step);
  if (!pending_.error.empty()) return;
  under_way_ = true;
  meta_ = std::move(state.meta);
  std::vector<Shard> shards = part_of(std::move(state));
  if (tasks()) {
    writing_ = std::async(std::launch::async, [this, shards = std::move(shards)] { return write(shards); });
  } else {
    committing_ =
        std::async(std::launch::async, [this, shards = std::move(shards)] { commit_on_disk(write(shards)); });
  }
}

// The chief makes the temporary; its name, or what was wrong, is the same on every task.
void CheckpointSaver::begin(std::int64_t step) {
  pending_ = {};
  if (strategy_->is_chief()) {
    const std::int64_t failed = store_.counts().failed_in_a_row;
    if (options_.stop_after_failures > 0 && failed >= options_.stop_after_failures) {
      throw DataLoss(fmt::format("{} checkpoints in a row could not be saved to \"{}\": training stops",
                                 failed, store_.folder()));
    }
    if (generation_ == 0) {
      for (const CheckpointId& id : store_.list()) generation_ = std::max(generation_, id.generation);
      ++generation_;
    }
    pending_ = store_.begin({step, generation_});
    if (!pending_.error.empty()) report({.error = pending_.error});
  }
  if (!tasks()) return;
  pending_.folder = tasks()->broadcast_text("checkpoint (folder)", pending_.folder);
  pending_.error = tasks()->broadcast_text("checkpoint (error)", pending_.error);
}

bool CheckpointSaver::is_common_disk() const {
  if (!tasks()) return true;
  const bool seen = std::filesystem::is_directory(store_.folder() + "/" + pending_.folder);
  return tasks()->sum("checkpoint (disk)", {seen ? 1 : 0})[0] == tasks()->size();
}

// The first files have the plain names, for who opens them in Python; those after them the rest.
std::vector<CheckpointSaver::Shard> CheckpointSaver::part_of(TrainingState state) {
  const bool common_disk = is_common_disk();
  const int writers = tasks() && common_disk ? tasks()->size() : 1;
  const int me = tasks() ? tasks()->rank() : 0;
  num_shards_ = 2 * writers;
  if (!common_disk) {
    const auto of_all = tasks()->all_gather_any("checkpoint (own)", pack(state.own));
    state.own.clear();
    for (int rank = 0; rank < tasks()->size(); ++rank) {
      state.own.merge(unpack(of_all[static_cast<std::size_t>(rank)], tasks()->member(rank)));
    }
    if (me != 0) return {};
  }
  NamedTensors plain;
  NamedTensors rest;
  for (const auto& [name, tensor] : state.shared) (is_plain(name) ? plain : rest)[name] = tensor;
  std::vector<Shard> shards{{.index = me}, {.index = writers + me}};
  for (const std::string& name : names_for(me, writers, plain)) shards[0].tensors[name] = plain.at(name);
  for (const std::string& name : names_for(me, writers, rest)) shards[1].tensors[name] = rest.at(name);
  shards[1].tensors.merge(state.own);
  return shards;
}

// On a thread of its own.
std::vector<ShardSummary> CheckpointSaver::write(const std::vector<Shard>& shards) const {
  const TraceSpan span("write checkpoint");
  std::vector<ShardSummary> summaries;
  for (const Shard& shard : shards) {
    try {
      summaries.push_back(store_.write_shard(pending_.folder, {.index = shard.index, .count = num_shards_},
                                             bytes_of_all(shard.tensors)));
    } catch (const std::exception& error) {
      summaries.push_back({.index = shard.index, .count = num_shards_, .error = error.what()});
    }
  }
  return summaries;
}

// On a thread of its own.
void CheckpointSaver::commit_on_disk(std::vector<ShardSummary> summaries) {
  try {
    report(store_.commit(pending_, std::move(summaries), meta_));
    for (const std::string& warning : store_.prune().warnings) log_warning("{}", warning);
  } catch (const std::exception& error) {
    report({.error = fmt::format("checkpoint {} was not saved: {}", pending_.id.text(), error.what())});
  }
}

void CheckpointSaver::report(const SaveResult& result) {
  last_saved_ = result.folder;
  if (result.ok()) {
    last_good_ = pending_.id.text();
    return;
  }
  log_warning("{}; training goes on, {}", result.error,
              last_good_.empty() ? "nothing has been saved yet" : "the last good one is " + last_good_);
}

bool CheckpointSaver::wrote_its_part() const {
  return writing_.valid() && writing_.wait_for(std::chrono::seconds(0)) == std::future_status::ready;
}

void CheckpointSaver::commit() {
  if (!tasks() || !under_way_ || committing_.valid() || !writing_.valid()) return;
  std::string mine;
  for (const ShardSummary& summary : writing_.get()) {
    const std::string bytes = summary.to_bytes();
    mine += fmt::format("{:016x}", bytes.size()) + bytes;
  }
  const std::vector<std::string> of_all = tasks()->all_gather_text("checkpoint (parts)", mine);
  if (!strategy_->is_chief()) return;
  std::vector<ShardSummary> summaries;
  for (std::string_view parts : of_all) {
    while (!parts.empty()) {
      const std::size_t length = std::stoull(std::string(parts.substr(0, 16)), nullptr, 16);
      summaries.push_back(ShardSummary::from_bytes(parts.substr(16, length)));
      parts.remove_prefix(16 + length);
    }
  }
  committing_ = std::async(std::launch::async, [this, summaries = std::move(summaries)]() mutable {
    commit_on_disk(std::move(summaries));
  });
}

std::string CheckpointSaver::finish() {
  if (!under_way_) return last_saved_;
  commit();
  if (committing_.valid()) committing_.get();
  if (tasks()) last_saved_ = tasks()->broadcast_text("checkpoint (saved)", last_saved_);
  under_way_ = false;
  return last_saved_;
}

std::optional<LoadedCheckpoint> CheckpointSaver::load() {
  finish();
  LoadedCheckpoint loaded;
  std::string found;  // its folder
  std::string unusable;
  if (strategy_->is_chief()) {
    try {
      const auto restored = store_.restore([&](const Checkpoint& checkpoint) {
        loaded = {.id = checkpoint.id(), .folder = checkpoint.folder(), .meta = checkpoint.meta()};
        std::vector<TensorRequest> requests;
        for (const auto& [name, place] : checkpoint.tensors()) {
          const at::Tensor tensor = empty_like_entry(*place.tensor);
          loaded.tensors[std::string(name)] = tensor;
          requests.push_back({.name = std::string(name), .bytes = writable_bytes(tensor)});
        }
        checkpoint.read(requests);
      });
      if (restored) {
        for (const std::string& warning : restored->warnings) log_warning("{}", warning);
        found = loaded.folder;
        last_good_ = loaded.id.text();
      }
    } catch (const NoUsableCheckpoint& error) {
      unusable = error.what();
    }
  }
  if (tasks()) {
    unusable = tasks()->broadcast_text("restore (error)", unusable);
    found = tasks()->broadcast_text("restore", found);
  }
  if (!unusable.empty()) throw NoUsableCheckpoint(unusable);
  if (found.empty()) return {};
  if (tasks()) {
    loaded.folder = found;
    loaded.id = CheckpointId::parse(std::filesystem::path(found).filename().string()).value();
    loaded.meta = tasks()->broadcast_text("restore (meta)", loaded.meta);
    const at::Tensor line = tasks()->broadcast_bytes(
        "restore (values)", tasks()->is_chief() ? pack(loaded.tensors) : at::Tensor());
    if (!tasks()->is_chief()) loaded.tensors = unpack(line, tasks()->member(0));
  }
  return loaded;
}

void CheckpointSaver::remove_all() {
  finish();
  if (!strategy_->is_chief()) return;
  for (const std::string& warning : store_.remove_all().warnings) log_warning("{}", warning);
}

}  // namespace tandem::internal
