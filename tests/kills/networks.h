#pragma once

#include <sys/types.h>

#include <string>
#include <vector>

namespace tandem::testing_support {

// Machines without machines: network namespaces, each joined to a router in one more, none to the network
// outside. A namespace lives as long as a process that sleeps in it. Needs root, or user namespaces.
class Networks {
 public:
  explicit Networks(int nodes);
  ~Networks();
  Networks(const Networks&) = delete;

  std::string address(int node) const;
  // A process in the node's network.
  pid_t process(int node) const { return nodes_[static_cast<std::size_t>(node)]; }

  // Its packets are lost from now on, without a word.
  void cut_off(int node);

 private:
  pid_t router_ = -1;
  std::vector<pid_t> nodes_;
};

}  // namespace tandem::testing_support
