#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <queue>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "cluster/membership_core.h"

namespace tandem::testing_support {

// What may go wrong in a schedule.
struct Faults {
  bool loss = false;       // 5 of 100 beats
  bool duplicate = false;  // 10 of 100 beats arrive twice
  bool reorder = false;    // up to 60 ms late instead of 5
  bool crash = false;
  bool restart = false;      // a crashed task comes again
  bool short_pause = false;  // 50 to 300 ms
  bool long_pause = false;   // 1 to 5 s
  bool partition = false;    // two groups that do not hear each other
  bool reset = false;        // a connection breaks between two live tasks
};

// Runs one membership core per task in virtual time, over a network and processes that fail as the seed says,
// and checks after every action what must always hold:
//   - no generation stands for two views with a common member;
//   - a task is named lost only for something that happened to it;
//   - where messages arrive, all survivors name the same loss;
//   - without a fault that counts, nobody stops;
//   - the run ends only when every training task is done;
//   - soon after the last fault, nobody waits for what cannot come.
class Simulator {
 public:
  // `change` may alter a task's options, to see that a broken rule is caught.
  Simulator(std::uint64_t seed, Faults faults,
            const std::function<void(internal::MembershipOptions&)>& change = {});

  // Empty, or the first thing that went wrong and when.
  std::string run();

  int tasks() const { return static_cast<int>(nodes_.size()); }
  int starts() const { return starts_; }
  int stops() const { return stops_; }

 private:
  using Time = internal::Time;
  using Event = std::function<void()>;

  struct Node {
    std::optional<internal::MembershipCore> core = {};  // while the process lives
    internal::Incarnation incarnation = {};
    Time paused_until{0};
    std::optional<internal::View> view = {};
    bool finish_called = false;
    bool finished = false;
    std::optional<internal::Loss> stopped = {};
  };

  struct Scheduled {
    Time at;
    std::uint64_t order;
    Event event;
    bool operator>(const Scheduled& other) const {
      return std::tie(at, order) > std::tie(other.at, other.order);
    }
  };

  // What happened to a process, for judging what is said about it.
  struct Fate {
    bool crashed = false;
    bool ended = false;        // stopped or finished, and exited
    Time last_long_pause{-1};  // its end
    Time last_pause_began{-1};
  };

  Node& node(int task) { return nodes_[static_cast<std::size_t>(task)]; }
  void at(Time when, Event event);
  void to_process(int task, Time when,
                  std::function<internal::MembershipCore::Actions(internal::MembershipCore&)> event);
  Time random_time(int from, int to);
  bool chance(double probability);

  void plan();
  void boot(int task);
  void tick(int task, internal::Incarnation incarnation);
  void crash(int task);
  void exit_process(int task);
  void break_links(int task);
  void perform(int task, const internal::MembershipCore::Actions& actions);
  void send_beats(int task);
  void probe(int from, int to);
  bool cut(int a, int b) const;

  void fail(const std::string& what);
  void check_start(int task, const internal::View& view);
  void check_stop(int task, const internal::Loss& loss);
  void check_agreement();
  void check_finished(int task);
  void check_end();

  const Faults faults_;
  const std::function<void(internal::MembershipOptions&)> change_;
  std::mt19937_64 random_;
  std::vector<Node> nodes_;
  std::vector<internal::MembershipOptions::Task> roles_;
  std::priority_queue<Scheduled, std::vector<Scheduled>, std::greater<>> events_;
  std::uint64_t order_ = 0;
  Time now_{0};
  Time last_fault_{0};
  std::set<int> island_;  // one side of a partition
  Time last_partition_{-1};
  std::map<internal::Incarnation, Fate> fates_;
  // (from, to): the sender is gone and its connection was reset, so that what a paused receiver had not read
  // is lost.
  std::set<std::pair<internal::Incarnation, internal::Incarnation>> reset_;
  std::vector<internal::View> views_;
  struct Decision {
    std::uint64_t view;
    internal::Incarnation told;
    internal::Incarnation decider;
    internal::Loss loss;
  };
  std::vector<Decision> decisions_;
  std::string failure_;
  int starts_ = 0;
  int stops_ = 0;
};

}  // namespace tandem::testing_support
