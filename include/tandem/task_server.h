#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "tandem/cluster_spec.h"

namespace tandem {

// How the tasks of a cluster know each other.
struct SecurityOptions {
  // "insecure": anyone who reaches the port is believed. "token": whoever knows a secret that all tasks
  // share; the traffic itself is neither hidden nor protected. "tls": certificates made by `tandem certs`,
  // and encryption.
  // "": insecure while this task listens on a loopback address; elsewhere an error that shows the three ways.
  std::string mode = {};

  // For "token": a file of mode 0600, made by `tandem certs token`.
  std::string token_file = {};

  // For "tls": the folder that `tandem certs issue` filled, or this task's own folder in it.
  std::string certs = {};

  // Allows "insecure" on other addresses than loopback.
  bool insecure_network = false;
};

struct ServerOptions {
  // The address to listen at, without the port. Empty: the host of this task in the cluster.
  std::string bind = {};

  SecurityOptions security = {};

  // What must be the same on every task for a run to make sense, e.g. {{"batch_size", "128"}}. A task that
  // differs is refused, and told in what. Never paths, ports or the task's index.
  std::map<std::string, std::string> program = {};

  // What this task tells the others of itself, e.g. {{"data_address", "10.0.0.1:40123"}}; see offers().
  // Unlike `program` it may differ between the tasks. Values are any bytes. At most 32 entries with keys of
  // 64 bytes, 4 KiB in all. No place for secrets, unless the mode is "tls": otherwise it travels as it is,
  // and to whoever answers at a task's address.
  std::map<std::string, std::string> offer = {};

  // More of it, which depends on own_key(): called once, before anyone can see this task.
  std::function<std::map<std::string, std::string>(const std::string& own_key)> offer_with_key = {};

  // Jobs whose tasks nobody waits for, and whose loss stops nobody.
  std::vector<std::string> optional_jobs = {"evaluator"};

  // How long the start may take, and how often it is said who is missing.
  std::chrono::milliseconds join_timeout = std::chrono::minutes(10);
  std::chrono::milliseconds notice_interval = std::chrono::seconds(5);
};

// The task whose loss ended a run; the same one on every task that is left.
struct LostTask {
  TaskId task = {};
  std::string address = {};
  // "dead", "restarted", "unreachable", "link", "left", "stalled"
  std::string evidence = {};
  std::int64_t step = 0;
  // The whole story in one line.
  std::string message = {};
};

// Another task, as one that need not wait for it sees it.
struct PeerTask {
  std::map<std::string, std::string> offer = {};
  std::string key = {};
  // It has done its part, or goes: nothing more will come of it.
  bool ended = false;
  std::int64_t step = 0;
  std::uint64_t rounds = 0;
};

// What one task of a cluster shows to the others. It listens at its own address, finds the others, notices
// when one is gone, and ends in order.
//
//   tandem::TaskServer server(cluster, "worker", 0);
//   server.wait_for_all();                                    // all start together
//   while (...) { step(); server.set_progress(n); server.check(); }
//   server.finish();
//
// Whoever trains needs none of his own: strategies have one. tandem::Server adds what a parameter server
// does.
//
// Calls may come from any thread. Threads of its own do the talking; they log, and never throw.
class TaskServer {
 public:
  // Starts to listen. `job` may be empty if the cluster has one job, `index` absent if the job has one task.
  // Throws InvalidArgument for a task that is not in the cluster, an address that is not of this machine, a
  // wrong choice of security, an offer that is too large; Unavailable if the port is taken (naming a free
  // one).
  explicit TaskServer(const ClusterSpec& cluster, const std::string& job = {}, std::optional<int> index = {},
                      ServerOptions options = {});

  // A cluster of this process alone: job "localhost", a free port of 127.0.0.1.
  static TaskServer create_local_server(ServerOptions options = {});

  // Without finish() or leave() before, the others see this task leave. Waits for up to a second until they
  // know.
  ~TaskServer();
  TaskServer(TaskServer&&) noexcept;
  TaskServer& operator=(TaskServer&&) noexcept;

  // "grpc://host:port"
  const std::string& target() const;
  const TaskId& task() const;
  // The port that is listened at; of use when the address had port 0.
  int port() const;
  // That of the cluster, see ClusterSpec::id().
  const std::string& cluster_id() const;
  // The mode in force: "insecure", "token" or "tls".
  std::string security_mode() const;

  // Returns when every task that the run needs is there; they return within milliseconds of each other.
  // Throws Unavailable after join_timeout, naming who is missing and why; InvalidArgument if another task
  // refuses this one: another cluster, other values in `program`, a wrong token; FailedPrecondition if
  // leave() was called.
  void wait_for_all();

  // Of the run that wait_for_all() has started; they throw FailedPrecondition before, and stay the same from
  // then on, also when a task is lost. A run is the processes that started together, one of every task but
  // those of `optional_jobs`. All of its tasks get the same answers. (A task of an optional job belongs to
  // none: it gets what a cluster of itself alone would.)
  //
  // Counts the attempts to start: 1, or more if a task went, or came again, when others were ready. Two runs
  // whose processes were all started anew can have the same one; data_key() tells those apart.
  std::uint64_t generation() const;
  // What each task of the run offers, this one included: of exactly those processes that started, whatever
  // others of the same task offered before. `tandem status` never gets to see it.
  std::map<TaskId, std::map<std::string, std::string>> offers() const;
  // 32 bytes that the processes of this run have in common, for connections that they open besides: whoever
  // proves to know them belongs to this very run. With "token" only those can know them who know the token;
  // with "tls" only the tasks, by their certificates. With "insecure" whoever reads the traffic can: they
  // keep out strays of other runs, and no one who means harm.
  std::string data_key() const;

  // Another task as it is now, for those who neither wait for all nor end with one (every job is among
  // `optional_jobs`): nothing until it was heard of, and while it is known to be gone. A task that comes
  // again is another process, with another offer and another key.
  std::optional<PeerTask> peer(const TaskId& task) const;
  // Returns as soon as there is one. Throws Unavailable after `timeout`, with what is known of it, and
  // InvalidArgument if it refuses this task. Says from time to time for whom it waits.
  PeerTask wait_for_peer(const TaskId& task, std::chrono::milliseconds timeout) const;
  // 32 bytes for connections to this very process: PeerTask::key of whoever sees it as a peer. What it is
  // worth is what data_key() is.
  std::string own_key() const;

  // For `tandem status`, and for the message when a task is lost.
  void set_progress(std::int64_t step, double examples_per_second = 0);
  // What this task tells of itself besides: called on a thread of the server about twice a second while
  // somebody looks, so it must not take long. Values are JSON, e.g. {{"bytes", "1048576"}}; of the size of an
  // offer. {} removes it: when set_details() returns, the one before is not being called and will not be.
  void set_details(std::function<std::map<std::string, std::string>()> details);
  // How many trainings this task has been through: PeerTask::rounds.
  void set_rounds(std::uint64_t rounds);

  // Throws Unavailable if the run has lost a task; costs one atomic read if not.
  void check() const;
  std::optional<LostTask> lost() const;

  // Calls `listener` once, as soon as the run has lost a task, on a thread of the server: to wake what waits
  // for that task elsewhere. By then lost() and check() tell it too. If a task is lost already, the call
  // comes at once, on this thread. There is one listener: another takes its place, {} removes it. When
  // on_lost() returns, the one before is not being called and will not be; the same holds when the destructor
  // begins its work. Both wait for a call that is under way, so the listener must not wait for them, nor
  // destroy the TaskServer; it may call anything else here. It must not take long either: the server does
  // nothing else meanwhile. What it throws is logged.
  void on_lost(std::function<void(const LostTask&)> listener);

  // This task has done its part. Returns when the others know, at the latest after two seconds; then its
  // going is no loss.
  void finish();

  // Waits until every chief and worker has finished. Throws Unavailable if a task is lost, and as
  // wait_for_all() does.
  void join();

  // Goes before the end; the others stop, and name this task.
  void leave();

 private:
  struct Impl;
  explicit TaskServer(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace tandem
