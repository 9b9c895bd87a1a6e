#include "support/program.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <iostream>
#include <vector>

#include "tandem/error.h"

namespace tandem::examples {
namespace {

constexpr int kFailed = 1;
constexpr int kWrongInput = 2;

// "--train-steps=5" to "--train_steps=5"; values keep their dashes.
std::vector<std::string> with_underscores(int argc, char** argv) {
  std::vector<std::string> arguments;
  for (int i = 1; i < argc; ++i) {
    std::string argument = argv[i];
    if (argument.starts_with("--")) {
      const auto name_end = std::min(argument.find('='), argument.size());
      std::replace(argument.begin() + 2, argument.begin() + static_cast<std::ptrdiff_t>(name_end), '-', '_');
    }
    arguments.push_back(std::move(argument));
  }
  std::reverse(arguments.begin(), arguments.end());  // CLI11 reads a vector from its back
  return arguments;
}

int exit_code(const Error& error) {
  switch (error.code()) {
    case ErrorCode::kInvalidArgument:
    case ErrorCode::kNotFound:
    case ErrorCode::kDataLoss:
    case ErrorCode::kUnimplemented:
      return kWrongInput;
    default:
      return kFailed;
  }
}

std::string one_line(std::string text) {
  text.resize(std::min(text.find('\n'), text.size()));
  return text;
}

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

int run_program(CLI::App& app, int argc, char** argv, const std::function<void()>& body) {
  const auto complain = [&](const std::string& text) {
    std::cerr << app.get_name() << ": " << one_line(text) << std::endl;
  };
  try {
    app.parse(with_underscores(argc, argv));
    body();
    return 0;
  } catch (const CLI::CallForHelp&) {
    std::cout << app.help();
    return 0;
  } catch (const CLI::ParseError& error) {
    complain(std::string(error.what()) + " (--help lists the flags)");
    return kWrongInput;
  } catch (const Error& error) {
    complain(error.what());
    return exit_code(error);
  } catch (const std::exception& error) {
    complain(error.what());
    return kFailed;
  }
}

}  // namespace tandem::examples
