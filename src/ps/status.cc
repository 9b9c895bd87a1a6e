#include "ps/status.h"

namespace tandem::internal::ps {

const char* status_name(Status status) {
  switch (status) {
    case Status::kApplied:
      return "applied";
    case Status::kRejected:
      return "rejected: not finite";
    case Status::kSuppressed:
      return "suppressed: its closure was applied already";
    case Status::kLate:
      return "late: the step was complete without it";
    case Status::kGap:
      return "gap: an earlier push is missing";
    case Status::kNotAdmitted:
      return "not admitted: another process of this worker is";
    case Status::kOtherModel:
      return "other model";
    case Status::kUnknownShard:
      return "unknown shard";
    case Status::kMalformed:
      return "malformed";
    case Status::kDamaged:
      return "damaged on the way";
    case Status::kNotReady:
      return "not ready: the chief has not initialised it yet";
  }
  return "unknown";
}

}  // namespace tandem::internal::ps
