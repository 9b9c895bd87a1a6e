#include "base/hmac.h"

#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <openssl/rand.h>

#include <climits>

#include "tandem/error.h"

namespace tandem::internal {

HmacTag hmac_sha256(std::string_view key, std::string_view message) {
  if (key.size() > INT_MAX) throw InvalidArgument("an HMAC key is longer than 2 GiB");
  HmacTag tag{};
  unsigned int bytes = 0;
  // OpenSSL takes a null key for "the one of before"; an empty view may be null.
  const char* key_data = key.empty() ? "" : key.data();
  const auto* result =
      HMAC(EVP_sha256(), key_data, static_cast<int>(key.size()),
           reinterpret_cast<const unsigned char*>(message.data()), message.size(), tag.data(), &bytes);
  if (!result || bytes != tag.size()) throw Error(ErrorCode::kInternal, "OpenSSL could not compute an HMAC");
  return tag;
}

bool equal_in_constant_time(std::span<const std::uint8_t> a, std::span<const std::uint8_t> b) {
  return a.size() == b.size() && CRYPTO_memcmp(a.data(), b.data(), a.size()) == 0;
}

void random_bytes(void* data, std::size_t bytes) {
  auto* next = static_cast<unsigned char*>(data);
  while (bytes > 0) {
    const int n = bytes < INT_MAX ? static_cast<int>(bytes) : INT_MAX;
    if (RAND_bytes(next, n) != 1) throw Error(ErrorCode::kInternal, "OpenSSL could not get random bytes");
    next += n;
    bytes -= static_cast<std::size_t>(n);
  }
}

}  // namespace tandem::internal
