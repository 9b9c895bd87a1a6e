#pragma once

#include <string>
#include <vector>

#include "comm/group.h"

namespace tandem::internal {

// For engines that connect in a way of their own: gives every member what each of them brings, as many bytes
// from each. It travels over connections of the tcp engine, which stand for that moment only, so nobody from
// outside the group can read a word, or say one.
std::vector<std::string> exchange(GroupSetup setup, const std::string& mine);

// For engines that neither ask who connects nor protect what they send: throws InvalidArgument if a member is
// not on this machine's loopback and the network is not one that its user trusts.
void refuse_open_network(const GroupSetup& setup, const std::string& engine);

}  // namespace tandem::internal
