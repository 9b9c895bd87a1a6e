#pragma once

#include <chrono>
#include <memory>

#include "strategy/ps_session.h"
#include "strategy/updater.h"
#include "tandem/placement.h"

namespace tandem::internal {

struct PsUpdaterOptions {
  PsStrategy ps_strategy = {};
  Partitioner partitioner = {};
  bool bfloat16 = false;
  // Whether each step waits for the other workers', so that no norm over all gradients can be known here.
  bool workers_in_sync = false;
  std::chrono::milliseconds ps_outage = {};
};

// The parameters live on the ps tasks: a step adds up the gradients of this worker's replicas, pushes the
// sum, and asks for the values of the next step, which come while the input of that step is made. The
// optimizer runs there.
//
// Of tables (see remote_table.h) a step moves the rows that it looks up, and only those: they are no part of
// state(), nor of what is fetched and stored, and their optimizer state never leaves the ps tasks. So nothing
// here grows with a table.
//
// Nothing is exchanged before the first step, so that whatever is restored until then is what the chief
// begins with. Throws InvalidArgument for an optimizer that the ps tasks cannot make, and for a plan that
// cannot be.
std::unique_ptr<Updater> make_ps_updater(std::shared_ptr<Variables> variables, const OptimizerSpec& spec,
                                         const MeetingPlace& place, std::shared_ptr<PsSession> session,
                                         PsUpdaterOptions options);

}  // namespace tandem::internal
