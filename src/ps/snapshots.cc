#include "ps/snapshots.h"

#include <fmt/format.h>

#include <cstring>
#include <nlohmann/json.hpp>
#include <utility>
#include <vector>

#include "base/log.h"
#include "tandem/error.h"

namespace tandem::internal::ps {
namespace {

// Small shards share a file: each costs a sync.
constexpr std::size_t kFileBytes = std::size_t{8} << 20;

std::string tensor_name(std::size_t shard, const std::string& what) {
  return fmt::format("shard.{}.{}", shard, what);
}
std::string state_prefix(std::size_t shard) {
  return tensor_name(shard, "state.");
}

Bytes bytes_of(const std::string& text) {
  return std::as_bytes(std::span(text));
}

TensorBytes text_tensor(std::string name, const std::string& text) {
  return {std::move(name), "U8", {static_cast<std::int64_t>(text.size())}, bytes_of(text)};
}

// What is kept of a shard beside its tensors.
struct Numbers {
  std::uint64_t version;
  std::uint64_t updates;
  std::uint64_t step;
};

// The shards of one file, copied.
struct FileContents {
  std::vector<Staging::Buffer> buffers = {};
  std::vector<std::pair<std::size_t, std::vector<PushMark>>> marks = {};
  std::deque<std::string> texts = {};  // of ledgers and numbers; a deque, since tensors point into it
  std::vector<TensorBytes> tensors = {};
};

std::size_t bytes_of(const ShardTable::Saved& saved) {
  std::size_t bytes = saved.values.size();
  for (const StateTensor& state : saved.state) bytes += state.bytes.size();
  return bytes;
}

// `copy_to` empty: the tensors point to the shard itself.
void add_shard(FileContents& file, const PlacementPlan& plan, std::size_t shard,
               const ShardTable::Saved& saved, std::span<std::byte> copy_to) {
  const auto keep = [&](std::span<const std::byte> bytes) -> Bytes {
    if (copy_to.empty() || bytes.empty()) return bytes;
    const auto copy = copy_to.first(bytes.size());
    std::memcpy(copy.data(), bytes.data(), bytes.size());
    copy_to = copy_to.subspan(bytes.size());
    return copy;
  };
  const auto& variable = plan.variables()[static_cast<std::size_t>(plan.shards()[shard].variable)];
  file.tensors.push_back(
      {tensor_name(shard, "values"), variable.dtype, plan.shard_shape(shard), keep(saved.values)});
  for (const StateTensor& state : saved.state) {
    file.tensors.push_back({state_prefix(shard) + state.name, state.dtype, state.shape, keep(state.bytes)});
  }
  const Numbers numbers{saved.version, saved.updates, saved.step};
  file.texts.emplace_back(reinterpret_cast<const char*>(&numbers), sizeof numbers);
  file.tensors.push_back(text_tensor(tensor_name(shard, "numbers"), file.texts.back()));
  file.texts.push_back(saved.ledger);
  file.tensors.push_back(text_tensor(tensor_name(shard, "ledger"), file.texts.back()));
  file.marks.emplace_back(shard, saved.marks);
}

// Which shards go into which file: by their values' size, in order.
std::vector<std::vector<std::size_t>> files_of(const ShardTable& table) {
  std::vector<std::vector<std::size_t>> files(1);
  std::uint64_t bytes = 0;
  for (const std::size_t id : table.ids()) {
    const std::uint64_t more = table.plan().shards()[id].bytes;
    if (!files.back().empty() && bytes + more > kFileBytes) {
      files.emplace_back();
      bytes = 0;
    }
    files.back().push_back(id);
    bytes += more;
  }
  return files;
}

std::string read_text(const Checkpoint& checkpoint, const std::string& name) {
  const TensorEntry* entry = checkpoint.find(name);
  if (!entry) throw DataLoss(fmt::format("a snapshot without \"{}\"", name));
  std::string text(entry->bytes(), '\0');
  const TensorRequest request{.name = name, .bytes = std::as_writable_bytes(std::span(text))};
  checkpoint.read(std::span(&request, 1));
  return text;
}

}  // namespace

Snapshots::Snapshots(std::string folder, int ps) : store_(std::move(folder), {.keep = 2}), ps_(ps) {}

std::string Snapshots::save(ShardTable& table, Staging& staging, const std::set<int>& finished,
                            const std::function<bool()>& stop) {
  const auto files = files_of(table);
  PendingSave pending = store_.begin({.step = next_, .generation = 0});
  if (pending.folder.empty()) return pending.error;
  ++next_;
  const std::string plan = table.plan().to_json();
  std::vector<ShardSummary> summaries;
  std::vector<std::pair<std::size_t, std::vector<PushMark>>> marks;
  for (std::size_t i = 0; i < files.size(); ++i) {
    FileContents file;
    const ShardPlace place{.index = static_cast<int>(i), .count = static_cast<int>(files.size())};
    if (i == 0) {
      file.tensors.push_back(text_tensor("plan", plan));
      file.tensors.push_back(text_tensor("optimizer", table.optimizer()));
    }
    for (const std::size_t shard : files[i]) {
      std::size_t bytes = 0;
      table.save(shard, [&](const ShardTable::Saved& saved) { bytes = bytes_of(saved); });
      // A file has several shards only if they are small, and then they fit together.
      if (bytes > staging.budget()) {
        table.save(shard, [&](const ShardTable::Saved& saved) {
          add_shard(file, table.plan(), shard, saved, {});
          summaries.push_back(store_.write_shard(pending.folder, place, file.tensors));
        });
        break;
      }
      auto buffer = staging.take(bytes, stop);
      if (!buffer) {
        store_.abandon(pending);
        return "stopped";
      }
      // State grows at most once, with the first update.
      table.save(shard, [&](const ShardTable::Saved& saved) {
        if (bytes_of(saved) <= bytes) add_shard(file, table.plan(), shard, saved, buffer->bytes());
      });
      file.buffers.push_back(std::move(*buffer));
    }
    marks.insert(marks.end(), file.marks.begin(), file.marks.end());
    if (summaries.size() == i) summaries.push_back(store_.write_shard(pending.folder, place, file.tensors));
  }
  if (marks.size() != table.ids().size()) {
    store_.abandon(pending);
    return "the optimizer's state grew meanwhile";
  }
  const nlohmann::json meta{{"ps", ps_}, {"finished", finished}};
  const SaveResult result = store_.commit(std::move(pending), std::move(summaries), meta.dump());
  if (!result.ok()) return result.error;
  for (const auto& [shard, mark] : marks) table.set_durable(shard, mark);
  ++saved_;
  for (const std::string& warning : store_.prune().warnings) log_warning("ps {}: {}", ps_, warning);
  return {};
}

std::optional<std::set<int>> Snapshots::load(ShardTable& table) {
  std::set<int> finished;
  const auto restored = store_.restore([&](const Checkpoint& checkpoint) {
    const auto meta = nlohmann::json::parse(checkpoint.meta());
    if (meta.at("ps") != ps_) {
      throw FailedPrecondition(fmt::format("{} has the snapshots of ps {}, not of ps {}", store_.folder(),
                                           meta.at("ps").get<int>(), ps_));
    }
    finished = meta.at("finished").get<std::set<int>>();
    table.create(PlacementPlan::from_json(read_text(checkpoint, "plan")), ps_,
                 read_text(checkpoint, "optimizer"));
    std::vector<TensorRequest> requests;
    std::deque<std::vector<std::byte>> memory;
    std::vector<std::vector<StateTensor>> states;
    std::vector<std::pair<std::string, std::string>> texts;
    for (const std::size_t shard : table.ids()) {
      requests.push_back({.name = tensor_name(shard, "values"), .bytes = table.memory(shard)});
      auto& state = states.emplace_back();
      const std::string prefix = state_prefix(shard);
      for (auto at = checkpoint.tensors().lower_bound(prefix);
           at != checkpoint.tensors().end() && at->first.starts_with(prefix); ++at) {
        const TensorEntry& entry = *at->second.tensor;
        auto& bytes = memory.emplace_back(entry.bytes());
        requests.push_back({.name = entry.name, .bytes = bytes});
        state.push_back({entry.name.substr(prefix.size()), entry.dtype, entry.shape, bytes});
      }
      texts.emplace_back(read_text(checkpoint, tensor_name(shard, "numbers")),
                         read_text(checkpoint, tensor_name(shard, "ledger")));
    }
    checkpoint.read(requests);
    for (std::size_t i = 0; i < table.ids().size(); ++i) {
      Numbers numbers{};
      if (texts[i].first.size() != sizeof numbers) throw DataLoss("a snapshot with other numbers");
      std::memcpy(&numbers, texts[i].first.data(), sizeof numbers);
      table.restore(table.ids()[i], {.version = numbers.version,
                                     .updates = numbers.updates,
                                     .step = numbers.step,
                                     .ledger = texts[i].second,
                                     .state = states[i]});
    }
  });
  const auto all = store_.list();
  if (!all.empty()) next_ = all.front().step + 1;
  if (!restored) return std::nullopt;
  for (const std::string& warning : restored->warnings) log_warning("ps {}: {}", ps_, warning);
  return finished;
}

}  // namespace tandem::internal::ps
