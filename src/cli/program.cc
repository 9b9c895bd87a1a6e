#include "cli/program.h"

#include <algorithm>
#include <iostream>
#include <string>
#include <vector>

#include "cluster/visible_cpus.h"
#include "tandem/error.h"

namespace tandem::internal {
namespace {

// "--train-steps=5" to "--train_steps=5"; values keep their dashes.
std::vector<std::string> with_underscores(int argc, char** argv) {
  std::vector<std::string> arguments(argv + 1, argv + argc);
  for (auto& argument : arguments) {
    if (argument == "--") break;
    if (!argument.starts_with("--")) continue;
    const auto name_end = std::min(argument.find('='), argument.size());
    std::replace(argument.begin() + 2, argument.begin() + static_cast<std::ptrdiff_t>(name_end), '-', '_');
  }
  std::reverse(arguments.begin(), arguments.end());  // CLI11 reads a vector from its back
  return arguments;
}

int exit_code(const Error& error) {
  if (dynamic_cast<const Preempted*>(&error)) return kExitPreempted;
  if (dynamic_cast<const NoUsableCheckpoint*>(&error)) return kExitNoCheckpoint;
  switch (error.code()) {
    case ErrorCode::kInvalidArgument:
    case ErrorCode::kNotFound:
    case ErrorCode::kDataLoss:
    case ErrorCode::kUnimplemented:
      return kExitWrongInput;
    case ErrorCode::kUnavailable:
      return kExitPeerLost;
    default:
      return kExitFailed;
  }
}

std::string first_line(std::string text) {
  text.resize(std::min(text.find('\n'), text.size()));
  return text;
}

}  // namespace

int run_program(CLI::App& app, int argc, char** argv, const std::function<int()>& body) {
  const auto complain = [&](const std::string& text) {
    std::cerr << app.get_name() << ": " << first_line(text) << std::endl;
  };
  try {
    app.parse(with_underscores(argc, argv));
    keep_to_visible_cpus();
    return body();
  } catch (const CLI::CallForHelp&) {
    std::cout << app.help();
    return kExitDone;
  } catch (const CLI::CallForVersion& version) {
    std::cout << version.what() << std::endl;
    return kExitDone;
  } catch (const CLI::ParseError& error) {
    complain(std::string(error.what()) + " (--help lists the flags)");
    return kExitWrongInput;
  } catch (const Error& error) {
    complain(error.what());
    return exit_code(error);
  } catch (const std::exception& error) {
    complain(error.what());
    return kExitFailed;
  }
}

}  // namespace tandem::internal
