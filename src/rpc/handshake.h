#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "cluster/membership_core.h"
#include "rpc/control.pb.h"
#include "rpc/security.h"
#include "tandem/cluster_spec.h"

namespace tandem::internal {

// Changes with every change of control.proto that an older task would misread.
inline constexpr std::uint32_t kProtocol = 2;

// What a process tells the others of itself, without anyone comparing it.
struct Offer {
  std::map<std::string, std::string> entries = {};
  std::string key_share = {};  // see data_key.h
};

// What is wrong with the entries as the rest of a sentence: "has 33 entries: at most 32". Empty: nothing.
std::string fault_of(const std::map<std::string, std::string>& offer);

// What a task says of itself, and what it compares others with.
struct Identity {
  ClusterSpec cluster = {};
  std::optional<TaskId> task = {};  // empty: an observer
  Incarnation incarnation = {};
  std::map<std::string, std::string> program = {};
  Offer offer = {};
  Security security = {};
};

inline constexpr std::size_t kNonceBytes = 32;
std::string random_nonce();

std::string bytes_of(const Incarnation& incarnation);
// All zero if these are not 16 bytes.
Incarnation incarnation_of(const std::string& bytes);

// The first message of a client; proofs are over these very bytes.
std::string make_hello(const Identity& self, const TaskId& to);

// What one side proves with: 'S' for the server, 'C' for the client, so that neither can send back what it
// was sent. Empty without a token.
std::string proof_tag(const Security& security, char side, const std::string& hello,
                      const std::string& nonce);
bool proves(const Security& security, char side, const std::string& hello, const std::string& nonce,
            const std::string& tag);

// Whether a client may come in: who it says it is, by its certificate, in the same cluster, with the same
// program, and with an offer within limits. Empty if so. Its proof has been checked.
std::optional<rpc::Refusal> judge(const Identity& self, const rpc::Hello& hello,
                                  const std::vector<std::string>& certified_uris);

// The offer in a hello that was found good.
Offer offer_in(const rpc::Hello& hello);

// "spiffe://tandem/<cluster_id>/worker/1", and the name that its certificate has for gRPC's clients.
std::string certified_uri(const ClusterSpec& cluster, const std::optional<TaskId>& task);
std::string certified_name(const ClusterSpec& cluster, const TaskId& task);

}  // namespace tandem::internal
