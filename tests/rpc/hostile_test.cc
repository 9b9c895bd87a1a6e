// A cluster forms while others do what they can to its ports.
#include <arpa/inet.h>
#include <fcntl.h>
#include <grpc/support/log.h>
#include <grpcpp/create_channel.h>
#include <grpcpp/generic/generic_stub.h>
#include <grpcpp/security/credentials.h>
#include <grpcpp/support/channel_arguments.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <cstdlib>
#include <string_view>

#include "base/certificates.h"
#include "base/file_descriptor.h"
#include "base/net.h"
#include "base/random.h"
#include "rpc/limits.h"
#include "rpc/support.h"
#include "support/process.h"
#include "support/temp_folder.h"

namespace tandem::testing_support {
namespace {

using internal::FileDescriptor;
using std::chrono::milliseconds;
using std::chrono::steady_clock;

// A tenth of the full dose, which `tests/soak hostile` gives.
int connects() {
  const char* wanted = std::getenv("TANDEM_HOSTILE");
  return wanted ? std::atoi(wanted) : 1000;
}
int slow_ones() {
  return connects() / 50;
}

// By how much they may delay a cluster. Under the thread sanitizer everything takes many times as long.
#ifdef __SANITIZE_THREAD__
constexpr milliseconds kLongestDelay{5000};
#else
constexpr milliseconds kLongestDelay{1000};
#endif

constexpr std::string_view kPreface = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

// The beginning of a TLS 1.2 client hello: record and handshake header, version, random bytes, no session,
// one cipher, no compression.
std::string tls_client_hello() {
  std::string body =
      std::string("\x03\x03", 2) + std::string(32, 'r') + std::string("\x00\x00\x02\xc0\x2f\x01\x00", 7);
  std::string hello = std::string("\x01\x00\x00", 3) + static_cast<char>(body.size()) + body;
  return std::string("\x16\x03\x01\x00", 4) + static_cast<char>(hello.size()) + hello;
}

// Empty if it is refused: then nobody listens there yet.
FileDescriptor connected_to(int port) {
  const internal::SocketAddress address = internal::resolve_host("127.0.0.1", port).front();
  FileDescriptor connection(socket(address.family(), SOCK_STREAM | SOCK_CLOEXEC, 0));
  if (!connection || connect(connection.get(), address.get(), address.length) != 0) return {};
  return connection;
}

// Reads what has come.
bool is_open(const FileDescriptor& connection) {
  std::array<char, 1024> block{};
  ssize_t got = 0;
  while (connection && (got = recv(connection.get(), block.data(), block.size(), MSG_DONTWAIT)) > 0) {
  }
  return connection && got < 0 && errno == EAGAIN;
}

void say(const FileDescriptor& connection, std::string_view bytes) {
  // That the other side has hung up is nothing to wonder about.
  [[maybe_unused]] const auto sent = send(connection.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL);
}

// One hostile connection of some kind.
void attack(int port, std::uint64_t number) {
  const FileDescriptor connection = connected_to(port);
  if (!connection) return;
  switch (number % 4) {
    case 0: {
      std::string garbage;
      for (std::uint64_t i = 0; i < 64; ++i) {
        const std::uint64_t bits = internal::mix(number * 64 + i);
        garbage.append(reinterpret_cast<const char*>(&bits), sizeof bits);
      }
      // Half of them get past the first check.
      say(connection, number % 8 == 0 ? garbage : std::string(kPreface) + garbage);
      break;
    }
    case 1:
      say(connection, kPreface.substr(0, number % kPreface.size()));
      break;
    case 2:
      say(connection, tls_client_hello());
      break;
    default: {
      const linger at_once{.l_onoff = 1, .l_linger = 0};
      setsockopt(connection.get(), SOL_SOCKET, SO_LINGER, &at_once, sizeof at_once);
    }
  }
}

// A call that is well made, of a method that there is not.
grpc::StatusCode call_unknown_method(int port, const std::shared_ptr<grpc::ChannelCredentials>& credentials) {
  grpc::ChannelArguments arguments;
  arguments.SetInt(GRPC_ARG_ENABLE_HTTP_PROXY, 0);
  arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
  const auto channel = grpc::CreateCustomChannel(fmt::format("127.0.0.1:{}", port), credentials, arguments);
  grpc::GenericStub stub(channel);
  grpc::ClientContext context;
  context.set_deadline(std::chrono::system_clock::now() + std::chrono::seconds(5));
  const grpc::Slice bytes("bytes");
  const grpc::ByteBuffer request(&bytes, 1);
  grpc::ByteBuffer response;
  std::promise<grpc::StatusCode> done;
  stub.UnaryCall(&context, "/tandem.rpc.Control/Surrender", {}, &request, &response,
                 [&](const grpc::Status& status) { done.set_value(status.error_code()); });
  return done.get_future().get();
}

// Connections that take their time: silent ones, and those that send a byte now and then. Each one that is
// closed by the other side is replaced.
class SlowOnes {
 public:
  SlowOnes(std::vector<int> ports, int count) : ports_(std::move(ports)) {
    worker_ = in_thread([this, count] { return work(count); });
  }
  // How many were closed.
  int end() {
    over_ = true;
    return result_of(std::move(worker_));
  }

 private:
  struct Connection {
    FileDescriptor end;
    std::size_t sent = 0;
  };

  int work(int count) {
    int closed = 0;
    std::vector<Connection> all(static_cast<std::size_t>(count));
    while (!over_) {
      for (std::size_t i = 0; i < all.size(); ++i) {
        if (!is_open(all[i].end)) {
          closed += static_cast<bool>(all[i].end);
          all[i] = {connected_to(ports_[i % ports_.size()])};
        } else if (i % 4 >= 2) {
          say(all[i].end, kPreface.substr(all[i].sent++ % kPreface.size(), 1));
        }
      }
      std::this_thread::sleep_for(milliseconds(100));
    }
    return closed;
  }

  const std::vector<int> ports_;
  std::atomic<bool> over_{false};
  std::future<int> worker_;
};

struct Formed {
  std::unique_ptr<TaskServer> first;
  std::unique_ptr<TaskServer> second;
  steady_clock::duration took = {};
};

class Hostile : public ::testing::TestWithParam<const char*> {
 protected:
  Hostile() {
    if (std::string(GetParam()) == "tls") {
      for (int index = 0; index < 2; ++index) {
        internal::save_certificate(
            folder_.file(fmt::format("worker-{}", index)),
            authority_.issue(internal::task_subject(workers_.cluster.id(), "worker", index), 30),
            authority_.certificate());
      }
    }
    // A line for each wrong handshake would drown the rest.
    gpr_set_log_function([](gpr_log_func_args*) {});
  }
  ~Hostile() override { gpr_set_log_function(nullptr); }

  TaskServer make(int index) const {
    return TaskServer(workers_.cluster, "worker", index,
                      with_patience({.security = {.mode = GetParam(), .certs = folder_.path()}}));
  }
  // The first is there already; the second comes.
  Formed form(std::unique_ptr<TaskServer> first) const {
    const auto begin = steady_clock::now();
    auto second = std::make_unique<TaskServer>(make(1));
    second->wait_for_all();
    first->wait_for_all();
    return {std::move(first), std::move(second), steady_clock::now() - begin};
  }
  // Of someone who knows the authority, but has no certificate.
  std::shared_ptr<grpc::ChannelCredentials> credentials() const {
    if (std::string(GetParam()) != "tls") return grpc::InsecureChannelCredentials();
    return grpc::SslCredentials({authority_.certificate(), "", ""});
  }

  const TempFolder folder_;
  const Workers workers_{2};
  const internal::CertificateAuthority authority_ = internal::CertificateAuthority::create();
};

TEST_P(Hostile, ConnectionsHardlyDelayAClusterThatForms) {
  steady_clock::duration undisturbed{};
  std::size_t descriptors = 0;
  {
    const Formed formed = form(std::make_unique<TaskServer>(make(0)));
    undisturbed = formed.took;
    descriptors = descriptors_of_this_process();
  }

  auto first = std::make_unique<TaskServer>(make(0));
  const std::vector<int> ports{workers_.port(0), workers_.port(1)};
  SlowOnes slow(ports, slow_ones());
  std::atomic<int> done = 0;
  std::atomic<bool> has_formed = false;
  std::vector<std::future<void>> attackers;
  for (int thread = 0; thread < 2; ++thread) {
    attackers.push_back(in_thread([&] {
      while (done < connects() || !has_formed) {
        const int number = done++;
        const int port = ports[static_cast<std::size_t>(number) % 2];
        if (number % 5 == 4) {
          const auto code = call_unknown_method(port, credentials());
          EXPECT_TRUE(code == grpc::StatusCode::UNIMPLEMENTED || code == grpc::StatusCode::UNAVAILABLE)
              << code;
        } else {
          attack(port, static_cast<std::uint64_t>(number) / 2);
        }
      }
    }));
  }
  EXPECT_TRUE(eventually([&] { return done >= connects() / 10; }));
  Formed formed = form(std::move(first));
  has_formed = true;
  for (auto& attacker : attackers) result_of(std::move(attacker));
  // The slow ones are there for long enough to be found out.
  std::this_thread::sleep_for(internal::kHandshakePatience);
  const int closed = slow.end();
  formed.first->check();
  formed.second->check();
  const auto in_ms = [](steady_clock::duration time) {
    return std::chrono::duration_cast<milliseconds>(time).count();
  };
  std::printf("%d hostile connections, %d slow ones (%d closed): formed in %ld ms, undisturbed in %ld ms\n",
              done.load(), slow_ones(), closed, in_ms(formed.took), in_ms(undisturbed));
  EXPECT_LT(formed.took, undisturbed + kLongestDelay);
  EXPECT_GE(closed, slow_ones());
  // An HTTP/2 connection without streams is closed after five times the handshake's patience.
  EXPECT_TRUE(eventually([&] { return descriptors_of_this_process() <= descriptors; },
                         10 * internal::kHandshakePatience))
      << descriptors_of_this_process() << " descriptors, " << descriptors << " undisturbed";
  formed.first->finish();
  formed.second->finish();
  EXPECT_FALSE(formed.first->lost());
  EXPECT_FALSE(formed.second->lost());
}

TEST_P(Hostile, AConnectionThatSaysNothingIsClosed) {
  const TaskServer server = make(0);
  const FileDescriptor connection = connected_to(workers_.port(0));
  ASSERT_TRUE(connection);
  const auto begin = steady_clock::now();
  // It may be sent settings first.
  std::array<char, 256> block{};
  ssize_t got = 1;
  while (got > 0) {
    pollfd end{connection.get(), POLLIN, 0};
    ASSERT_EQ(poll(&end, 1, 10'000), 1) << "still open";
    got = recv(connection.get(), block.data(), block.size(), 0);
  }
  EXPECT_LT(steady_clock::now() - begin, internal::kHandshakePatience + milliseconds(1500));
}

INSTANTIATE_TEST_SUITE_P(Modes, Hostile, ::testing::Values("insecure", "tls"),
                         [](const auto& info) { return std::string(info.param); });

TEST(Proxy, VariablesDoNotComeBetweenTheTasks) {
  const Workers workers(2);
  std::vector<std::future<ProcessResult>> tasks;
  for (int index = 0; index < 2; ++index) {
    std::vector<std::string> command{"/usr/bin/env"};
    // Nobody listens there.
    for (const char* name :
         {"http_proxy", "https_proxy", "HTTP_PROXY", "HTTPS_PROXY", "grpc_proxy", "all_proxy", "ALL_PROXY"}) {
      command.push_back(fmt::format("{}=http://127.0.0.1:9", name));
    }
    for (const std::string& word :
         {std::string(TANDEM_BIN) + "/hello_cluster", std::string("--worker_hosts"),
          fmt::format("localhost:{},127.0.0.1:{}", workers.port(0), workers.port(1)),
          std::string("--task_index"), std::to_string(index), std::string("--steps"), std::string("2"),
          std::string("--join_timeout"), std::string("10")}) {
      command.push_back(word);
    }
    tasks.push_back(in_thread([command] { return run_process(command, 20); }));
  }
  for (auto& task : tasks) {
    const ProcessResult result = result_of(std::move(task));
    EXPECT_EQ(result.exit_code, 0) << result.err;
    EXPECT_NE(result.out.find("done after 2 steps"), std::string::npos) << result.out;
  }
}

}  // namespace
}  // namespace tandem::testing_support
