#include "rpc/data_key.h"

#include <fmt/format.h>

#include "base/hmac.h"

namespace tandem::internal {

std::string data_key(const Security& security, const std::string& cluster_id, std::uint64_t generation,
                     const std::vector<std::string>& shares) {
  // The parts have fixed lengths, so no two runs give the same text; and no proof of a handshake, which the
  // token is used for too, begins like it.
  std::string text = fmt::format("tandem data plane{}{:016x}", cluster_id, generation);
  for (const std::string& share : shares) text += share;
  const HmacTag key = hmac_sha256(security.token, text);
  return {reinterpret_cast<const char*>(key.data()), key.size()};
}

}  // namespace tandem::internal
