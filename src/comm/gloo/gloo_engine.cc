// Gloo over its own TCP transport: for comparison, and for who trusts it more than ours. What it lacks beside
// engine "tcp":
//   - It neither asks who connects nor encrypts. A stray connection while the group forms fails it; a
//   malformed
//     frame later ends the process. So it is for loopback, and for networks that nobody else can reach.
//   - When a member dies, another one may be left waiting for a send that Gloo has forgotten (RELIABILITY.md
//     measured 0 to 8 %); that one wakes at its deadline or by abort(). The rest know within milliseconds.
//   - Nobody is told why: the others see connections close, of the one that died or of one that saw it first.
//   - Members that are in different operations mix up their data, or wait for each other.
//   - It writes without MSG_NOSIGNAL: create() makes this process ignore SIGPIPE, unless it handles it.
#include <fmt/format.h>
#include <gloo/common/error.h>
#include <gloo/context.h>
#include <gloo/transport/tcp/device.h>
#include <signal.h>

#include <atomic>
#include <exception>
#include <mutex>
#include <optional>
#include <span>

#include "base/hmac.h"
#include "comm/backends.h"
#include "comm/gloo/watchdog.h"
#include "comm/gloo/watched_transport.h"
#include "comm/gloo_algorithms.h"
#include "comm/rendezvous.h"
#include "tandem/cluster_spec.h"
#include "tandem/error.h"

namespace tandem::internal::gloo_tcp {
namespace {

constexpr std::chrono::milliseconds kFarewell{500};

void ignore_broken_pipes() {
  struct sigaction now {};
  sigaction(SIGPIPE, nullptr, &now);
  if ((now.sa_flags & SA_SIGINFO) == 0 && now.sa_handler == SIG_DFL) signal(SIGPIPE, SIG_IGN);
}

std::shared_ptr<::gloo::transport::Device> listening_device(const Member& self) {
  const std::string host = parse_address(self.data_address, "the data address of " + self.name).host;
  ::gloo::transport::tcp::attr attributes;
  attributes.hostname = host;
  try {
    return ::gloo::transport::tcp::CreateDevice(attributes);
  } catch (const std::exception& error) {
    throw Unavailable(
        fmt::format("engine \"gloo\" of {} cannot listen at {}: {}", self.name, host, error.what()));
  }
}

// What Gloo's algorithms work with.
class ContextOfPairs final : public ::gloo::Context {
 public:
  ContextOfPairs(std::shared_ptr<::gloo::transport::Device> device, std::shared_ptr<WatchedContext> pairs,
                 int first_slot)
      : ::gloo::Context(pairs->rank, pairs->size) {
    device_ = std::move(device);
    slot_ = first_slot;
    setTimeout(pairs->getTimeout());
    transportContext_ = std::move(pairs);
  }
};

std::span<const std::uint8_t> bytes_of(const std::string& text) {
  return {reinterpret_cast<const std::uint8_t*>(text.data()), text.size()};
}

class GlooEngine final : public Engine {
 public:
  explicit GlooEngine(GroupSetup setup)
      : rank_(setup.rank),
        members_(setup.members),
        device_(listening_device(members_[static_cast<std::size_t>(rank_)])),
        pairs_(std::make_shared<WatchedContext>(device_->createContext(rank_, size()))),
        watchdog_([pairs = pairs_] { pairs->interrupt(); }) {
    connect(std::move(setup));
    algorithms_ = std::make_unique<GlooAlgorithms>(
        rank_, size(), GlooAlgorithms::Bound::kToOwnMemory,
        [this](int first_slot) { return std::make_shared<ContextOfPairs>(device_, pairs_, first_slot); });
  }

  ~GlooEngine() override {
    if (failed_ || aborted_ || size() == 1) return;
    // Gloo throws for a connection that was closed even if all that was awaited had come before. So nobody
    // leaves before all have ended their last operation, or for half a second.
    try {
      watchdog_.set(Watchdog::Clock::now() + kFarewell);
      algorithms_->run({.kind = OperationKind::kBarrier, .name = "goodbye"});
    } catch (const std::exception&) {
    }
  }

  std::string name() const override { return "gloo"; }
  int rank() const override { return rank_; }
  int size() const override { return static_cast<int>(members_.size()); }
  std::string member_name(int rank) const override { return members_[static_cast<std::size_t>(rank)].name; }
  bool several_hosts() const override { return on_several_hosts(members_); }

  void run(const Operation& operation) override {
    const std::string what = fmt::format("{} \"{}\"", operation_name(operation.kind), operation.name);
    throw_if_aborted(what);
    watchdog_.set(operation.deadline);
    failed_ = true;  // until it has ended well
    translating(what, [&] { algorithms_->run(operation); });
    failed_ = false;
    watchdog_.clear();
    operations_.fetch_add(1, std::memory_order_relaxed);
  }

  void abort(const std::string& reason) override {
    {
      const std::lock_guard lock(mutex_);
      if (aborted_) return;
      aborted_ = reason;
    }
    pairs_->interrupt();
  }

  Traffic traffic() const override {
    return {.operations = operations_.load(std::memory_order_relaxed),
            .bytes_sent = pairs_->bytes_sent(),
            .bytes_received = pairs_->bytes_received()};
  }

 private:
  // Each member has a listening socket for every other one; who of two dials is Gloo's affair. Whether the
  // one at the other end is a member, and which, Gloo does not ask: so each sends a word that it told the
  // members before.
  void connect(GroupSetup setup) {
    constexpr std::size_t kWordBytes = 32;
    const auto deadline = Watchdog::Clock::now() + setup.connect_timeout;
    std::string word(kWordBytes, '\0');
    random_bytes(word.data(), word.size());
    std::string card = word;
    std::size_t address_bytes = 0;
    for_each_other([&](int member) {
      const std::vector<char> address = pairs_->createPair(member)->address().bytes();
      address_bytes = address.size();
      card.append(address.begin(), address.end());
    });
    const std::vector<std::string> cards = exchange(std::move(setup), card);

    watchdog_.set(deadline);
    translating("connecting", [&] {
      for_each_other([&](int member) {
        // Its card has an address for each member but itself.
        const int place = rank_ < member ? rank_ : rank_ - 1;
        const auto begin = cards[static_cast<std::size_t>(member)].begin() + kWordBytes +
                           static_cast<std::ptrdiff_t>(address_bytes) * place;
        pairs_->getPair(member)->connect({begin, begin + static_cast<std::ptrdiff_t>(address_bytes)});
      });
      for_each_other([&](int member) {
        std::string told = word;
        std::string heard(kWordBytes, '\0');
        const auto out = pairs_->createUnboundBuffer(told.data(), told.size());
        const auto in = pairs_->createUnboundBuffer(heard.data(), heard.size());
        in->recv(member, 0);
        out->send(member, 0);
        out->waitSend();
        in->waitRecv();
        if (!equal_in_constant_time(bytes_of(heard),
                                    bytes_of(cards[static_cast<std::size_t>(member)]).first(kWordBytes))) {
          throw PairFailed(member, "somebody else has connected in its place");
        }
      });
    });
    watchdog_.clear();
  }

  template <typename Fn>
  void for_each_other(Fn fn) {
    for (int member = 0; member < size(); ++member) {
      if (member != rank_) fn(member);
    }
  }

  void throw_if_aborted(const std::string& what) {
    const std::lock_guard lock(mutex_);
    if (aborted_) throw Aborted(fmt::format("{} of engine gloo: {}", what, *aborted_));
  }

  // Makes errors of Gloo's into ours.
  template <typename Fn>
  void translating(const std::string& what, Fn fn) {
    try {
      fn();
    } catch (const PairFailed& error) {
      fail(what, error.member() < 0 ? "" : " with " + member_name(error.member()), error.what());
    } catch (const Error&) {
      throw;
    } catch (const std::exception& error) {
      fail(what, "", error.what());
    }
  }

  [[noreturn]] void fail(const std::string& what, const std::string& with_whom, const char* how) {
    throw_if_aborted(what);
    if (watchdog_.barked()) {
      throw DeadlineExceeded(
          fmt::format("{} of engine gloo did not end in time, in its exchange{}", what, with_whom));
    }
    throw Unavailable(fmt::format("{} of engine gloo failed in its exchange{}: {}", what, with_whom, how));
  }

  const int rank_;
  const std::vector<Member> members_;
  const std::shared_ptr<::gloo::transport::Device> device_;
  const std::shared_ptr<WatchedContext> pairs_;
  std::unique_ptr<GlooAlgorithms> algorithms_;
  Watchdog watchdog_;
  std::atomic<std::uint64_t> operations_{0};
  bool failed_ = false;
  std::mutex mutex_;
  std::optional<std::string> aborted_;
};

}  // namespace

bool available() {
  return true;
}

std::unique_ptr<Engine> create(GroupSetup setup) {
  refuse_open_network(setup, "gloo");
  ignore_broken_pipes();
  return std::make_unique<GlooEngine>(std::move(setup));
}

}  // namespace tandem::internal::gloo_tcp
