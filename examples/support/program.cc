#include "support/program.h"

#include <fmt/format.h>

#include <filesystem>

#include "tandem/error.h"

namespace tandem::examples {
namespace {

void require_positive(const char* flag, std::optional<std::int64_t> value) {
  if (value && *value < 1) throw InvalidArgument(fmt::format("--{} is {}: expected 1 or more", flag, *value));
}

}  // namespace

void TrainingFlags::add_to(CLI::App& app) {
  app.add_option("--data_dir", data_dir, "Folder with the data files");
  app.add_option("--distribution_strategy", distribution_strategy,
                 "off, one_device, mirrored or central_storage")
      ->capture_default_str();
  app.add_option("--num_gpus", devices.num_gpus, "Replicas on GPUs (0: all that are visible)");
  app.add_option("--num_cpus", devices.num_cpus,
                 "Replicas on logical CPU devices (0: one per core, 8 at most)");
  app.add_option("--threads_per_replica", devices.threads_per_replica,
                 "Threads of each CPU replica (0: its share of the cores)");
  app.add_option("--batch_size", batch_size, "Rows of one step, over all replicas")->capture_default_str();
  app.add_option("--train_epochs", train_epochs, "Passes over the training data");
  app.add_option("--train_steps", train_steps, "Optimizer steps in all");
  app.add_option("--seed", seed,
                 "For initial values, shuffling, augmentation and dropout; drawn if not given");
  app.add_flag("--skip_eval", skip_eval, "Do not evaluate on the test set");
  app.add_option("--on_nan", on_nan, "stop or continue when the loss is not a number")->capture_default_str();
  app.add_option("--metrics_json", metrics_json, "File for the final figures of the run");
}

void TrainingFlags::check() const {
  require_positive("batch_size", batch_size);
  require_positive("train_epochs", train_epochs);
  require_positive("train_steps", train_steps);
  if (on_nan != "stop" && on_nan != "continue") {
    throw InvalidArgument(fmt::format("--on_nan is \"{}\": expected stop or continue", on_nan));
  }
  if (!metrics_json.empty()) {
    const auto folder = std::filesystem::absolute(metrics_json).parent_path();
    if (!std::filesystem::is_directory(folder)) {
      throw InvalidArgument(
          fmt::format("--metrics_json {}: there is no folder \"{}\"", metrics_json, folder.string()));
    }
  }
}

std::int64_t TrainingFlags::epochs(std::int64_t default_epochs, std::int64_t steps_per_epoch) const {
  if (train_epochs) return *train_epochs;
  if (train_steps) return (*train_steps + steps_per_epoch - 1) / steps_per_epoch;
  return default_epochs;
}

}  // namespace tandem::examples
