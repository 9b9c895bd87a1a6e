#pragma once

#include <grpcpp/server.h>

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "base/tcp_prober.h"
#include "cluster/membership_core.h"
#include "rpc/data_key.h"
#include "rpc/guests.h"
#include "rpc/handshake.h"
#include "rpc/incoming_link.h"
#include "rpc/loss_listener.h"
#include "rpc/outgoing_link.h"
#include "tandem/error.h"
#include "tandem/task_server.h"

namespace tandem::internal {

struct ControlPlaneOptions {
  Identity identity = {};
  std::string listen_host = {};
  int listen_port = 0;
  // By task, in the order of ClusterSpec::tasks().
  std::vector<MembershipOptions::Task> roles = {};
  std::chrono::milliseconds join_timeout = {};
  std::chrono::milliseconds notice_interval = {};
};

// What the tasks of a run know of it from its start on.
struct Run {
  std::uint64_t generation = 0;
  std::map<TaskId, std::map<std::string, std::string>> offers = {};
  std::string data_key = {};
};

// Gives a membership core its surroundings: links over gRPC to and from every other task, a clock, probes.
// One thread feeds it; whatever happens elsewhere is handed to that thread through a mailbox.
class ControlPlane {
 public:
  explicit ControlPlane(ControlPlaneOptions options);
  // Leaves if it must, and waits for up to a second until the others know.
  ~ControlPlane();

  int port() const { return port_; }
  Security::Mode security_mode() const { return identity_.security.mode; }

  // These throw what TaskServer says.
  void wait_for_all();
  void join();
  void check() const;
  std::optional<LostTask> lost() const;
  void on_lost(std::function<void(const LostTask&)> listener) { listener_.set(std::move(listener)); }
  void finish();
  void leave();
  void set_progress(std::int64_t step, double examples_per_second);
  void set_rounds(std::uint64_t rounds) { rounds_.store(rounds, std::memory_order_relaxed); }
  std::optional<PeerTask> peer(const TaskId& task) const;
  PeerTask wait_for_peer(const TaskId& task, std::chrono::milliseconds timeout) const;
  std::string own_key() const { return peer_key(identity_, identity_.offer.key_share); }
  void set_details(std::function<std::map<std::string, std::string>()> details);
  // Stays as it is from the start on. `asked` is for the message of the FailedPrecondition before.
  const Run& run(const char* asked) const;

 private:
  using Clock = std::chrono::steady_clock;
  class Service;

  // Our link to another task.
  struct Dial {
    std::unique_ptr<OutgoingLink> link = {};
    std::uint64_t number = 0;  // of the attempt
    bool up = false;
    Clock::time_point started = {};
    Clock::time_point again_at = {};
    std::chrono::milliseconds back_off{0};
    std::string last_error = "not tried yet";
    std::optional<Clock::time_point> taken_since = {};
  };

  // Called by IncomingLink.
  std::optional<rpc::Refusal> admit(IncomingLink& link);
  void refused(const std::string& reason, const std::string& peer);
  void receive(IncomingLink& link, const rpc::Beat& message);
  void closed(IncomingLink& link);

  // On the control thread.
  void post(std::function<void()> event);
  void hear(const Beat& beat, const std::shared_ptr<const Offer>& offer);
  void see(const Beat& beat, const std::shared_ptr<const Offer>& offer);
  void work();
  void tick();
  void probe(int task);
  void probed(int task, TcpProber::Outcome outcome);
  void perform(const MembershipCore::Actions& actions);
  void perform(const Action& action);
  void send_beats();
  void dial();
  void dial(int task, Dial& dial);
  void dial_ended(int task, std::uint64_t number, const std::optional<rpc::Refusal>& refusal,
                  const std::string& reason);
  void tell_observers();
  void add_details(rpc::Table& table);
  void say_who_is_missing();
  std::string missing_tasks() const;
  void started(const View& view);
  void stopped(const Loss& loss);
  void publish();

  int rank_of(const TaskId& task) const;
  const std::string& address_of(int task) const {
    return identity_.cluster.task_address(tasks_[static_cast<std::size_t>(task)]);
  }
  std::string name_of(int task) const { return tasks_[static_cast<std::size_t>(task)].name(); }
  Time now() const;
  // With the lock held.
  void throw_if_failed() const;

  const ControlPlaneOptions options_;
  const Identity& identity_ = options_.identity;
  const std::vector<TaskId> tasks_;
  const int self_;
  const std::string who_;  // "worker:0", in front of every line

  std::unique_ptr<Service> service_;
  std::unique_ptr<grpc::Server> server_;
  int port_ = 0;

  std::atomic<std::int64_t> step_{0};
  std::atomic<double> examples_per_second_{0};
  std::atomic<std::uint64_t> rounds_{0};
  std::atomic<bool> has_lost_{false};

  std::mutex details_mutex_;
  std::function<std::map<std::string, std::string>()> details_;  // guarded by it

  Guests guests_;
  LossListener listener_;

  mutable std::mutex mutex_;
  std::condition_variable mail_;
  mutable std::condition_variable changed_;
  std::deque<std::function<void()>> mailbox_;
  bool stopping_ = false;
  std::optional<Run> run_;  // from the start on
  bool finished_ = false;
  bool others_know_ = false;
  Phase phase_ = Phase::kJoining;
  std::optional<LostTask> lost_;
  std::exception_ptr failure_;
  // By task: the process of it that is here now.
  struct Present {
    std::shared_ptr<const Offer> offer = {};
    bool ended = false;
    std::int64_t step = 0;
    std::uint64_t rounds = 0;
  };
  std::vector<std::optional<Present>> present_;
  // By task: why it cannot be reached, as far as it cannot.
  std::vector<std::string> absence_;

  // Of the control thread alone.
  MembershipCore core_;
  // By task, until the start: of each process of it that the run could begin with.
  std::vector<std::map<Incarnation, std::shared_ptr<const Offer>>> offers_;
  std::map<int, Dial> dials_;
  Clock::time_point next_notice_;
  Clock::time_point next_table_;
  Clock::time_point next_refusal_{};
  std::map<int, Clock::time_point> probe_again_;
  bool draining_ = false;  // only waits for its links to end

  std::unique_ptr<TcpProber> prober_;
  std::thread thread_;
};

}  // namespace tandem::internal
