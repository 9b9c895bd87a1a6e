#pragma once

#include <sys/eventfd.h>

#include <cstdint>

#include "base/file_descriptor.h"

namespace tandem::internal {

// Wakes a thread from poll(). Any thread may ring.
class Bell {
 public:
  Bell() : event_(eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC)) {}

  int descriptor() const { return event_.get(); }
  void ring() const {
    const std::uint64_t one = 1;
    [[maybe_unused]] const auto ignored = ::write(event_.get(), &one, sizeof one);
  }
  // Whether it rang since the last time.
  bool heard() const {
    std::uint64_t count = 0;
    return ::read(event_.get(), &count, sizeof count) > 0;
  }

 private:
  FileDescriptor event_;
};

}  // namespace tandem::internal
