#include "comm/tcp/forming.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <map>
#include <memory>
#include <optional>

#include "base/log.h"
#include "base/net.h"
#include "comm/tcp/handshake.h"
#include "tandem/cluster_spec.h"
#include "tandem/error.h"

namespace tandem::internal::tcp {
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

constexpr std::size_t kMostGuests = 64;
constexpr milliseconds kGuestPatience{2000};
constexpr milliseconds kFirstBackOff{10};
constexpr milliseconds kLongestBackOff{500};

class Forming {
 public:
  explicit Forming(GroupSetup& setup)
      : setup_(setup),
        group_{setup.cluster_id, setup.generation, setup.key,
               static_cast<std::uint32_t>(setup.members.size())},
        listener_(setup.port->take()),
        channels_(setup.members.size()) {
    if (setup.encrypt) encryption_.emplace(setup.key);
    for (int member = 0; member < setup_.rank; ++member) dials_.emplace(member, Dial{});
  }

  std::vector<Channel> run() {
    const Clock::time_point deadline = Clock::now() + setup_.connect_timeout;
    while (connected_ + 1 < channels_.size()) {
      const Clock::time_point now = Clock::now();
      if (now >= deadline) throw Unavailable(missing());
      dial_those_due(now);
      drop_slow_guests(now);
      wait(std::min(deadline, next_event(now)), now);
    }
    return std::move(channels_);
  }

 private:
  struct Dial {
    FileDescriptor connecting = {};  // until the connection stands
    std::unique_ptr<Handshake> handshake = {};
    Clock::time_point again_at = {};
    Clock::time_point give_up_at = {};
    milliseconds back_off = kFirstBackOff;
    std::string last_error = "not tried yet";

    bool idle() const { return !connecting && !handshake; }
    int descriptor() const { return handshake ? handshake->descriptor() : connecting.get(); }
    short events() const { return handshake ? handshake->events() : POLLOUT; }
  };
  struct Guest {
    std::unique_ptr<Handshake> handshake;
    Clock::time_point until;
  };

  const Encryption* encryption() const { return encryption_ ? &*encryption_ : nullptr; }

  void dial_those_due(Clock::time_point now) {
    for (auto& [member, dial] : dials_) {
      if (!dial.idle() && now >= dial.give_up_at) failed(dial, "no answer");
      if (dial.idle() && now >= dial.again_at) begin(member, dial, now);
    }
  }

  void begin(int member, Dial& dial, Clock::time_point now) {
    dial.give_up_at = now + kGuestPatience;
    try {
      const HostPort address = parse_address(setup_.members[static_cast<std::size_t>(member)].data_address,
                                             setup_.members[static_cast<std::size_t>(member)].name);
      const SocketAddress target = resolve_host(address.host, address.port).front();
      FileDescriptor socket(::socket(target.family(), SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
      if (!socket) throw ChannelClosed(std::strerror(errno));
      if (connect(socket.get(), target.get(), target.length) != 0 && errno != EINPROGRESS) {
        throw ChannelClosed(std::strerror(errno));
      }
      dial.connecting = std::move(socket);
    } catch (const std::exception& error) {
      failed(dial, error.what());
    }
  }

  static void failed(Dial& dial, const std::string& reason) {
    dial.connecting.reset();
    dial.handshake.reset();
    dial.last_error = reason;
    dial.again_at = Clock::now() + dial.back_off;
    dial.back_off = std::min(2 * dial.back_off, kLongestBackOff);
  }

  void advance(int member, Dial& dial) {
    try {
      if (dial.connecting) {
        int error = 0;
        socklen_t length = sizeof error;
        getsockopt(dial.connecting.get(), SOL_SOCKET, SO_ERROR, &error, &length);
        if (error != 0) throw ChannelClosed(std::strerror(error));
        dial.handshake = std::make_unique<Handshake>(
            Handshake::dial(Channel(std::move(dial.connecting), encryption(), false), group_,
                            static_cast<std::uint32_t>(setup_.rank), static_cast<std::uint32_t>(member)));
      }
      if (!dial.handshake->step()) return;
      connected(member, dial.handshake->take());
    } catch (const ChannelClosed& closed) {
      failed(dial, closed.what());
    }
  }

  void accept_guests(Clock::time_point now) {
    while (true) {
      FileDescriptor socket(accept4(listener_.get(), nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC));
      if (!socket) {
        // Out of descriptors: those of strangers come first.
        if ((errno == EMFILE || errno == ENFILE) && !guests_.empty()) {
          guests_.erase(guests_.begin());
          continue;
        }
        return;
      }
      // A member is through within milliseconds; who has been here longest is the least likely to be one.
      if (guests_.size() >= kMostGuests) guests_.erase(guests_.begin());
      guests_.push_back(
          {std::make_unique<Handshake>(Handshake::answer(Channel(std::move(socket), encryption(), true),
                                                         group_, static_cast<std::uint32_t>(setup_.rank))),
           now + kGuestPatience});
      advance(guests_.back());
      if (!guests_.back().handshake) guests_.pop_back();
    }
  }

  // Leaves the guest without a handshake when it is done with, for better or worse.
  void advance(Guest& guest) {
    try {
      if (!guest.handshake->step()) return;
      const int member = static_cast<int>(guest.handshake->peer());
      if (channels_[static_cast<std::size_t>(member)]) throw ChannelClosed("is connected already");
      connected(member, guest.handshake->take());
    } catch (const ChannelClosed& closed) {
      // One line, whoever knocks and how often.
      if (turned_away_++ == 0) {
        log_info("{}: a connection to the data port was turned away: it {}", own_name(), closed.what());
      }
    }
    guest.handshake.reset();
  }

  void connected(int member, Channel channel) {
    channels_[static_cast<std::size_t>(member)] = std::move(channel);
    ++connected_;
    finished_.push_back(member);
  }

  void drop_slow_guests(Clock::time_point now) {
    std::erase_if(guests_, [&](const Guest& guest) { return now >= guest.until; });
  }

  Clock::time_point next_event(Clock::time_point now) const {
    Clock::time_point next = now + kGuestPatience;
    for (const auto& [member, dial] : dials_)
      next = std::min(next, dial.idle() ? dial.again_at : dial.give_up_at);
    for (const Guest& guest : guests_) next = std::min(next, guest.until);
    return next;
  }

  void wait(Clock::time_point until, Clock::time_point now) {
    std::vector<pollfd> polled{{listener_.get(), POLLIN, 0}};
    std::vector<int> dialled;
    for (const auto& [member, dial] : dials_) {
      if (dial.idle()) continue;
      polled.push_back({dial.descriptor(), dial.events(), 0});
      dialled.push_back(member);
    }
    const std::size_t first_guest = polled.size();
    for (const Guest& guest : guests_)
      polled.push_back({guest.handshake->descriptor(), guest.handshake->events(), 0});
    const auto patience = std::chrono::ceil<milliseconds>(until - now);
    if (poll(polled.data(), polled.size(), std::max(0, static_cast<int>(patience.count()))) <= 0) return;
    for (std::size_t i = 0; i < dialled.size(); ++i) {
      if (polled[1 + i].revents) advance(dialled[i], dials_.at(dialled[i]));
    }
    for (std::size_t i = first_guest; i < polled.size(); ++i) {
      if (polled[i].revents) advance(guests_[i - first_guest]);
    }
    std::erase_if(guests_, [](const Guest& guest) { return !guest.handshake; });
    for (const int member : finished_) dials_.erase(member);
    finished_.clear();
    if (polled[0].revents) accept_guests(Clock::now());
  }

  const std::string& own_name() const { return setup_.members[static_cast<std::size_t>(setup_.rank)].name; }

  std::string missing() const {
    std::vector<std::string> who;
    for (std::size_t member = 0; member < channels_.size(); ++member) {
      if (channels_[member] || static_cast<int>(member) == setup_.rank) continue;
      const auto dial = dials_.find(static_cast<int>(member));
      who.push_back(
          fmt::format("{} ({}{})", setup_.members[member].name, setup_.members[member].data_address,
                      dial == dials_.end() ? ", which has not connected" : ", " + dial->second.last_error));
    }
    return fmt::format(
        "{} has no data connection to {} after {:.0f} s: are these ports open between the machines? "
        "--data_port fixes a task's own",
        own_name(), fmt::join(who, ", "), std::chrono::duration<double>(setup_.connect_timeout).count());
  }

  GroupSetup& setup_;
  const GroupIdentity group_;
  const FileDescriptor listener_;
  std::optional<Encryption> encryption_;
  std::vector<Channel> channels_;
  std::size_t connected_ = 0;
  std::map<int, Dial> dials_;
  std::vector<Guest> guests_;
  std::vector<int> finished_;  // dials that are done
  std::uint64_t turned_away_ = 0;
};

}  // namespace

std::vector<Channel> form_group(GroupSetup& setup) {
  return Forming(setup).run();
}

}  // namespace tandem::internal::tcp
