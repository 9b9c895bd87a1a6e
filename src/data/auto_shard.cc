#include "data/auto_shard.h"

#include <fmt/format.h>

#include <functional>
#include <memory>
#include <utility>

#include "data/files_view.h"
#include "data/views.h"
#include "tandem/error.h"

namespace tandem::internal {
namespace {

// The first view of a chain, from its end, for which fn holds; null if there is none.
View find(View view, const std::function<bool(const DatasetView&)>& fn) {
  while (view && !fn(*view)) {
    const auto* derived = dynamic_cast<const DerivedView*>(view.get());
    view = derived ? derived->upstream_view() : nullptr;
  }
  return view;
}

// The chain with `part_of_old` in place of `old`.
View rebuilt(const View& view, const View& old, const View& part_of_old, const Part& part) {
  if (view == old) return part_of_old;
  const auto& derived = dynamic_cast<const DerivedView&>(*view);
  return derived.over(rebuilt(derived.upstream_view(), old, part_of_old, part), part);
}

bool is_files(const DatasetView& view) {
  return dynamic_cast<const FilesView*>(&view) != nullptr;
}

std::string count_files(std::int64_t files) {
  return fmt::format("{} file{}", files, files == 1 ? "" : "s");
}

// Shards one dataset for one of several workers.
class AutoShard {
 public:
  AutoShard(const Dataset& dataset, int workers, int worker)
      : dataset_(dataset), workers_(workers), worker_(worker) {}

  Sharded run() const {
    switch (dataset_.auto_shard_policy()) {
      case AutoShardPolicy::kAuto:
        return by_what_feeds_it();
      case AutoShardPolicy::kFile:
        return by_file("asked for");
      case AutoShardPolicy::kData:
        return by_data("asked for");
      case AutoShardPolicy::kOff:
        return off();
      case AutoShardPolicy::kHint:
        return by_hint();
    }
    throw InvalidArgument(fmt::format("auto-shard policy {}: there is no such policy",
                                      static_cast<int>(dataset_.auto_shard_policy())));
  }

 private:
  View files() const { return find(dataset_.view(), is_files); }

  static std::int64_t num_files(const View& files) {
    return static_cast<const FilesView&>(*files).num_files();
  }

  Sharded by_what_feeds_it() const {
    const View all = files();
    if (!all) return by_data("AUTO: no file reader feeds the pipeline");
    if (num_files(all) < workers_) {
      return by_data(
          fmt::format("AUTO: {} cannot be shared among {} workers", count_files(num_files(all)), workers_));
    }
    return by_file("AUTO: a file reader feeds the pipeline");
  }

  Sharded by_file(const std::string& why) const {
    const View all = files();
    if (!all) {
      throw InvalidArgument(
          "FILE sharding: the dataset is not read from files: begin it with Dataset::from_files(), or use "
          "AutoShardPolicy::kAuto or kData");
    }
    if (num_files(all) < workers_) {
      throw InvalidArgument(fmt::format(
          "FILE sharding: the dataset has {} for {} workers: expected at least one file for each, or "
          "AutoShardPolicy::kAuto or kData",
          count_files(num_files(all)), workers_));
    }
    const auto own = std::make_shared<FilesView>(static_cast<const FilesView&>(*all), workers_, worker_);
    return own_part(AutoShardPolicy::kFile, all, own,
                    fmt::format("input: FILE sharding ({}): worker {} of {} reads {} of {}", why, worker_,
                                workers_, own->num_files(), count_files(num_files(all))));
  }

  Sharded by_data(const std::string& why) const {
    return {.dataset = dataset_.with_auto_shard(AutoShardPolicy::kOff),
            .chosen = AutoShardPolicy::kData,
            .global_batches = true,
            .line = fmt::format(
                "input: DATA sharding ({}): worker {} of {} reads all the data and takes its rows "
                "of each batch",
                why, worker_, workers_)};
  }

  Sharded by_hint() const {
    const View hint = find(dataset_.view(), is_shard_hint);
    if (!hint) {
      throw InvalidArgument(
          "HINT sharding: the dataset has no shard_hint(): put it where the workers' ways part, or use "
          "AutoShardPolicy::kAuto");
    }
    const View& before = static_cast<const DerivedView&>(*hint).upstream_view();
    if (find(before, is_shard_hint)) {
      throw InvalidArgument(
          "HINT sharding: the dataset has more than one shard_hint(): expected one, as each leaves out the "
          "other workers' elements");
    }
    return own_part(
        AutoShardPolicy::kHint, hint, shard_view(before, workers_, worker_),
        fmt::format("input: HINT sharding (asked for): worker {} of {} reads elements {}, {}, ... of those "
                    "that reach shard_hint()",
                    worker_, workers_, worker_, worker_ + workers_));
  }

  Sharded off() const {
    return {.dataset = dataset_,
            .chosen = AutoShardPolicy::kOff,
            .global_batches = false,
            .line = fmt::format("input: no sharding (OFF, asked for): worker {} of {} trains on all the data",
                                worker_, workers_)};
  }

  Sharded own_part(AutoShardPolicy chosen, const View& old, const View& part_of_old, std::string line) const {
    const View view = rebuilt(dataset_.view(), old, part_of_old, {chosen, workers_, worker_});
    return {.dataset = Dataset(view).with_auto_shard(AutoShardPolicy::kOff),
            .chosen = chosen,
            .global_batches = false,
            .line = std::move(line)};
  }

  const Dataset& dataset_;
  int workers_;
  int worker_;
};

}  // namespace

Sharded auto_shard(const Dataset& dataset, int workers, int worker) {
  if (workers < 1 || worker < 0 || worker >= workers) {
    throw InvalidArgument(
        fmt::format("input for worker {} of {}: expected 0 to {}", worker, workers, workers - 1));
  }
  if (workers == 1) return {.dataset = dataset.with_auto_shard(AutoShardPolicy::kOff)};
  return AutoShard(dataset, workers, worker).run();
}

Dataset rebatch(const Dataset& dataset, std::vector<std::int64_t> sizes) {
  return Dataset(rebatch_view(dataset.view(), std::move(sizes))).with_auto_shard(dataset.auto_shard_policy());
}

}  // namespace tandem::internal
