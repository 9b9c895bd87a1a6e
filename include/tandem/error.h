#pragma once

#include <stdexcept>
#include <string>

namespace tandem {

// gRPC's canonical codes, so that an error keeps its meaning when it crosses a process boundary.
enum class ErrorCode {
  kCancelled = 1,
  kUnknown = 2,
  kInvalidArgument = 3,
  kDeadlineExceeded = 4,
  kNotFound = 5,
  kFailedPrecondition = 9,
  kAborted = 10,
  kOutOfRange = 11,
  kUnimplemented = 12,
  kInternal = 13,
  kUnavailable = 14,
  kDataLoss = 15,
};

// What tandem throws. The message is one line: what is wrong, where, what was expected, how to mend it.
class Error : public std::runtime_error {
 public:
  Error(ErrorCode code, const std::string& message) : std::runtime_error(message), code_(code) {}

  ErrorCode code() const noexcept { return code_; }

 private:
  ErrorCode code_;
};

namespace internal {

template <ErrorCode kCode>
class ErrorOf : public Error {
 public:
  explicit ErrorOf(const std::string& message) : Error(kCode, message) {}
};

}  // namespace internal

// One type for each case that a caller can act upon.
using Cancelled = internal::ErrorOf<ErrorCode::kCancelled>;  // it was not done, because something else failed
using InvalidArgument = internal::ErrorOf<ErrorCode::kInvalidArgument>;
using NotFound = internal::ErrorOf<ErrorCode::kNotFound>;
using FailedPrecondition = internal::ErrorOf<ErrorCode::kFailedPrecondition>;
using DataLoss = internal::ErrorOf<ErrorCode::kDataLoss>;                  // a file is damaged
using OutOfRange = internal::ErrorOf<ErrorCode::kOutOfRange>;              // the data has ended
using Unimplemented = internal::ErrorOf<ErrorCode::kUnimplemented>;        // not in this build
using Unavailable = internal::ErrorOf<ErrorCode::kUnavailable>;            // a peer is gone
using DeadlineExceeded = internal::ErrorOf<ErrorCode::kDeadlineExceeded>;  // a wait took too long
using Aborted = internal::ErrorOf<ErrorCode::kAborted>;                    // another replica or task failed

// There are checkpoints, but none that can be used: starting from nothing would throw their work away.
class NoUsableCheckpoint : public DataLoss {
 public:
  using DataLoss::DataLoss;
};

// The training was told to go (SIGTERM), and has stopped where it can go on later. A program that is to be
// started again ends with a code of its own then: 42.
class Preempted : public Error {
 public:
  explicit Preempted(const std::string& message) : Error(ErrorCode::kCancelled, message) {}
};

// The loss of a training step is infinite or not a number.
class NonFiniteLoss : public Error {
 public:
  explicit NonFiniteLoss(const std::string& message) : Error(ErrorCode::kInternal, message) {}
};

}  // namespace tandem
