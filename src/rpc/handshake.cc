#include "rpc/handshake.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <nlohmann/json.hpp>
#include <set>
#include <span>

#include "base/certificates.h"
#include "base/hmac.h"
#include "cluster/text.h"
#include "rpc/limits.h"
#include "tandem/error.h"

namespace tandem::internal {
namespace {

rpc::Refusal refusal(rpc::Refusal::Reason reason, std::string message) {
  rpc::Refusal refusal;
  refusal.set_reason(reason);
  refusal.set_message(std::move(message));
  return refusal;
}

rpc::Refusal mismatch(std::string message) {
  return refusal(rpc::Refusal::MISMATCH, std::move(message));
}

// Text as it is if it can be shown so, else in quotes, escaped and cut: it goes into one line, and through
// protobuf, which takes nothing but UTF-8.
std::string shown(const std::string& text) {
  constexpr std::size_t kLongest = 80;
  return text.size() <= kLongest && is_printable_text(text) ? text : quote(text);
}

// task name to address
std::map<std::string, std::string> addresses_in(const nlohmann::json& cluster) {
  std::map<std::string, std::string> addresses;
  for (const auto& [job, tasks] : cluster.items()) {
    for (const auto& [index, address] : tasks.items()) {
      addresses[fmt::format("{}:{}", job, index)] = address.is_string() ? address.get<std::string>() : "?";
    }
  }
  return addresses;
}

// What a task was told.
struct Told {
  std::string task;
  std::map<std::string, std::string> values;
};

// In what they differ, e.g. "batch_size is 64 for worker:0, 128 for worker:1".
std::string first_difference(const Told& a, const Told& b) {
  for (const auto& [key, value] : a.values) {
    const auto other = b.values.find(key);
    if (other != b.values.end() && other->second == value) continue;
    const std::string theirs = other == b.values.end() ? "missing" : shown(other->second);
    return fmt::format("{} is {} for {}, {} for {}", shown(key), shown(value), a.task, theirs, b.task);
  }
  for (const auto& [key, value] : b.values) {
    if (a.values.contains(key)) continue;
    return fmt::format("{} is missing for {}, {} for {}", shown(key), a.task, shown(value), b.task);
  }
  return "";
}

std::string cluster_difference(const std::string& us, const ClusterSpec& ours, const std::string& them,
                               const std::string& theirs) {
  const auto parsed = nlohmann::json::parse(theirs, nullptr, /*allow_exceptions=*/false);
  if (!parsed.is_object()) return "what it sent is no cluster";
  const auto difference = first_difference({us, addresses_in(nlohmann::json::parse(ours.to_json()))},
                                           {them, addresses_in(parsed)});
  return difference.empty() ? "they are written differently" : difference;
}

}  // namespace

std::string fault_of(const std::map<std::string, std::string>& offer) {
  if (offer.size() > kOfferEntries) {
    return fmt::format("has {} entries: at most {}", offer.size(), kOfferEntries);
  }
  std::size_t bytes = 0;
  for (const auto& [key, value] : offer) {
    // Protobuf takes nothing but UTF-8 for a key.
    if (key.empty() || key.size() > kOfferKeyBytes || !is_printable_text(key)) {
      return fmt::format("has the key {}: expected 1 to {} bytes of printable text, this has {}", quote(key),
                         kOfferKeyBytes, key.size());
    }
    bytes += key.size() + value.size();
  }
  if (bytes <= kOfferBytes) return "";
  return fmt::format("has {} bytes of keys and values: at most {}", bytes, kOfferBytes);
}

std::string random_nonce() {
  std::string nonce(kNonceBytes, '\0');
  random_bytes(nonce.data(), nonce.size());
  return nonce;
}

std::string bytes_of(const Incarnation& incarnation) {
  std::string bytes(16, '\0');
  std::memcpy(bytes.data(), &incarnation.high, 8);
  std::memcpy(bytes.data() + 8, &incarnation.low, 8);
  return bytes;
}

Incarnation incarnation_of(const std::string& bytes) {
  Incarnation incarnation;
  if (bytes.size() != 16) return incarnation;
  std::memcpy(&incarnation.high, bytes.data(), 8);
  std::memcpy(&incarnation.low, bytes.data() + 8, 8);
  return incarnation;
}

std::string make_hello(const Identity& self, const TaskId& to) {
  rpc::Hello hello;
  hello.set_protocol(kProtocol);
  hello.set_cluster(self.cluster.to_json());
  if (self.task) {
    hello.mutable_from()->set_type(self.task->type);
    hello.mutable_from()->set_index(self.task->index);
  }
  hello.mutable_to()->set_type(to.type);
  hello.mutable_to()->set_index(to.index);
  hello.set_incarnation(bytes_of(self.incarnation));
  hello.set_nonce(random_nonce());
  hello.mutable_program()->insert(self.program.begin(), self.program.end());
  if (self.task) {
    hello.mutable_offer()->insert(self.offer.entries.begin(), self.offer.entries.end());
    hello.set_key_share(self.offer.key_share);
  }
  return hello.SerializeAsString();
}

std::string proof_tag(const Security& security, char side, const std::string& hello,
                      const std::string& nonce) {
  if (security.mode != Security::Mode::kToken) return "";
  const HmacTag tag =
      hmac_sha256(security.token, fmt::format("{}{:08x}{}{}", side, hello.size(), hello, nonce));
  return {reinterpret_cast<const char*>(tag.data()), tag.size()};
}

bool proves(const Security& security, char side, const std::string& hello, const std::string& nonce,
            const std::string& tag) {
  const std::string right = proof_tag(security, side, hello, nonce);
  const auto bytes = [](const std::string& text) {
    return std::span(reinterpret_cast<const std::uint8_t*>(text.data()), text.size());
  };
  return nonce.size() == kNonceBytes && equal_in_constant_time(bytes(right), bytes(tag));
}

std::string certified_uri(const ClusterSpec& cluster, const std::optional<TaskId>& task) {
  return (task ? task_subject(cluster.id(), task->type, task->index) : operator_subject(cluster.id())).uri;
}

std::string certified_name(const ClusterSpec& cluster, const TaskId& task) {
  return task_subject(cluster.id(), task.type, task.index).dns_name;
}

std::optional<rpc::Refusal> judge(const Identity& self, const rpc::Hello& hello,
                                  const std::vector<std::string>& certified_uris) {
  const std::string us = self.task->name();
  const std::string them =
      hello.has_from() ? shown(TaskId{hello.from().type(), hello.from().index()}.name()) : "the observer";
  if (hello.protocol() != kProtocol) {
    return mismatch(
        fmt::format("{} speaks version {} of the protocol, the other side {}: use one build of tandem", us,
                    kProtocol, hello.protocol()));
  }
  if (hello.to().type() != self.task->type || hello.to().index() != self.task->index) {
    return mismatch(fmt::format("this is {}, not {}:{}: two tasks have each other's address", us,
                                shown(hello.to().type()), hello.to().index()));
  }
  const std::string ours = self.cluster.to_json();
  if (hello.cluster().size() > 2 * ours.size() + 4096) {  // too long to be worth taking apart
    return mismatch(fmt::format("clusters differ: that of {} has {} bytes, that of {} {}", us, ours.size(),
                                them, hello.cluster().size()));
  }
  if (hello.cluster() != ours) {
    // The order of the jobs does not matter.
    const auto a = nlohmann::json::parse(ours);
    const auto b = nlohmann::json::parse(hello.cluster(), nullptr, /*allow_exceptions=*/false);
    // What is no JSON at all is neither equal nor unequal to anything.
    if (!b.is_object() || a != b)
      return mismatch(
          fmt::format("clusters differ: {}", cluster_difference(us, self.cluster, them, hello.cluster())));
  }
  std::optional<TaskId> from;
  if (hello.has_from()) {
    from = TaskId{hello.from().type(), hello.from().index()};
    const auto tasks = self.cluster.tasks();
    if (std::ranges::find(tasks, *from) == tasks.end() || *from == self.task) {
      return mismatch(fmt::format("{} is no other task of this cluster", shown(from->name())));
    }
    if (!incarnation_of(hello.incarnation())) return mismatch("a hello without an incarnation");
  }
  if (self.security.mode == Security::Mode::kTls) {
    const std::string wanted = certified_uri(self.cluster, from);
    if (std::ranges::find(certified_uris, wanted) == certified_uris.end()) {
      return mismatch(fmt::format("the certificate is not that of {}: expected {}, got {}",
                                  from ? from->name() : "an operator", wanted,
                                  certified_uris.empty() ? "none" : shown(certified_uris.front())));
    }
  }
  if (from) {
    const std::map<std::string, std::string> program(hello.program().begin(), hello.program().end());
    const std::string difference = first_difference({us, self.program}, {from->name(), program});
    if (!difference.empty()) {
      return mismatch(fmt::format("{} and {} were started differently: {}", us, from->name(), difference));
    }
    const std::string fault = fault_of(offer_in(hello).entries);
    if (!fault.empty()) return mismatch(fmt::format("the offer of {} {}", from->name(), fault));
    if (hello.key_share().size() != kNonceBytes) return mismatch("a hello without its share of the key");
  }
  return std::nullopt;
}

Offer offer_in(const rpc::Hello& hello) {
  return {.entries = {hello.offer().begin(), hello.offer().end()}, .key_share = hello.key_share()};
}

}  // namespace tandem::internal
