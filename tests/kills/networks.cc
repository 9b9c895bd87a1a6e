#include "kills/networks.h"

#include <fmt/format.h>
#include <sched.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <stdexcept>

namespace tandem::testing_support {
namespace {

pid_t sleeper_in_new_network() {
  std::array<int, 2> ready{};
  if (pipe(ready.data()) != 0) throw std::runtime_error("pipe failed");
  const pid_t child = fork();
  if (child < 0) throw std::runtime_error("fork failed");
  if (child == 0) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    const char outcome = unshare(CLONE_NEWNET) == 0 ? 0 : static_cast<char>(errno);
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
  return child;
}

void run_in(pid_t network, const std::string& command) {
  const std::string whole = fmt::format("nsenter -t {} -n {}", network, command);
  if (std::system(whole.c_str()) != 0) throw std::runtime_error("failed: " + whole);
}

}  // namespace

Networks::Networks(int nodes) {
  router_ = sleeper_in_new_network();
  run_in(router_, "sh -c 'echo 1 > /proc/sys/net/ipv4/ip_forward'");
  for (int node = 0; node < nodes; ++node) {
    const pid_t process = sleeper_in_new_network();
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
  // A route that swallows, and a link that is down on the far side only: no packet is answered with an error.
  run_in(router_, fmt::format("ip link set v{} down", node));
}

}  // namespace tandem::testing_support
