#pragma once

#include <sys/types.h>

#include <string>
#include <vector>

namespace tandem::testing_support {

// Machines without machines: network namespaces, each joined to a router in one more, none to the network
// outside. A namespace lives as long as a process that sleeps in it. Needs root, or user namespaces for
// everyone, as Debian has them.
class Networks {
 public:
  explicit Networks(int nodes);
  ~Networks();
  Networks(const Networks&) = delete;

  std::string address(int node) const;
  // What to put in front of a command for it to run there.
  std::vector<std::string> enter(int node) const {
    return enter_process(nodes_[static_cast<std::size_t>(node)]);
  }

  // Its packets are lost from now on, without a word.
  void cut_off(int node);

 private:
  std::vector<std::string> enter_process(pid_t process) const;
  void run_in(pid_t process, const std::string& command) const;

  const bool root_;
  pid_t router_ = -1;
  std::vector<pid_t> nodes_;
};

}  // namespace tandem::testing_support
