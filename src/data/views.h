#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "data/dataset_view.h"
#include "tandem/dataset.h"

namespace tandem::internal {

using View = std::shared_ptr<const DatasetView>;

// Does a map's work on one element, for an iteration of the given seed. Called from several threads at once.
using ElementFunction = std::function<void(Element& element, std::uint64_t seed)>;

// One function per view; the class stays in its file. All throw InvalidArgument as Dataset's methods do.
View source_view(std::int64_t count, std::function<Batch(std::int64_t)> example);
View generator_view(std::function<std::function<std::optional<Batch>()>()> make, std::int64_t cardinality);
View files_view(std::vector<std::string> files, std::function<Dataset(const std::string&)> read,
                FilesOptions options);
View map_view(View upstream, ElementFunction fn, MapOptions options);
View shuffle_view(View upstream, std::int64_t buffer_size, ShuffleOptions options);
View batch_view(View upstream, std::int64_t size, BatchOptions options);
View repeat_view(View upstream, std::int64_t count);
View take_view(View upstream, std::int64_t count);
View skip_view(View upstream, std::int64_t count);
View shard_view(View upstream, std::int64_t num_shards, std::int64_t index);
View shard_hint_view(View upstream);
View cache_view(View upstream);
View prefetch_view(View upstream, std::int64_t count);
View rebatch_view(View upstream, std::vector<std::int64_t> sizes);

bool is_shard_hint(const DatasetView& view);

}  // namespace tandem::internal
