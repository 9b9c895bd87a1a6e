#pragma once

#include <cstdint>

namespace tandem::internal::ps {

// What a ps answers about one shard of a request.
enum class Status : std::uint8_t {
  // The push is settled: it has its number, and its sender goes on to the next one.
  kApplied,     // also: there is nothing to apply, or a pull is answered
  kRejected,    // its gradients are not finite, and the ps was told to leave those out
  kSuppressed,  // its closure was applied here already, on behalf of another worker
  kLate,        // the step was complete without it

  // Nothing changed, and the number is free.
  kGap,           // an earlier push is missing; last_seq says from where on to send
  kNotAdmitted,   // this process of the worker did not say hello, or a newer one did
  kOtherModel,    // its plan is another one
  kUnknownShard,  // not in the plan, or not on this ps
  kMalformed,     // wrong shape, dtype, length or row
  kDamaged,       // the checksum is of other bytes
  kNotReady,      // the chief has not initialised this ps yet
};
inline constexpr Status kLastStatus = Status::kNotReady;

constexpr bool settles(Status status) {
  return status <= Status::kLate;
}

const char* status_name(Status status);  // "applied", "gap", ...

}  // namespace tandem::internal::ps
