#include <fmt/chrono.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <CLI/CLI.hpp>
#include <chrono>
#include <filesystem>
#include <iostream>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "base/secret_file.h"
#include "base/text_table.h"
#include "checkpoint/checkpoint_store.h"
#include "cli/checkpoint_diff.h"
#include "cli/commands.h"
#include "cli/program.h"
#include "cli/tensor_set.h"
#include "cluster/text.h"
#include "tandem/error.h"

namespace tandem::internal {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;

struct CheckpointFlags {
  std::string path;
  std::vector<std::string> paths;
  std::string other;
  std::string output;
  std::string key_file;
  double tolerance = 0;
  int last = 0;
  bool json = false;

  std::string key() const { return key_file.empty() ? std::string() : read_token(key_file); }
};

std::string size_text(std::uint64_t bytes) {
  const char* const units[] = {"B", "kB", "MB", "GB", "TB"};
  double size = static_cast<double>(bytes);
  std::size_t unit = 0;
  for (; size >= 1000 && unit + 1 < std::size(units); ++unit) size /= 1000;
  return unit == 0 ? fmt::format("{} B", bytes) : fmt::format("{:.1f} {}", size, units[unit]);
}

std::string time_text(std::int64_t seconds) {
  return fmt::format("{:%Y-%m-%d %H:%M:%S}Z", fmt::gmtime(static_cast<std::time_t>(seconds)));
}

std::uint64_t bytes_of(const Manifest& manifest) {
  std::uint64_t bytes = 0;
  for (const ShardSummary& shard : manifest.shards) bytes += shard.bytes;
  return bytes;
}

std::string shape_text(const TensorEntry& tensor) {
  return fmt::format("[{}]", fmt::join(tensor.shape, ", "));
}

void print(const Json& json) {
  std::cout << json.dump(-1, ' ', false, Json::error_handler_t::replace) << "\n";
}

CheckpointStore store_of(const CheckpointFlags& flags) {
  if (!fs::is_directory(flags.path)) throw NotFound(fmt::format("there is no folder {}", quote(flags.path)));
  return CheckpointStore(flags.path, {.key = flags.key()});
}

// What can be said without reading values.
int list(const CheckpointFlags& flags) {
  const CheckpointStore store = store_of(flags);
  std::vector<std::vector<std::string>> rows{
      {"STEP", "GENERATION", "SAVED", "SIZE", "SHARDS", "TENSORS", "STATE"}};
  auto all = Json::array();
  for (const CheckpointId& id : store.list()) {
    Json json{{"step", id.step}, {"generation", id.generation}, {"folder", id.folder()}};
    try {
      const Checkpoint checkpoint = store.open(id);
      const Manifest& manifest = checkpoint.manifest();
      json.update({{"saved_at", manifest.saved_at},
                   {"bytes", bytes_of(manifest)},
                   {"shards", manifest.shards.size()},
                   {"tensors", checkpoint.tensors().size()},
                   {"error", nullptr}});
      rows.push_back({std::to_string(id.step), std::to_string(id.generation), time_text(manifest.saved_at),
                      size_text(bytes_of(manifest)), std::to_string(manifest.shards.size()),
                      std::to_string(checkpoint.tensors().size()), "complete"});
    } catch (const DataLoss& error) {
      json["error"] = error.what();
      rows.push_back(
          {std::to_string(id.step), std::to_string(id.generation), "-", "-", "-", "-", error.what()});
    }
    all.push_back(std::move(json));
  }
  if (flags.json) {
    print({{"folder", flags.path}, {"checkpoints", std::move(all)}});
  } else {
    std::cout << align_columns(rows, {true, true, false, true, true, true, false});
  }
  return kExitDone;
}

Json json_of(const TensorSet& set) {
  Json json;
  if (const Checkpoint* checkpoint = set.checkpoint()) {
    const Manifest& manifest = checkpoint->manifest();
    json = {{"folder", checkpoint->folder()},       {"step", manifest.id.step},
            {"generation", manifest.id.generation}, {"saved_at", manifest.saved_at},
            {"bytes", bytes_of(manifest)},          {"meta", Json::parse(manifest.meta)}};
    json["shards"] = Json::array();
    for (const ShardSummary& shard : manifest.shards) {
      json["shards"].push_back(
          {{"file", shard.file()}, {"bytes", shard.bytes}, {"tensors", shard.tensors.size()}});
    }
  } else {
    json = {{"file", set.name()}, {"metadata", set.file()->metadata()}};
  }
  json["tensors"] = Json::array();
  for (const auto& [name, tensor] : set.tensors()) {
    json["tensors"].push_back(
        {{"name", name}, {"dtype", tensor->dtype}, {"shape", tensor->shape}, {"bytes", tensor->bytes()}});
  }
  return json;
}

std::string text_of(const TensorSet& set) {
  std::string text;
  const Checkpoint* checkpoint = set.checkpoint();
  if (checkpoint) {
    const Manifest& manifest = checkpoint->manifest();
    text = fmt::format("checkpoint {}, saved {}, {} in {} shard{}\nmeta: {}\n", set.name(),
                       time_text(manifest.saved_at), size_text(bytes_of(manifest)), manifest.shards.size(),
                       manifest.shards.size() == 1 ? "" : "s", manifest.meta);
  } else {
    text = fmt::format("{}, {}\n", set.name(), size_text(set.bytes()));
    for (const auto& [key, value] : set.file()->metadata())
      text += fmt::format("{}: {}\n", quote(key), quote(value));
  }
  std::vector<std::vector<std::string>> rows{{"TENSOR", "DTYPE", "SHAPE", "BYTES", "SHARD"}};
  for (const auto& [name, tensor] : set.tensors()) {
    rows.push_back({std::string(name), tensor->dtype, shape_text(*tensor), std::to_string(tensor->bytes()),
                    checkpoint ? std::to_string(checkpoint->tensors().at(name).shard->index) : "-"});
  }
  return text + align_columns(rows, {false, false, false, true, true});
}

int inspect(const CheckpointFlags& flags) {
  const TensorSet set(flags.path, flags.key());
  if (flags.json) {
    print(json_of(set));
  } else {
    std::cout << text_of(set);
  }
  return kExitDone;
}

// One line; false if it is damaged.
bool verify_one(const std::string& path, const std::string& key) {
  try {
    const TensorSet set(path, key);
    if (!set.checkpoint()) {
      set.read();
      std::cout << fmt::format("{}: complete; this format has no checksums\n", path);
      return true;
    }
    const auto start = std::chrono::steady_clock::now();
    set.checkpoint()->verify(Checkpoint::From::kDisk);
    const std::chrono::duration<double> elapsed = std::chrono::steady_clock::now() - start;
    std::cout << fmt::format("{}: whole, {} read in {:.1f} s\n", path,
                             size_text(bytes_of(set.checkpoint()->manifest())), elapsed.count());
    return true;
  } catch (const DataLoss& error) {
    std::cout << fmt::format("{}: {}\n", path, error.what());
    return false;
  }
}

int verify(const CheckpointFlags& flags) {
  const std::string key = flags.key();
  bool whole = true;
  for (const std::string& path : flags.paths) {
    if (!fs::is_directory(path) || is_checkpoint_folder(path)) {
      whole = verify_one(path, key) && whole;
      continue;
    }
    const auto ids = CheckpointStore(path).list();
    if (ids.empty()) throw NoUsableCheckpoint(fmt::format("there is no checkpoint in {}", quote(path)));
    for (const CheckpointId& id : ids)
      whole = verify_one((fs::path(path) / id.folder()).string(), key) && whole;
  }
  return whole ? kExitDone : kExitNoCheckpoint;
}

int diff(const CheckpointFlags& flags) {
  const std::string key = flags.key();
  const Comparison comparison =
      compare(TensorSet(flags.path, key), TensorSet(flags.other, key), flags.tolerance);
  std::cout << comparison.text;
  return comparison.same ? kExitDone : kExitFailed;
}

std::vector<TensorSet> sets_to_average(const CheckpointFlags& flags, const std::string& key) {
  std::vector<TensorSet> sets;
  if (flags.last == 0) {
    for (const std::string& path : flags.paths) sets.emplace_back(path, key);
    return sets;
  }
  if (flags.paths.size() != 1 || !fs::is_directory(flags.paths[0])) {
    throw InvalidArgument("--last wants one folder of a run, whose newest checkpoints are taken");
  }
  auto ids = CheckpointStore(flags.paths[0]).list();
  if (ids.size() < static_cast<std::size_t>(flags.last)) {
    throw InvalidArgument(fmt::format("--last is {}: there are {} checkpoints in {}", flags.last, ids.size(),
                                      quote(flags.paths[0])));
  }
  ids.resize(static_cast<std::size_t>(flags.last));
  for (auto id = ids.rbegin(); id != ids.rend(); ++id)
    sets.emplace_back(flags.paths[0] + "/" + id->folder(), key);
  return sets;
}

int average(const CheckpointFlags& flags) {
  const std::string key = flags.key();
  const std::vector<TensorSet> sets = sets_to_average(flags, key);
  std::vector<std::string> names;
  for (const TensorSet& set : sets) names.push_back(set.name());
  const std::string sources = fmt::format("{}", fmt::join(names, ", "));
  const bool to_file = flags.output.ends_with(".safetensors");
  const Checkpoint* last = sets.back().checkpoint();
  if (!to_file && !last) {
    throw InvalidArgument(
        fmt::format("--output is {}: the mean of files is a file; give a name that ends in .safetensors",
                    quote(flags.output)));
  }
  CheckpointStore store(flags.output, {.key = key});
  if (!to_file && std::ranges::count(store.list(), last->id()) > 0) {
    throw InvalidArgument(fmt::format("{} has a checkpoint {} already: name another folder",
                                      quote(flags.output), last->id().text()));
  }
  const Average mean = average(sets);
  if (to_file) {
    PosixFileSystem files;
    write_safetensors(files, flags.output, mean.tensors, {{"format", "pt"}, {"average of", sources}});
  } else {
    Json meta = Json::parse(last->meta());
    meta["average_of"] = names;
    const SaveResult result = store.save(last->id(), mean.tensors, meta.dump());
    if (!result.ok()) throw Error(ErrorCode::kInternal, result.error);
  }
  std::cout << fmt::format("{}: the mean of {}\n", flags.output, sources);
  return kExitDone;
}

}  // namespace

Command add_checkpoint(CLI::App& app) {
  const auto flags = std::make_shared<CheckpointFlags>();
  CLI::App* const checkpoint =
      app.add_subcommand("checkpoint", "Looks at checkpoints, compares and averages them");
  checkpoint->require_subcommand(1);
  const auto add = [&](const char* name, const char* what) {
    CLI::App* const command = checkpoint->add_subcommand(name, what);
    command->add_option("--key_file", flags->key_file,
                        "The key that the checkpoints were signed with, in a file of mode 0600");
    return command;
  };
  const char* const kPath = "A checkpoint's folder, a run's (then its newest), or a .safetensors file";

  CLI::App* const ls_app = add("ls", "Lists the checkpoints of a run, newest first");
  ls_app->add_option("folder", flags->path, "The run's folder")->required();
  ls_app->add_flag("--json", flags->json, "One JSON object");

  CLI::App* const inspect_app = add("inspect", "Shows what a checkpoint holds");
  inspect_app->add_option("path", flags->path, kPath)->required();
  inspect_app->add_flag("--json", flags->json, "One JSON object");

  CLI::App* const verify_app = add("verify", "Reads every byte and checks it; of a run, every checkpoint");
  verify_app->add_option("path", flags->paths, kPath)->required();

  CLI::App* const diff_app = add("diff", "Compares two, tensor by tensor; ends with 1 if they differ");
  diff_app->add_option("a", flags->path, kPath)->required();
  diff_app->add_option("b", flags->other, kPath)->required();
  diff_app->add_option("--tolerance", flags->tolerance, "Values this far apart are the same")
      ->check(CLI::NonNegativeNumber);

  CLI::App* const average_app =
      add("average", "Writes the mean of several: floating-point values; others of the last");
  average_app->add_option("path", flags->paths, kPath)->required();
  average_app->add_option("--last", flags->last, "So many of the newest of one run")
      ->check(CLI::PositiveNumber);
  average_app
      ->add_option("--output", flags->output, "A name that ends in .safetensors, or the folder of a run")
      ->required();

  return {checkpoint, [=] {
            try {
              if (ls_app->parsed()) return list(*flags);
              if (inspect_app->parsed()) return inspect(*flags);
              if (verify_app->parsed()) return verify(*flags);
              if (diff_app->parsed()) return diff(*flags);
              return average(*flags);
            } catch (const DataLoss& error) {  // the exit code of what it means here
              throw NoUsableCheckpoint(error.what());
            }
          }};
}

}  // namespace tandem::internal
