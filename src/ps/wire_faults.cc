#include "ps/wire_faults.h"

#include <algorithm>
#include <cmath>

#include "base/utf8.h"
#include "checkpoint/safetensors.h"
#include "ps/limits.h"
#include "ps/push_ledger.h"

namespace tandem::internal::ps {
namespace {

const char* fault_of_sender(std::uint32_t worker, const Incarnation& incarnation) {
  if (worker >= kMostWorkers) return "the worker's number is too large";
  if (!incarnation) return "the worker has no incarnation";
  return nullptr;
}

template <typename Entry>
const char* fault_of_order(const std::vector<Entry>& entries) {
  const auto not_after = [](const Entry& a, const Entry& b) { return a.shard >= b.shard; };
  if (std::ranges::adjacent_find(entries, not_after) != entries.end()) return "the shards do not ascend";
  if (!entries.empty() && entries.back().shard >= kMostShards) return "a shard's number is too large";
  return nullptr;
}

bool is_valid(WireType type) {
  return type <= WireType::kBfloat16;
}

const char* fault_of(const Push::Entry& entry) {
  if (!is_valid(entry.type)) return "an entry is of an unknown type";
  if (entry.count > kMostElements || entry.rows > kMostElements) return "an entry is too large";
  switch (entry.kind) {
    case PayloadKind::kNothing:
      return entry.rows != 0 || entry.count != 0 || entry.crc != 0 ? "an entry without payload has a size"
                                                                   : nullptr;
    case PayloadKind::kDense:
      return entry.rows != 0 ? "a dense entry has rows" : nullptr;
    case PayloadKind::kRows:
      return entry.rows == 0 || entry.count % entry.rows != 0 ? "an entry's values are not whole rows"
                                                              : nullptr;
  }
  return "an entry is of an unknown kind";
}

const char* fault_of(const Pull::Entry& entry) {
  if (!is_valid(entry.type)) return "an entry is of an unknown type";
  if (entry.known_version > kMostSeq) return "a version is too large";
  if (entry.kind == PayloadKind::kDense) {
    return entry.rows != 0 || entry.crc != 0 ? "a dense entry has rows" : nullptr;
  }
  if (entry.kind != PayloadKind::kRows) return "an entry is of an unknown kind";
  return entry.rows == 0 || entry.rows > kMostElements ? "an entry has no rows or too many" : nullptr;
}

const char* fault_of(const PullReply::Entry& entry) {
  if (!is_valid(entry.type)) return "an entry is of an unknown type";
  if (entry.kind > PayloadKind::kRows) return "an entry is of an unknown kind";
  if (entry.status > kLastStatus) return "an entry has an unknown status";
  if (entry.count > kMostElements || entry.version > kMostSeq) return "an entry is too large";
  const bool empty = entry.kind == PayloadKind::kNothing;
  if (empty && (entry.count != 0 || entry.crc != 0)) return "an entry without payload has a size";
  if (!empty && entry.status != Status::kApplied) return "an entry that was refused has values";
  return nullptr;
}

const char* fault_of(const PushReplies::Entry& entry) {
  if (entry.status > kLastStatus) return "an entry has an unknown status";
  if (entry.version > kMostSeq || entry.last_seq > kMostSeq || entry.durable_seq > entry.last_seq) {
    return "an entry's numbers cannot be";
  }
  return nullptr;
}

const char* fault_of(const HelloReply::Entry& entry) {
  const bool possible =
      entry.version <= kMostSeq && entry.last_seq <= kMostSeq && entry.lost <= entry.last_seq;
  return possible ? nullptr : "an entry's numbers cannot be";
}

template <typename Entry>
const char* fault_of(const std::vector<Entry>& entries) {
  if (const char* fault = fault_of_order(entries)) return fault;
  for (const Entry& entry : entries) {
    if (const char* fault = fault_of(entry)) return fault;
  }
  return nullptr;
}

// Shards ascend, and each begins with its values; then the names of its state ascend.
const char* fault_of(const std::vector<ShardTensor>& tensors) {
  const ShardTensor* before = nullptr;
  for (const ShardTensor& tensor : tensors) {
    const bool begins = !before || before->shard < tensor.shard;
    if (!begins && (before->shard > tensor.shard || before->name >= tensor.name)) {
      return "the tensors do not ascend";
    }
    if (begins != tensor.name.empty()) return "a shard does not begin with its values";
    if (tensor.shard >= kMostShards) return "a shard's number is too large";
    if (!tensor.name.empty() && !fault_of_tensor_name(tensor.name).empty()) {
      return "a tensor's name is none";
    }
    const auto bytes = tensor_bytes(tensor.dtype, tensor.shape);
    if (!bytes || *bytes > kMostElements * sizeof(double)) return "a tensor's dtype or shape cannot be";
    before = &tensor;
  }
  return nullptr;
}

}  // namespace

bool is_one_line(std::string_view text) {
  return is_utf8(text) &&
         std::ranges::all_of(text, [](char c) { return static_cast<unsigned char>(c) >= ' ' && c != 0x7f; });
}

const char* fault_of(const Hello& hello) {
  if (const char* fault = fault_of_sender(hello.worker, hello.incarnation)) return fault;
  if (hello.plan_digest.size() != kDigestDigits ||
      hello.plan_digest.find_first_not_of("0123456789abcdef") != std::string::npos) {
    return "the plan's digest is none";
  }
  if (hello.oldest_seq < 1 || hello.oldest_seq > kMostSeq || hello.step > kMostSeq)
    return "a number is too large";
  return nullptr;
}

const char* fault_of(const HelloReply& reply) {
  if (reply.status > kLastStatus) return "the status is unknown";
  if (reply.step > kMostSeq || reply.global_step > kMostSeq) return "a number is too large";
  if (!is_one_line(reply.message)) return "the text is not one line";
  return fault_of(reply.shards);
}

const char* fault_of(const Push& push) {
  if (const char* fault = fault_of_sender(push.worker, push.incarnation)) return fault;
  if (push.seq < 1 || push.seq > kMostSeq || push.closure > kMostSeq || push.closures_settled > kMostSeq ||
      push.step > kMostSeq) {
    return "a number is too large, or seq is 0";
  }
  if (push.closure_push >= kMostClosurePushes || (push.closure == 0 && push.closure_push != 0)) {
    return "a closure has too many pushes";
  }
  if (!std::isfinite(push.learning_rate)) return "the learning rate is not finite";
  if (push.entries.empty()) return "it is for no shard";
  return fault_of(push.entries);
}

const char* fault_of(const PushReplies& reply) {
  if (reply.seq > kMostSeq || reply.step > kMostSeq + 1 || reply.global_step > kMostSeq)
    return "a number is too large";
  if (!is_one_line(reply.message)) return "the text is not one line";
  return fault_of(reply.entries);
}

const char* fault_of(const Pull& pull) {
  if (const char* fault = fault_of_sender(pull.worker, pull.incarnation)) return fault;
  if (pull.step > kMostSeq) return "a number is too large";
  if (pull.entries.empty()) return "it is for no shard";
  return fault_of(pull.entries);
}

const char* fault_of(const PullReply& reply) {
  if (reply.global_step > kMostSeq) return "a number is too large";
  if (!is_one_line(reply.message)) return "the text is not one line";
  return fault_of(reply.entries);
}

const char* fault_of(const Initialise& message) {
  if (const char* fault = fault_of_sender(message.worker, message.incarnation)) return fault;
  if (message.plan_bytes > kLongestPlanText || message.optimizer_bytes > kLongestOptimizerText) {
    return "a text is too long";
  }
  if (message.global_step > kMostSeq) return "a number is too large";
  return fault_of(message.entries);
}

const char* fault_of(const Finished& message) {
  return fault_of_sender(message.worker, message.incarnation);
}

const char* fault_of(const Answer& answer) {
  if (answer.status > kLastStatus) return "the status is unknown";
  return is_one_line(answer.message) ? nullptr : "the text is not one line";
}

const char* fault_of(const Read& message) {
  if (const char* fault = fault_of_sender(message.worker, message.incarnation)) return fault;
  return message.shard >= kMostShards ? "a shard's number is too large" : nullptr;
}

const char* fault_of(const ReadReply& reply) {
  if (reply.status > kLastStatus) return "the status is unknown";
  if (reply.version > kMostSeq) return "a number is too large";
  if (!is_one_line(reply.message)) return "the text is not one line";
  if (reply.entries.empty() != (reply.status != Status::kApplied)) {
    return "a shard that was refused has tensors, or another has none";
  }
  if (!reply.entries.empty() && reply.entries.front().shard != reply.entries.back().shard) {
    return "the tensors are of several shards";
  }
  return fault_of(reply.entries);
}

const char* fault_of(const Assign& message) {
  if (const char* fault = fault_of_sender(message.worker, message.incarnation)) return fault;
  if (message.global_step > kMostSeq || (!message.has_global_step && message.global_step != 0)) {
    return "a number is too large";
  }
  return fault_of(message.entries);
}

}  // namespace tandem::internal::ps
