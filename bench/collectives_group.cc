#include "collectives_group.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <filesystem>

#include "tandem/error.h"

namespace tandem::bench {
namespace {

constexpr std::chrono::milliseconds kStartTimeout = std::chrono::seconds(20);
constexpr std::chrono::milliseconds kOrderTimeout = std::chrono::seconds(60);

// All on this machine, whatever its number of cores.
std::vector<std::string> mpirun(int size) {
  std::vector<std::string> command = {"mpirun",          "-n",        std::to_string(size),
                                      "--oversubscribe", "--mca",     "plm",
                                      "isolated",        "--bind-to", "none"};
  if (geteuid() == 0) command.push_back("--allow-run-as-root");
  return command;
}

}  // namespace

Group::Group(std::string engine, int size, int communicators) : engine_(std::move(engine)) {
  OrderListener listener;
  const bool in_process = engine_ == "in process";
  const int processes = in_process ? 1 : size;
  if (in_process) {
    start({TANDEM_BIN "/bench_one_machine", "--all_reduce_worker", listener.name()});
  } else {
    const std::string this_program = std::filesystem::read_symlink("/proc/self/exe");
    std::vector<std::string> member = {this_program,         "--member", engine_,        "--size",
                                       std::to_string(size), "--orders", listener.name()};
    if (engine_ == "mpi") {
      std::vector<std::string> command = mpirun(size);
      command.insert(command.end(), member.begin(), member.end());
      start(command);
    } else {
      ports_ = std::make_unique<internal::ReservedPorts>(
          internal::ReservedPorts::choose("127.0.0.1", size * communicators));
      member.push_back("--ports");
      member.push_back(fmt::format("{}", fmt::join(ports_->ports(), ",")));
      for (int rank = 0; rank < size; ++rank) {
        std::vector<std::string> command = member;
        command.insert(command.end(), {"--rank", std::to_string(rank)});
        start(command);
      }
    }
  }
  std::vector<std::pair<int, OrderSocket>> dialled;
  try {
    while (static_cast<int>(dialled.size()) < processes) dialled.push_back(listener.accept(kStartTimeout));
  } catch (const Error&) {
    complain();
  }
  std::ranges::sort(dialled, {}, [](const auto& member) { return member.first; });
  for (auto& [rank, socket] : dialled) members_.push_back(std::move(socket));
}

Group::~Group() {
  members_.clear();
  for (const auto& program : programs_) {
    try {
      program->wait(5);
    } catch (const std::exception&) {  // it is ended all the same
    }
  }
}

Answer Group::run(const Order& order) {
  Answer slowest;
  try {
    for (OrderSocket& member : members_) member.send(order);
    for (std::size_t rank = 0; rank < members_.size(); ++rank) {
      const auto answer = members_[rank].receive<Answer>(kOrderTimeout);
      if (!answer) throw Unavailable("gone");
      slowest.seconds = std::max(slowest.seconds, answer->seconds);
      if (rank == 0) slowest.bytes_sent = answer->bytes_sent;
    }
  } catch (const Error&) {
    complain();
  }
  return slowest;
}

void Group::start(const std::vector<std::string>& command) {
  programs_.push_back(std::make_unique<testing_support::RunningProgram>(command));
}

// What the processes printed says why.
void Group::complain() {
  members_.clear();
  std::string said;
  for (const auto& program : programs_) {
    try {
      program->wait(2);
    } catch (const std::exception&) {
    }
    said += program->out;
  }
  throw Error(ErrorCode::kInternal,
              fmt::format("the processes of \"{}\" failed, and said:\n{}", engine_, said));
}

}  // namespace tandem::bench
