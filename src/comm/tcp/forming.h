#pragma once

#include <vector>

#include "comm/group.h"
#include "comm/tcp/channel.h"

namespace tandem::internal::tcp {

// Connects this member with every other one: it dials those before it and is dialled by those after it.
// Strangers at the port are turned away and delay nobody: at most 64 of them are heard at a time, each for at
// most two seconds. The port closes when this returns.
//
// Returns the channels by rank. Throws Unavailable, naming who is missing and why, after
// setup.connect_timeout.
std::vector<Channel> form_group(GroupSetup& setup);

}  // namespace tandem::internal::tcp
