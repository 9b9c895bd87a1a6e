#include "base/ports.h"

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <fstream>
#include <set>

#include "support/errors.h"
#include "tandem/error.h"

namespace tandem::internal {
namespace {

using testing_support::message_of;
using Ranges = std::vector<std::pair<int, int>>;

FileDescriptor listen_on(int port) {
  FileDescriptor listener(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(static_cast<std::uint16_t>(port));
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  if (bind(listener.get(), reinterpret_cast<sockaddr*>(&address), sizeof address) != 0 ||
      listen(listener.get(), 1) != 0)
    return {};
  return listener;
}

TEST(Ports, AreDifferentFreeAndOutsideTheKernelsRange) {
  int low = 0;
  int high = 0;
  std::ifstream("/proc/sys/net/ipv4/ip_local_port_range") >> low >> high;
  const auto reserved = ReservedPorts::choose("127.0.0.1", 200);
  EXPECT_EQ(std::set<int>(reserved.ports().begin(), reserved.ports().end()).size(), 200u);
  for (const int port : reserved.ports()) {
    EXPECT_TRUE(port < low || port > high) << port;
    EXPECT_TRUE(listen_on(port)) << port;
  }
}

TEST(Ports, AreNotGivenTwiceWhileTheyAreReserved) {
  std::set<int> seen;
  std::vector<ReservedPorts> all;
  for (int i = 0; i < 20; ++i) {
    all.push_back(ReservedPorts::choose("127.0.0.1", 20));
    for (const int port : all.back().ports()) EXPECT_TRUE(seen.insert(port).second) << port;
  }
}

TEST(Ports, FromAGivenOneMustBeFree) {
  const int port = ReservedPorts::choose("127.0.0.1", 1).ports()[0];
  EXPECT_EQ(ReservedPorts::from("127.0.0.1", port, 1).ports(), std::vector<int>{port});
  const FileDescriptor listener = listen_on(port);
  ASSERT_TRUE(listener);
  const std::string taken = "port " + std::to_string(port) + " of \"127.0.0.1\" is in use";
  EXPECT_NE(message_of<Unavailable>([&] { ReservedPorts::from("127.0.0.1", port, 1); }).find(taken),
            std::string::npos);
  EXPECT_NE(
      message_of<InvalidArgument>([] { ReservedPorts::from("127.0.0.1", 65530, 7); }).find("1 to 65535"),
      std::string::npos);
  EXPECT_THROW(ReservedPorts::from("127.0.0.1", 0, 1), InvalidArgument);
}

TEST(Ports, AreThoseOfThisMachine) {
  EXPECT_EQ(ReservedPorts::choose("localhost", 3).ports().size(), 3u);
  EXPECT_NE(message_of<InvalidArgument>([] { ReservedPorts::choose("192.0.2.1", 1); }).find("this machine"),
            std::string::npos);
  EXPECT_NE(message_of<InvalidArgument>([] { ReservedPorts::choose("no host", 1); }).find("is unknown"),
            std::string::npos);
}

TEST(Ports, ComeFromTheRangesThatTheKernelLeaves) {
  EXPECT_EQ(port_ranges_outside(32768, 60999), (Ranges{{10000, 32767}, {61000, 65535}}));
  EXPECT_EQ(port_ranges_outside(1024, 65535), Ranges{});
  EXPECT_EQ(port_ranges_outside(1024, 4999), (Ranges{{10000, 65535}}));
  EXPECT_EQ(port_ranges_outside(15000, 65535), (Ranges{{10000, 14999}}));
}

}  // namespace
}  // namespace tandem::internal
