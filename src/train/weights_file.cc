#include <fmt/format.h>
#include <fmt/ranges.h>
#include <torch/torch.h>

#include <algorithm>
#include <filesystem>
#include <functional>
#include <iterator>
#include <span>
#include <string>
#include <vector>

#include "base/log.h"
#include "checkpoint/checkpoint_store.h"
#include "checkpoint/float_values.h"
#include "checkpoint/tensors.h"
#include "cluster/text.h"
#include "strategy/strategy_impl.h"
#include "tandem/error.h"
#include "tandem/model.h"
#include "train/chief_does.h"
#include "train/model_state.h"
#include "train/packed_tensors.h"
#include "train/training_state.h"

namespace tandem {
namespace {

using internal::NamedTensors;
using internal::TensorEntry;

// What a file or a checkpoint has, and how to read it.
struct WeightsSource {
  std::string path;
  std::vector<TensorEntry> tensors;
  std::function<void(std::span<const internal::TensorRequest>)> read;
};

// The model's own tensors, for their shapes and dtypes.
NamedTensors tensors_by_name(const internal::Variables& variables) {
  NamedTensors tensors;
  for (const auto& [name, tensor] : variables.copy(0).parameters) tensors[name] = tensor;
  for (const auto& [name, tensor] : variables.copy(0).buffers) tensors[name] = tensor;
  return tensors;
}

// `3 ("a", "b", "c")`, the first few of them.
std::string listed(const std::vector<std::string>& names) {
  constexpr std::size_t kShown = 5;
  std::vector<std::string> shown;
  for (std::size_t i = 0; i < names.size() && i < kShown; ++i) shown.push_back(internal::quote(names[i]));
  if (names.size() > kShown) shown.push_back("...");
  return fmt::format("{} ({})", names.size(), fmt::join(shown, ", "));
}

bool fits(const TensorEntry& entry, const std::string& dtype, const at::Tensor& tensor) {
  if (at::IntArrayRef(entry.shape) != tensor.sizes()) return false;
  return entry.dtype == dtype || (internal::is_float(entry.dtype) && internal::is_float(dtype));
}

// How a file and a model differ. A file for another model does so in many places: all are told at once.
struct Comparison {
  std::vector<const TensorEntry*> fitting;
  std::vector<std::string> misfits;     // both have it, in another shape or dtype: what each has
  std::vector<std::string> unexpected;  // only the file has it
  std::vector<std::string> missing;     // only the model has it
};

Comparison compare_weights(const WeightsSource& source, const NamedTensors& model) {
  Comparison both;
  std::vector<at::Tensor> found;
  for (const TensorEntry& entry : source.tensors) {
    const auto ours = model.find(entry.name);
    if (ours == model.end()) {
      both.unexpected.push_back(entry.name);
      continue;
    }
    const at::Tensor& tensor = ours->second;
    found.push_back(tensor);
    const std::string dtype = internal::dtype_name(entry.name, tensor.scalar_type());
    if (fits(entry, dtype, tensor)) {
      both.fitting.push_back(&entry);
      continue;
    }
    both.misfits.push_back(fmt::format("{} is {} [{}] where the model has {} [{}]",
                                       internal::quote(entry.name), entry.dtype, fmt::join(entry.shape, ", "),
                                       dtype, fmt::join(tensor.sizes(), ", ")));
  }
  for (const auto& [name, tensor] : model) {
    // One name of tied weights is enough.
    if (std::ranges::none_of(found, [&](const at::Tensor& one) { return one.is_same(tensor); })) {
      both.missing.push_back(name);
    }
  }
  return both;
}

// The first few, and how many more.
std::vector<std::string> shortened(std::vector<std::string> misfits) {
  constexpr std::size_t kShown = 3;
  if (misfits.size() <= kShown) return misfits;
  const std::size_t more = misfits.size() - kShown;
  misfits.resize(kShown);
  misfits.push_back(fmt::format("{} more have other shapes or dtypes", more));
  return misfits;
}

void check_fits(const Comparison& both, const LoadWeightsOptions& options, const std::string& path) {
  std::vector<std::string> faults;
  std::vector<std::string> ways;
  if (options.expect_partial) {
    if (both.fitting.empty() && both.misfits.empty()) {
      faults.push_back("none of its names is in the model: " + listed(both.unexpected));
    }
  } else {
    if (!both.missing.empty()) faults.push_back("it lacks " + listed(both.missing));
    if (!both.unexpected.empty()) faults.push_back("the model has no " + listed(both.unexpected));
    if (!faults.empty()) ways.emplace_back("expect_partial");
  }
  if (!both.misfits.empty() && (!options.skip_mismatch || both.fitting.empty())) {
    const auto misfits = shortened(both.misfits);
    faults.insert(faults.end(), misfits.begin(), misfits.end());
    ways.emplace_back("skip_mismatch");
  }
  if (faults.empty()) return;
  throw InvalidArgument(fmt::format(
      "{} does not fit the model: {}{}", path, fmt::join(faults, "; "),
      both.fitting.empty() ? "" : fmt::format(" (to load what fits: {})", fmt::join(ways, ", "))));
}

// Those that the model has.
NamedTensors read_weights(const WeightsSource& source, const NamedTensors& model,
                          const LoadWeightsOptions& options) {
  const Comparison both = compare_weights(source, model);
  check_fits(both, options, source.path);
  if (!both.misfits.empty()) {
    internal::log_info("{} of {} tensors of {} are loaded, the others are left as they were: {}",
                       both.fitting.size(), source.tensors.size(), source.path,
                       fmt::join(shortened(both.misfits), "; "));
  }
  NamedTensors values;
  std::vector<internal::TensorRequest> requests;
  for (const TensorEntry* entry : both.fitting) {
    const at::Tensor value = internal::empty_like_entry(*entry);
    requests.push_back({entry->name, internal::writable_bytes(value)});
    values[entry->name] = value;
  }
  source.read(requests);
  return values;
}

WeightsSource weights_of(const internal::SafetensorsFile& file, const std::string& path) {
  WeightsSource source{path, {}, [&file](std::span<const internal::TensorRequest> requests) {
                         for (const auto& request : requests)
                           file.read(*file.find(request.name), request.bytes);
                       }};
  std::ranges::copy_if(file.tensors(), std::back_inserter(source.tensors), internal::is_plain,
                       &TensorEntry::name);
  return source;
}

WeightsSource weights_of(const internal::Checkpoint& checkpoint) {
  WeightsSource source{checkpoint.folder(), {}, [&checkpoint](auto requests) { checkpoint.read(requests); }};
  for (const auto& [name, place] : checkpoint.tensors()) {
    if (internal::is_plain(place.tensor->name)) source.tensors.push_back(*place.tensor);
  }
  return source;
}

NamedTensors read_from(const std::string& path, const NamedTensors& model,
                       const LoadWeightsOptions& options) {
  const auto files = std::make_shared<internal::PosixFileSystem>();
  if (!std::filesystem::is_directory(path)) {
    return read_weights(weights_of(internal::SafetensorsFile(*files, path), path), model, options);
  }
  const std::filesystem::path folder = std::filesystem::canonical(path);
  if (internal::CheckpointId::parse(folder.filename().string())) {
    return read_weights(weights_of(internal::Checkpoint(*files, folder.string())), model, options);
  }
  NamedTensors values;
  const auto restored = internal::CheckpointStore(folder.string(), {.files = files})
                            .restore([&](const internal::Checkpoint& checkpoint) {
                              values = read_weights(weights_of(checkpoint), model, options);
                            });
  if (!restored) {
    throw NotFound(fmt::format(
        "there is no checkpoint in folder {}: expected a safetensors file, a checkpoint or their folder",
        internal::quote(path)));
  }
  for (const std::string& warning : restored->warnings) internal::log_warning("{}", warning);
  return values;
}

}  // namespace

void Model::save_weights(const std::string& path) const {
  const NamedTensors all = values();
  internal::chief_does(state_->strategy.impl(), "save_weights", [&] {
    internal::PosixFileSystem files;
    // What Python's own writer for PyTorch says; some of its readers ask for it.
    internal::write_safetensors(files, path, internal::bytes_of_all(all), {{"format", "pt"}});
  });
}

void Model::load_weights(const std::string& path, LoadWeightsOptions options) {
  internal::StrategyImpl& impl = state_->strategy.impl();
  NamedTensors loaded;
  internal::chief_does(impl, "load_weights",
                       [&] { loaded = read_from(path, tensors_by_name(*state_->variables), options); });
  if (!impl.takes_part_in_saving()) return;
  impl.or_stop_all([&] {
    if (internal::SyncGroup* tasks = impl.tasks()) {
      const at::Tensor line =
          tasks->broadcast_bytes("load_weights", tasks->is_chief() ? internal::pack(loaded) : at::Tensor());
      if (!tasks->is_chief()) loaded = internal::unpack(line, tasks->member(0));
    }
    set_values(loaded);
  });
}

}  // namespace tandem
