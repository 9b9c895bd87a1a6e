#include <arpa/inet.h>
#include <fmt/format.h>

#include <algorithm>
#include <string>
#include <string_view>

#include "cluster/text.h"
#include "tandem/cluster_spec.h"
#include "tandem/error.h"

namespace tandem {
namespace {

using internal::quote;

constexpr std::size_t kLongestHost = 253;  // of a name in the DNS
constexpr const char* kExample = "\"host:port\", such as \"10.0.0.1:2222\"";

bool is_ipv6(std::string_view host) {
  in6_addr ignored{};
  return inet_pton(AF_INET6, std::string(host.substr(0, host.find('%'))).c_str(), &ignored) == 1;
}

// Letters, digits and what names of machines have besides; of other scripts anything that can be seen.
bool is_host_byte(char c) {
  const bool alphanumeric = (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
  return alphanumeric || c == '-' || c == '.' || c == '_' || static_cast<unsigned char>(c) >= 0x80;
}

// How the address would be written right, where a single thing is wrong with it.
std::string example_without(std::string_view unwanted, std::string_view address) {
  return fmt::format("write {}", quote(address.substr(unwanted.size())));
}

}  // namespace

HostPort parse_address(const std::string& address, const std::string& what, bool any_port) {
  const auto refuse = [&](const std::string& why) {
    return InvalidArgument(fmt::format("{} is {}: {}", what, quote(address), why));
  };
  if (address.empty()) throw refuse(fmt::format("expected {}", kExample));
  if (!internal::is_printable_name(address)) {
    throw refuse(fmt::format("it has a blank or a character that cannot be seen; expected {}", kExample));
  }
  const std::string_view text = address;
  if (const auto scheme = text.find("://"); scheme != std::string_view::npos) {
    throw refuse("drop the scheme: " + example_without(text.substr(0, scheme + 3), text));
  }
  if (const auto at = text.rfind('@'); at != std::string_view::npos) {
    const auto user = text.substr(0, at + 1);
    throw refuse(fmt::format("drop {}: {}", quote(user), example_without(user, text)));
  }

  const auto colon = text.rfind(':');
  const bool bracketed = text.front() == '[';
  if (bracketed && text.find(']') == std::string_view::npos) {
    throw refuse("the bracket is not closed; write an IPv6 address as \"[::1]:2222\"");
  }
  if (!bracketed && (is_ipv6(text) || std::count(text.begin(), text.end(), ':') > 1)) {
    throw refuse("an IPv6 address goes in brackets, with the port after them, such as \"[::1]:2222\"");
  }
  if (colon == std::string_view::npos || (bracketed && colon < text.find(']'))) {
    throw refuse(fmt::format("the port is missing; write {}", quote(address + ":2222")));
  }

  std::string_view host = text.substr(0, colon);
  const std::string_view port_text = text.substr(colon + 1);
  if (host.empty()) throw refuse(fmt::format("the host is missing; expected {}", kExample));
  if (bracketed) {
    if (host.back() != ']' || !is_ipv6(host.substr(1, host.size() - 2))) {
      throw refuse("not an IPv6 address in the brackets; expected one such as \"[::1]:2222\"");
    }
    host = host.substr(1, host.size() - 2);
  } else if (!std::all_of(host.begin(), host.end(), is_host_byte)) {
    throw refuse(fmt::format("no host has such a name; expected {}", kExample));
  } else if (host.size() > kLongestHost) {
    throw refuse(fmt::format("the host has {} bytes, and names end at {}; expected {}", host.size(),
                             kLongestHost, kExample));
  }

  const bool digits = !port_text.empty() && std::all_of(port_text.begin(), port_text.end(),
                                                        [](char c) { return c >= '0' && c <= '9'; });
  const auto port = digits ? internal::parse_int(port_text) : std::nullopt;
  const int lowest = any_port ? 0 : 1;
  if (!port || *port < lowest || *port > 65535) {
    throw refuse(fmt::format("the port is {}: expected a number from {} to 65535, such as {}",
                             quote(port_text), lowest, quote(fmt::format("{}:2222", text.substr(0, colon)))));
  }
  return {std::string(host), *port};
}

}  // namespace tandem
