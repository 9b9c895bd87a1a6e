#pragma once

#include <memory>
#include <string>
#include <vector>

#include "base/ports.h"
#include "orders.h"
#include "support/running_program.h"

namespace tandem::bench {

// The processes of one engine, which wait for orders. They end with this object.
class Group {
 public:
  // `communicators`: how many each process shall have, with one after the other of kAlgorithms.
  Group(std::string engine, int size, int communicators = 1);
  ~Group();

  // What one order took the slowest of them; bytes_sent is of the first. Throws what they said if one failed.
  Answer run(const Order& order);

 private:
  void start(const std::vector<std::string>& command);
  [[noreturn]] void complain();

  const std::string engine_;
  std::unique_ptr<internal::ReservedPorts> ports_;
  std::vector<std::unique_ptr<testing_support::RunningProgram>> programs_;
  std::vector<OrderSocket> members_;
};

}  // namespace tandem::bench
