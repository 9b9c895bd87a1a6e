#include "comm/rendezvous.h"

#include <fmt/format.h>

#include "base/net.h"
#include "comm/backends.h"
#include "tandem/cluster_spec.h"
#include "tandem/error.h"

namespace tandem::internal {

std::vector<std::string> exchange(GroupSetup setup, const std::string& mine) {
  const auto deadline = Operation::Clock::now() + setup.connect_timeout;
  const auto engine = tcp::create(std::move(setup));
  std::string all(mine.size() * static_cast<std::size_t>(engine->size()), '\0');
  engine->run(
      {.kind = OperationKind::kAllGather,
       .name = "rendezvous",
       .data = {const_cast<char*>(mine.data()), static_cast<std::int64_t>(mine.size()), ElementType::kUint8},
       .gathered = all.data(),
       .deadline = deadline});
  std::vector<std::string> parts;
  for (int member = 0; member < engine->size(); ++member) {
    parts.push_back(all.substr(mine.size() * static_cast<std::size_t>(member), mine.size()));
  }
  return parts;
}

void refuse_open_network(const GroupSetup& setup, const std::string& engine) {
  if (setup.trusted_network) return;
  for (const Member& member : setup.members) {
    const std::string host = parse_address(member.data_address, "the data address of " + member.name).host;
    if (is_loopback_host(host)) continue;
    throw InvalidArgument(fmt::format(
        "engine \"{}\" neither asks who connects nor encrypts, and {} is at {}, not on the loopback "
        "of one machine: use engine \"tcp\", or --security insecure --insecure_network on a network "
        "that nobody else can reach",
        engine, member.name, member.data_address));
  }
}

}  // namespace tandem::internal
