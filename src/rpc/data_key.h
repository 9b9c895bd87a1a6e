#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "rpc/handshake.h"
#include "rpc/security.h"

namespace tandem::internal {

// A key that only the processes of one run have, for whatever connections they open besides the control
// plane: 32 bytes,
//
//   HMAC-SHA256(token, "tandem data plane" | cluster id | generation | share of each process)
//
// with an empty token where there is none. The shares are random, made anew by every process, and travel in
// the hellos. What the key is worth therefore depends on the mode:
//   token     who listens sees the shares, but cannot make the key from them without the token;
//   tls       the shares travel encrypted, to the tasks' certified processes only;
//   insecure  who listens can make the key; it still keeps out a process of another run.
// `shares`: of the run's tasks in the order of ClusterSpec::tasks(), each of kNonceBytes.
std::string data_key(const Security& security, const std::string& cluster_id, std::uint64_t generation,
                     const std::vector<std::string>& shares);

// The key for connections to one process, whose share this is, from any task of its cluster: a run of that
// process alone, under a generation that no run has.
inline std::string peer_key(const Identity& self, const std::string& share) {
  return data_key(self.security, self.cluster.id(), 0, {share});
}

}  // namespace tandem::internal
