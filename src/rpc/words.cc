#include "rpc/words.h"

namespace tandem::internal {
namespace {

constexpr Time kSilent{600};  // as long as a task may be silent before it is suspect

}  // namespace

const char* name_of(Evidence evidence) {
  switch (evidence) {
    case Evidence::kDead:
      return "dead";
    case Evidence::kRestarted:
      return "restarted";
    case Evidence::kUnreachable:
      return "unreachable";
    case Evidence::kLink:
      return "link";
    case Evidence::kLeft:
      return "left";
    case Evidence::kStalled:
      return "stalled";
    case Evidence::kNone:
      break;
  }
  return "none";
}

const char* story_of(Evidence evidence) {
  switch (evidence) {
    case Evidence::kDead:
      return "is dead: its connection broke and its port refuses new ones";
    case Evidence::kRestarted:
      return "was restarted: another process answers at its address";
    case Evidence::kUnreachable:
      return "is unreachable: nobody who was asked hears it";
    case Evidence::kLink:
      return "cannot hear another task that others hear";
    case Evidence::kLeft:
      return "left before the end";
    case Evidence::kStalled:
      return "stood still for so long that the others ended without it";
    case Evidence::kNone:
      break;
  }
  return "is lost";
}

const char* state_of(const Sighting& sighting) {
  if (sighting.lost != Evidence::kNone) return name_of(sighting.lost);
  switch (sighting.phase) {
    case Phase::kAbsent:
      return "missing";
    case Phase::kJoining:
      return "joining";
    case Phase::kReady:
      return "ready";
    case Phase::kRunning:
      return sighting.silence > kSilent ? "silent" : "running";
    case Phase::kDone:
      return "done";
    case Phase::kLeft:
      return "left";
    case Phase::kStopped:
      return "stopped";
  }
  return "unknown";
}

}  // namespace tandem::internal
