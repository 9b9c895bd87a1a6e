#pragma once

#include <string>

#include "tandem/error.h"

namespace tandem::internal {

// As the type that stands for the code: an error that came from another process.
[[noreturn]] inline void throw_error(ErrorCode code, const std::string& message) {
  switch (code) {
    case ErrorCode::kCancelled:
      throw Cancelled(message);
    case ErrorCode::kInvalidArgument:
      throw InvalidArgument(message);
    case ErrorCode::kDeadlineExceeded:
      throw DeadlineExceeded(message);
    case ErrorCode::kNotFound:
      throw NotFound(message);
    case ErrorCode::kFailedPrecondition:
      throw FailedPrecondition(message);
    case ErrorCode::kAborted:
      throw Aborted(message);
    case ErrorCode::kOutOfRange:
      throw OutOfRange(message);
    case ErrorCode::kUnimplemented:
      throw Unimplemented(message);
    case ErrorCode::kUnavailable:
      throw Unavailable(message);
    case ErrorCode::kDataLoss:
      throw DataLoss(message);
    case ErrorCode::kUnknown:
    case ErrorCode::kInternal:
      break;
  }
  throw Error(code, message);
}

}  // namespace tandem::internal
