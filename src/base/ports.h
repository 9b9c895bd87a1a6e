#pragma once

#include <string>
#include <utility>
#include <vector>

#include "base/file_descriptor.h"

namespace tandem::internal {

// Free TCP ports of this machine, all different, for tasks about to start.
//
// A port cannot be handed to another process, only found free. Two things keep it so until the task binds it:
// it lies outside the range from which the kernel takes ports for outgoing connections, and as long as this
// object lives no other one on this machine, in whatever process, picks it.
class ReservedPorts {
 public:
  // `host` is a name or an address of this machine, on which the tasks will listen. Throws InvalidArgument if
  // it is not, Unavailable if there are too few.
  static ReservedPorts choose(const std::string& host, int count);

  // `first`, `first` + 1, ... Throws InvalidArgument if one does not exist, Unavailable if one is in use.
  static ReservedPorts from(const std::string& host, int first, int count);

  const std::vector<int>& ports() const { return ports_; }

 private:
  std::vector<int> ports_;
  std::vector<FileDescriptor> claims_;
};

// First and last port of each range to choose from, if the kernel takes low to high for itself.
std::vector<std::pair<int, int>> port_ranges_outside(int low, int high);

}  // namespace tandem::internal
