#pragma once

#include <string_view>

#include "ps/wire.h"

namespace tandem::internal::ps {

// What is wrong with a message, or null. Its sizes have been checked; these are the values.
const char* fault_of(const Hello& hello);
const char* fault_of(const HelloReply& reply);
const char* fault_of(const Push& push);
const char* fault_of(const PushReplies& reply);
const char* fault_of(const Pull& pull);
const char* fault_of(const PullReply& reply);
const char* fault_of(const Initialise& message);
const char* fault_of(const Finished& message);
const char* fault_of(const Answer& answer);
const char* fault_of(const Read& message);
const char* fault_of(const ReadReply& reply);
const char* fault_of(const Assign& message);

bool is_one_line(std::string_view text);

inline constexpr std::size_t kDigestDigits = 64;

}  // namespace tandem::internal::ps
