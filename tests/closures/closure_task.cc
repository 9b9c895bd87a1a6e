// A worker of a coordinator, for tests that kill it; or a coordinator that is to be killed.
//
//   closure_task WORKER FOLDER
//   closure_task coordinator FOLDER
//
// A worker says in FOLDER where it is and with which key, then runs closures until there are no more. The
// argument of each is a text; see run() for what it does. The coordinator lets worker 0 wait for FOLDER/go.
#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <fstream>
#include <string>
#include <thread>

#include "base/file_descriptor.h"
#include "base/hmac.h"
#include "closures/where.h"
#include "ps/closure_server.h"
#include "tandem/error.h"

namespace {

using namespace tandem;
using namespace tandem::internal;
using namespace tandem::internal::ps;

// One line in the file of all that were begun, in one write.
void note(const std::string& folder, std::string_view number) {
  const FileDescriptor file(
      open((folder + "/begun").c_str(), O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0666));
  const std::string line = fmt::format("{}\n", number);
  if (write(file.get(), line.data(), line.size()) != static_cast<ssize_t>(line.size())) {
    throw Error(ErrorCode::kInternal, "cannot write");
  }
}

std::string run(const std::string& folder, const ClosureRequest& request) {
  const std::string argument(request.arguments);
  if (request.function == "square") {
    note(folder, argument);
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
    const long number = std::stol(argument);
    return std::to_string(number * number);
  }
  if (request.function == "wait_for_file") {
    note(folder, "waits");
    for (int tries = 0; tries < 20'000 && access(argument.c_str(), F_OK) != 0; ++tries) {
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    return std::to_string(getpid());
  }
  if (request.function == "refuse") throw InvalidArgument("no\nsuch thing as " + argument);
  return argument;
}

int work(int worker, const std::string& folder) {
  std::string key(32, '\0');
  random_bytes(key.data(), key.size());
  ClosureServer server({.worker = worker, .cluster_id = testing_support::kClosureCluster, .key = key});
  testing_support::tell_where(folder, worker, {server.address(), key});
  server.serve({.functions = {"echo", "refuse", "square", "wait_for_file"},
                .run = [&](const ClosureRequest& request) { return run(folder, request); },
                .coordinator_timeout = std::chrono::seconds(30)});
  return 0;
}

int coordinate(const std::string& folder) {
  ClosureDispatcher dispatcher(testing_support::dispatch_to(folder, 1));
  dispatcher.schedule("wait_for_file", folder + "/go");
  dispatcher.join();
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 3) return 2;
  try {
    const std::string who = argv[1];
    return who == "coordinator" ? coordinate(argv[2]) : work(std::stoi(who), argv[2]);
  } catch (const std::exception& error) {
    fmt::print("{}\n", error.what());
    return 1;
  }
}
