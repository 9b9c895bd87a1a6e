#include "kills/networks.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <sched.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <stdexcept>

namespace tandem::testing_support {
namespace {

void write_file(const std::string& path, const std::string& text) {
  std::ofstream file(path);
  if (!(file << text).flush()) throw std::runtime_error("cannot write " + path);
}

// Which users a new network belongs to.
struct Users {
  enum { kOurs, kNew, kOfProcess } which = kOurs;  // kNew: we are root among them
  pid_t process = -1;
};

// A process that sleeps in a network of its own.
pid_t sleeper_in_new_network(Users users) {
  std::array<int, 2> ready{};
  if (pipe(ready.data()) != 0) throw std::runtime_error("pipe failed");
  const std::string theirs = fmt::format("/proc/{}/ns/user", users.process);
  const pid_t child = fork();
  if (child < 0) throw std::runtime_error("fork failed");
  if (child == 0) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    bool done = users.which != Users::kOfProcess ||
                setns(open(theirs.c_str(), O_RDONLY | O_CLOEXEC), CLONE_NEWUSER) == 0;
    done = done && unshare(CLONE_NEWNET | (users.which == Users::kNew ? CLONE_NEWUSER : 0)) == 0;
    const char outcome = done ? 0 : static_cast<char>(errno);
    [[maybe_unused]] const auto written = write(ready[1], &outcome, 1);
    while (true) pause();
  }
  char outcome = 1;
  [[maybe_unused]] const auto got = read(ready[0], &outcome, 1);
  close(ready[0]);
  close(ready[1]);
  if (outcome != 0) {
    kill(child, SIGKILL);
    waitpid(child, nullptr, 0);
    throw std::runtime_error(fmt::format("no network namespace: {}; run as root", std::strerror(outcome)));
  }
  if (users.which == Users::kNew) {
    write_file(fmt::format("/proc/{}/setgroups", child), "deny");
    write_file(fmt::format("/proc/{}/uid_map", child), fmt::format("0 {} 1", getuid()));
    write_file(fmt::format("/proc/{}/gid_map", child), fmt::format("0 {} 1", getgid()));
  }
  return child;
}

}  // namespace

std::vector<std::string> Networks::enter_process(pid_t process) const {
  std::vector<std::string> command{"nsenter", "-t", std::to_string(process), "-n"};
  if (!root_) command.insert(command.end(), {"-U", "--preserve-credentials"});
  return command;
}

void Networks::run_in(pid_t process, const std::string& command) const {
  const std::string whole = fmt::format("{} {}", fmt::join(enter_process(process), " "), command);
  if (std::system(whole.c_str()) != 0) throw std::runtime_error("failed: " + whole);
}

Networks::Networks(int nodes) : root_(geteuid() == 0) {
  router_ = sleeper_in_new_network(root_ ? Users{} : Users{.which = Users::kNew});
  run_in(router_, "sh -c 'echo 1 > /proc/sys/net/ipv4/ip_forward'");
  for (int node = 0; node < nodes; ++node) {
    const pid_t process =
        sleeper_in_new_network(root_ ? Users{} : Users{.which = Users::kOfProcess, .process = router_});
    nodes_.push_back(process);
    run_in(router_, fmt::format("ip link add v{} type veth peer name eth0 netns {}", node, process));
    run_in(router_, fmt::format("ip addr add 10.77.{}.1/24 dev v{}", node, node));
    run_in(router_, fmt::format("ip link set v{} up", node));
    run_in(process, fmt::format("ip addr add {}/24 dev eth0", address(node)));
    run_in(process, "ip link set eth0 up");
    run_in(process, "ip link set lo up");
    run_in(process, fmt::format("ip route add default via 10.77.{}.1", node));
  }
}

Networks::~Networks() {
  nodes_.push_back(router_);
  for (const pid_t process : nodes_) {
    kill(process, SIGKILL);
    waitpid(process, nullptr, 0);
  }
}

std::string Networks::address(int node) const {
  return fmt::format("10.77.{}.2", node);
}

void Networks::cut_off(int node) {
  // On the router's side: the node still believes in its link, and gets no answer, not even an error.
  run_in(router_, fmt::format("ip link set v{} down", node));
}

}  // namespace tandem::testing_support
