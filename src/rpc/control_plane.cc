#include "rpc/control_plane.h"

#include <fmt/format.h>
#include <grpcpp/resource_quota.h>
#include <grpcpp/server_builder.h>
#include <pthread.h>

#include <algorithm>
#include <utility>

#include "base/hmac.h"
#include "base/log.h"
#include "base/net.h"
#include "base/utf8.h"
#include "rpc/beat_codec.h"
#include "rpc/limits.h"
#include "rpc/reaction_order.h"
#include "rpc/words.h"

namespace tandem::internal {
namespace {

using std::chrono::milliseconds;

constexpr milliseconds kFirstBackOff{50};
constexpr milliseconds kLongestBackOff{1000};
constexpr milliseconds kProbePatience{200};
constexpr milliseconds kProbeAgain{10};
constexpr milliseconds kFirstNotice{1000};
constexpr milliseconds kTableInterval{500};
constexpr milliseconds kRefusalInterval{1000};
constexpr milliseconds kTakenPatience{5000};
constexpr milliseconds kFinishPatience{2000};
constexpr milliseconds kFarewellPatience{1000};
constexpr milliseconds kShutdownPatience{200};

MembershipOptions membership_options(const ControlPlaneOptions& options, int self) {
  return {.tasks = options.roles,
          .self = self,
          .incarnation = options.identity.incarnation,
          .join_timeout = options.join_timeout};
}

}  // namespace

class ControlPlane::Service final : public rpc::Control::CallbackService {
 public:
  explicit Service(ControlPlane& plane) : plane_(plane) {}

  grpc::ServerBidiReactor<rpc::Frame, rpc::Frame>* Link(grpc::CallbackServerContext* context) override {
    const Reaction reaction(this);
    auto link = IncomingLink::open(
        plane_.identity_,
        {.admit = [this](IncomingLink& from) { return plane_.admit(from); },
         .beat = [this](IncomingLink& from, const rpc::Beat& beat) { plane_.receive(from, beat); },
         .refused = [this](const std::string& reason,
                           const std::string& peer) { plane_.refused(reason, peer); },
         .ended =
             [this](IncomingLink& from) {
               const Reaction last(this);
               plane_.closed(from);
             }},
        *context);
    plane_.guests_.opened(link);
    return link.get();
  }

 private:
  ControlPlane& plane_;
};

ControlPlane::ControlPlane(ControlPlaneOptions options)
    : options_(std::move(options)),
      tasks_(identity_.cluster.tasks()),
      self_(rank_of(*identity_.task)),
      who_(identity_.task->name()),
      service_(std::make_unique<Service>(*this)),
      present_(tasks_.size()),
      absence_(tasks_.size(), "not tried yet"),
      core_(membership_options(options_, self_), now()),
      offers_(tasks_.size()),
      next_notice_(Clock::now() + std::min(kFirstNotice, options_.notice_interval)),
      next_table_(Clock::now()) {
  if (options_.listen_port != 0) check_can_listen(who_, options_.listen_host, options_.listen_port);
  grpc::ServerBuilder builder;
  // Without this two processes could listen at one port, each getting half of the calls.
  builder.AddChannelArgument(GRPC_ARG_ALLOW_REUSEPORT, 0);
  builder.AddChannelArgument(GRPC_ARG_MAX_CONCURRENT_STREAMS, kStreamsPerConnection);
  builder.AddChannelArgument(GRPC_ARG_MAX_METADATA_SIZE, kLargestMetadata);
  builder.AddChannelArgument(GRPC_ARG_SERVER_HANDSHAKE_TIMEOUT_MS,
                             static_cast<int>(kHandshakePatience.count()));
  builder.AddChannelArgument(GRPC_ARG_MAX_CONNECTION_IDLE_MS,
                             5 * static_cast<int>(kHandshakePatience.count()));
  builder.SetMaxReceiveMessageSize(kLargestMessage);
  builder.SetResourceQuota(grpc::ResourceQuota("tandem control").Resize(std::size_t{64} << 20));
  builder.AddListeningPort(join_host_port(options_.listen_host, options_.listen_port),
                           identity_.security.server_credentials(), &port_);
  builder.RegisterService(service_.get());
  release_to_grpc(service_.get());
  server_ = builder.BuildAndStart();
  if (!server_ || port_ == 0) {
    throw Unavailable(fmt::format(
        "{} cannot listen at {}{}", who_, join_host_port(options_.listen_host, options_.listen_port),
        identity_.security.mode == Security::Mode::kTls ? ": gRPC refuses the port or the certificates"
                                                        : ""));
  }
  for (int task = 0; task < static_cast<int>(tasks_.size()); ++task) {
    if (task != self_) dials_[task].again_at = Clock::now();
  }
  prober_ = std::make_unique<TcpProber>([this](int task, TcpProber::Outcome outcome) {
    post([this, task, outcome] { probed(task, outcome); });
  });
  thread_ = std::thread([this] { work(); });
  pthread_setname_np(thread_.native_handle(), "tandem-control");
}

ControlPlane::~ControlPlane() {
  listener_.set(nullptr);
  leave();
  {
    // Those that are told now need not find out the hard way.
    std::unique_lock lock(mutex_);
    changed_.wait_for(lock, kFarewellPatience, [&] { return others_know_; });
    stopping_ = true;
  }
  mail_.notify_all();
  thread_.join();
  draining_ = true;
  prober_.reset();
  // gRPC's threads still call back until every stream has ended.
  for (auto& [task, dial] : dials_) {
    if (dial.link) dial.link->cancel();
  }
  server_->Shutdown(std::chrono::system_clock::now() + kShutdownPatience);
  server_->Wait();
  acquire_from_grpc(service_.get());
  std::unique_lock lock(mutex_);
  while (std::ranges::any_of(dials_, [](const auto& entry) { return entry.second.link != nullptr; })) {
    if (mailbox_.empty()) {
      mail_.wait(lock);
      continue;
    }
    const auto event = std::move(mailbox_.front());
    mailbox_.pop_front();
    lock.unlock();
    event();
    lock.lock();
  }
}

Time ControlPlane::now() const {
  return std::chrono::duration_cast<Time>(Clock::now().time_since_epoch());
}

int ControlPlane::rank_of(const TaskId& task) const {
  return static_cast<int>(std::ranges::find(tasks_, task) - tasks_.begin());
}

// --- What the program calls.

void ControlPlane::throw_if_failed() const {
  if (failure_) std::rethrow_exception(failure_);
  if (lost_) throw Unavailable(lost_->message);
  if (phase_ == Phase::kLeft) {
    throw FailedPrecondition(fmt::format("{} has left: there is nothing to wait for", who_));
  }
}

void ControlPlane::wait_for_all() {
  std::unique_lock lock(mutex_);
  // The core has the deadline: it gives up with failure_ set.
  changed_.wait(lock, [&] { return run_ || failure_ || lost_ || phase_ == Phase::kLeft; });
  throw_if_failed();
}

void ControlPlane::join() {
  wait_for_all();
  std::unique_lock lock(mutex_);
  // As long as the training takes; a loss ends it.
  changed_.wait(lock, [&] { return finished_ || failure_ || lost_ || phase_ == Phase::kLeft; });
  if (!finished_) throw_if_failed();
}

void ControlPlane::check() const {
  if (!has_lost_.load(std::memory_order_acquire)) return;
  const std::lock_guard lock(mutex_);
  throw_if_failed();
}

std::optional<LostTask> ControlPlane::lost() const {
  const std::lock_guard lock(mutex_);
  return lost_;
}

const Run& ControlPlane::run(const char* asked) const {
  const std::lock_guard lock(mutex_);
  if (run_) return *run_;
  throw FailedPrecondition(
      fmt::format("{} has not started: {} is known once wait_for_all() has returned", who_, asked));
}

void ControlPlane::finish() {
  post([this] { perform(core_.finish(now())); });
  std::unique_lock lock(mutex_);
  changed_.wait_for(lock, kFinishPatience, [&] { return others_know_ || lost_; });
}

void ControlPlane::leave() {
  post([this] { perform(core_.leave(now())); });
}

void ControlPlane::set_details(std::function<std::map<std::string, std::string>()> details) {
  const std::lock_guard lock(details_mutex_);
  details_ = std::move(details);
}

void ControlPlane::set_progress(std::int64_t step, double examples_per_second) {
  step_.store(step, std::memory_order_relaxed);
  examples_per_second_.store(examples_per_second, std::memory_order_relaxed);
}

std::optional<PeerTask> ControlPlane::peer(const TaskId& task) const {
  const std::lock_guard lock(mutex_);
  const auto& present = present_.at(static_cast<std::size_t>(rank_of(task)));
  if (!present) return std::nullopt;
  return PeerTask{.offer = present->offer->entries,
                  .key = peer_key(identity_, present->offer->key_share),
                  .ended = present->ended,
                  .step = present->step,
                  .rounds = present->rounds};
}

PeerTask ControlPlane::wait_for_peer(const TaskId& task, milliseconds timeout) const {
  const auto rank = static_cast<std::size_t>(rank_of(task));
  const auto begin = Clock::now();
  auto say_at = begin + kFirstNotice;
  std::unique_lock lock(mutex_);
  while (!present_.at(rank)) {
    throw_if_failed();
    if (Clock::now() >= begin + timeout) {
      throw Unavailable(fmt::format("{} gives up after {} s without {} {} ({})", who_,
                                    std::chrono::duration<double>(timeout).count(), task.name(),
                                    address_of(static_cast<int>(rank)), absence_[rank]));
    }
    if (Clock::now() >= say_at) {
      log_info("{}: waiting for {} {} ({})", who_, task.name(), address_of(static_cast<int>(rank)),
               absence_[rank]);
      say_at = Clock::now() + options_.notice_interval;
    }
    changed_.wait_until(lock, std::min(say_at, begin + timeout));
  }
  lock.unlock();
  // It may have gone again in between; then there is nothing to tell of it but that.
  if (const auto found = peer(task)) return *found;
  return wait_for_peer(task, timeout);
}

// --- What gRPC's threads call.

std::optional<rpc::Refusal> ControlPlane::admit(IncomingLink& link) {
  const auto refusal = guests_.admit(link);
  if (refusal || !link.task()) return refusal;
  // It is there: no need to back off from dialling it.
  post([this, task = rank_of(*link.task())] {
    Dial& attempt = dials_.at(task);
    attempt.back_off = milliseconds(0);
    if (!attempt.link && !draining_) dial(task, attempt);
  });
  return std::nullopt;
}

void ControlPlane::refused(const std::string& reason, const std::string& peer) {
  post([this, reason, peer] {
    // A stranger may come again and again; the log need not tell of each time.
    if (Clock::now() < next_refusal_) return;
    next_refusal_ = Clock::now() + kRefusalInterval;
    log_warning("{}: refuses a connection from {}: {}", who_, peer, reason);
  });
}

void ControlPlane::receive(IncomingLink& link, const rpc::Beat& message) {
  const int task = rank_of(*link.task());
  auto beat = decode(message, static_cast<int>(tasks_.size()), task, link.incarnation());
  if (!beat) return link.close("not a beat");
  guests_.heard(link);
  {
    // Only a peer that goes wild could fill the mailbox, and what a beat says will be said again. Nothing
    // else may get lost: the end of a link is told once.
    const std::lock_guard lock(mutex_);
    if (mailbox_.size() >= kMailboxSize) return;
  }
  post([this, beat = std::move(*beat), offer = link.offer()] { hear(beat, offer); });
}

void ControlPlane::closed(IncomingLink& link) {
  if (!guests_.closed(link)) return;
  post([this, task = rank_of(*link.task()), incarnation = link.incarnation()] {
    if (core_.sighting(now(), task).incarnation == incarnation) perform(core_.on_link_lost(now(), task));
  });
}

// --- The control thread.

void ControlPlane::post(std::function<void()> event) {
  const std::lock_guard lock(mutex_);
  mailbox_.push_back(std::move(event));
  // With the lock held: the last event lets the destructor go on, and without it mail_ could be gone by now.
  mail_.notify_all();
}

// With its beat comes what a process offers, so the core never starts with one whose offer is missing. A task
// may come again while others join: of the processes it had, the present one counts, and the one that this
// task has said it is ready for.
void ControlPlane::hear(const Beat& beat, const std::shared_ptr<const Offer>& offer) {
  if (run_) {
    perform(core_.on_beat(now(), beat));
    return see(beat, offer);
  }
  auto& known = offers_[static_cast<std::size_t>(beat.from)];
  known.try_emplace(beat.incarnation, offer);
  perform(core_.on_beat(now(), beat));
  std::erase_if(known, [&](const auto& entry) {
    return entry.first != core_.sighting(now(), beat.from).incarnation &&
           entry.first != core_.view().members[static_cast<std::size_t>(beat.from)];
  });
  see(beat, offer);
}

// For peer(). A beat that the core did not take is of a process that it does not believe in.
void ControlPlane::see(const Beat& beat, const std::shared_ptr<const Offer>& offer) {
  if (core_.sighting(now(), beat.from).incarnation != beat.incarnation) return;
  const std::lock_guard lock(mutex_);
  auto& present = present_[static_cast<std::size_t>(beat.from)];
  const bool ended =
      beat.phase == Phase::kDone || beat.phase == Phase::kLeft || beat.phase == Phase::kStopped;
  const bool news =
      !present || present->offer != offer || present->ended != ended || present->rounds != beat.rounds;
  present = {.offer = offer, .ended = ended, .step = beat.step, .rounds = beat.rounds};
  if (news) changed_.notify_all();
}

void ControlPlane::work() {
  constexpr milliseconds kInterval{100};
  auto next_tick = Clock::now();
  std::unique_lock lock(mutex_);
  while (!stopping_) {
    auto wake = next_tick;
    for (const auto& [task, at] : probe_again_) wake = std::min(wake, at);
    if (mailbox_.empty()) mail_.wait_until(lock, wake, [&] { return stopping_ || !mailbox_.empty(); });
    std::deque<std::function<void()>> events;
    events.swap(mailbox_);
    lock.unlock();
    for (const auto& event : events) event();
    for (auto entry = probe_again_.begin(); entry != probe_again_.end();) {
      const bool due = Clock::now() >= entry->second;
      if (due) probe(entry->first);
      entry = due ? probe_again_.erase(entry) : std::next(entry);
    }
    if (Clock::now() >= next_tick) {
      tick();
      next_tick = Clock::now() + kInterval;
    }
    publish();
    lock.lock();
  }
}

void ControlPlane::tick() {
  perform(core_.on_tick(now()));
  dial();
  guests_.drop_slow();
  if (Clock::now() >= next_table_) {
    tell_observers();
    next_table_ = Clock::now() + kTableInterval;
  }
  const bool joining = core_.phase() == Phase::kJoining || core_.phase() == Phase::kReady;
  if (joining && Clock::now() >= next_notice_) {
    say_who_is_missing();
    next_notice_ = Clock::now() + options_.notice_interval;
  }
}

void ControlPlane::probe(int task) {
  if (draining_) return;
  const HostPort address = parse_address(address_of(task), "cluster");
  prober_->probe(task, address.host, address.port, kProbePatience);
}

void ControlPlane::probed(int task, TcpProber::Outcome outcome) {
  const auto result = outcome == TcpProber::Outcome::kRefused    ? ProbeResult::kRefused
                      : outcome == TcpProber::Outcome::kAnswered ? ProbeResult::kAnswered
                                                                 : ProbeResult::kSilent;
  perform(core_.on_probe(now(), task, result));
  // A dying process loses its links before its port: look again soon.
  if (result == ProbeResult::kAnswered && core_.in_doubt(task))
    probe_again_[task] = Clock::now() + kProbeAgain;
}

void ControlPlane::perform(const MembershipCore::Actions& actions) {
  if (draining_) return;
  bool beat = false;
  for (const Action& action : actions) {
    if (action.kind == Action::Kind::kBeat) {
      beat = true;
    } else {
      perform(action);
    }
  }
  if (beat) send_beats();
  // After the others were told: it may take a moment. (No other thread writes lost_.)
  if (lost_) listener_.tell(*lost_);
}

void ControlPlane::perform(const Action& action) {
  switch (action.kind) {
    case Action::Kind::kBeat:
      break;
    case Action::Kind::kProbe:
      probe(action.task);
      break;
    case Action::Kind::kStart:
      started(*action.view);
      break;
    case Action::Kind::kStop:
      stopped(*action.loss);
      break;
    case Action::Kind::kFinished: {
      const std::lock_guard lock(mutex_);
      finished_ = true;
      changed_.notify_all();
      break;
    }
    case Action::Kind::kJoinTimeout: {
      const std::lock_guard lock(mutex_);
      failure_ = std::make_exception_ptr(Unavailable(
          fmt::format("{} gives up after {} s without {}", who_,
                      std::chrono::duration<double>(options_.join_timeout).count(), missing_tasks())));
      changed_.notify_all();
      break;
    }
    case Action::Kind::kGone: {
      const std::lock_guard lock(mutex_);
      present_[static_cast<std::size_t>(action.task)].reset();
      absence_[static_cast<std::size_t>(action.task)] = story_of(action.evidence);
      changed_.notify_all();
    }
      log_warning("{}: {} ({}) {}", who_, name_of(action.task), address_of(action.task),
                  story_of(action.evidence));
      break;
    case Action::Kind::kSuspect:
      log_warning("{}: nothing from {} ({}) for {} ms; asking the others", who_, name_of(action.task),
                  address_of(action.task), action.duration.count());
      break;
    case Action::Kind::kHeardAgain:
      log_info("{}: {} is heard again", who_, name_of(action.task));
      break;
    case Action::Kind::kStalled:
      log_warning("{}: this process stood still for {} ms", who_, action.duration.count());
      break;
    case Action::Kind::kTurnedAway:
      log_warning("{}: a new process of {} is turned away: the run goes on without it", who_,
                  name_of(action.task));
      break;
  }
}

void ControlPlane::started(const View& view) {
  Run run{.generation = view.generation};
  std::vector<std::string> shares;
  for (std::size_t task = 0; task < tasks_.size(); ++task) {
    const bool is_self = static_cast<int>(task) == self_;
    if (!is_self && !view.members[task]) continue;  // the run does not need it
    const Offer& offer = is_self ? identity_.offer : *offers_[task].at(view.members[task]);
    run.offers[tasks_[task]] = offer.entries;
    shares.push_back(offer.key_share);
  }
  run.data_key = data_key(identity_.security, identity_.cluster.id(), view.generation, shares);
  const bool waited = options_.roles[static_cast<std::size_t>(self_)].needed;
  if (waited) log_info("{}: all {} tasks are here", who_, tasks_.size());
  const std::lock_guard lock(mutex_);
  run_ = std::move(run);
  changed_.notify_all();
}

void ControlPlane::stopped(const Loss& loss) {
  const bool ourselves = loss.task == self_;
  std::string message =
      fmt::format("{} ({}) {}, at step {} (decided by {})", name_of(loss.task), address_of(loss.task),
                  story_of(loss.evidence), loss.step,
                  name_of(std::clamp(loss.decided_by, 0, static_cast<int>(tasks_.size()) - 1)));
  if (ourselves) {
    message = fmt::format(
        "this task was left out by the others: {} ({}) {}, at step {}; was it stopped or cut off?", who_,
        address_of(self_), story_of(loss.evidence), loss.step);
  }
  log_warning("{}: {}", who_, message);
  const std::lock_guard lock(mutex_);
  lost_ = LostTask{.task = tasks_[static_cast<std::size_t>(loss.task)],
                   .address = address_of(loss.task),
                   .evidence = tandem::internal::name_of(loss.evidence),
                   .step = loss.step,
                   .message = std::move(message)};
  has_lost_.store(true, std::memory_order_release);
  changed_.notify_all();
}

void ControlPlane::send_beats() {
  core_.set_progress(step_.load(std::memory_order_relaxed),
                     examples_per_second_.load(std::memory_order_relaxed));
  core_.set_rounds(rounds_.load(std::memory_order_relaxed));
  rpc::Frame frame;
  encode(core_.beat(now()), *frame.mutable_beat());
  for (auto& [task, dial] : dials_) {
    if (dial.up) dial.link->send(frame);
  }
}

void ControlPlane::dial() {
  for (auto& [task, attempt] : dials_) {
    if (attempt.link) {
      if (!attempt.up &&
          Clock::now() - attempt.started > kHandshakePatience + milliseconds(kConnectPatienceMs)) {
        attempt.link->cancel();
      }
    } else if (Clock::now() >= attempt.again_at) {
      const Phase theirs = core_.sighting(now(), task).phase;
      const bool over = core_.phase() == Phase::kStopped || core_.phase() == Phase::kLeft ||
                        (core_.phase() == Phase::kDone && theirs == Phase::kDone);
      if (!over) dial(task, attempt);
    }
  }
}

void ControlPlane::dial(int task, Dial& attempt) {
  const std::uint64_t number = ++attempt.number;
  attempt.started = Clock::now();
  attempt.link = std::make_unique<OutgoingLink>(
      identity_, tasks_[static_cast<std::size_t>(task)],
      OutgoingLink::Events{
          .welcomed =
              [this, task, number] {
                post([this, task, number] {
                  Dial& dial = dials_.at(task);
                  if (dial.number != number || !dial.link) return;
                  dial.up = true;
                  dial.back_off = milliseconds(0);
                  dial.last_error = "it does not answer";
                  dial.taken_since.reset();
                  send_beats();
                });
              },
          .ended =
              [this, task, number](const std::optional<rpc::Refusal>& refusal, const std::string& reason) {
                post([this, task, number, refusal, reason] { dial_ended(task, number, refusal, reason); });
              }});
  attempt.link->start();
}

void ControlPlane::dial_ended(int task, std::uint64_t number, const std::optional<rpc::Refusal>& refusal,
                              const std::string& reason) {
  Dial& attempt = dials_.at(task);
  if (attempt.number != number) return;
  const bool was_up = std::exchange(attempt.up, false);
  attempt.link.reset();
  attempt.last_error = reason;
  {
    const std::lock_guard lock(mutex_);
    absence_[static_cast<std::size_t>(task)] = reason;
  }
  attempt.back_off = std::clamp(2 * attempt.back_off, kFirstBackOff, kLongestBackOff);
  std::uint16_t jitter = 0;
  random_bytes(&jitter, sizeof jitter);
  attempt.again_at = Clock::now() + attempt.back_off * (75 + jitter % 50) / 100;
  if (was_up) return perform(core_.on_link_lost(now(), task));
  if (!refusal) return;
  // A task that waits for nobody has started at once; what another one thinks of it still counts.
  const bool alone = !options_.roles[static_cast<std::size_t>(self_)].needed;
  const bool joining =
      core_.phase() == Phase::kJoining || core_.phase() == Phase::kReady ||
      (alone && core_.phase() == Phase::kRunning && !present_[static_cast<std::size_t>(task)]);
  bool final = refusal->reason() == rpc::Refusal::MISMATCH;
  if (refusal->reason() == rpc::Refusal::TAKEN) {
    if (!attempt.taken_since) attempt.taken_since = Clock::now();
    final = Clock::now() - *attempt.taken_since > kTakenPatience;
  }
  if (!joining || !final) return;
  const std::lock_guard lock(mutex_);
  if (!failure_) {
    failure_ = std::make_exception_ptr(InvalidArgument(
        fmt::format("{} is refused by {} ({}): {}", who_, name_of(task), address_of(task), reason)));
  }
  changed_.notify_all();
}

std::string ControlPlane::missing_tasks() const {
  std::vector<std::string> missing;
  for (const int task : core_.missing(now())) {
    missing.push_back(fmt::format("{} {} ({})", name_of(task), address_of(task), dials_.at(task).last_error));
  }
  return missing.empty() ? "nobody" : fmt::format("{}", fmt::join(missing, ", "));
}

void ControlPlane::say_who_is_missing() {
  log_info("{}: waiting for {} of {}: {}", who_, core_.missing(now()).size(), tasks_.size(), missing_tasks());
}

void ControlPlane::tell_observers() {
  const auto observers = guests_.observers();
  if (observers.empty()) return;
  rpc::Frame frame;
  rpc::Table& table = *frame.mutable_table();
  const auto set_task = [&](rpc::Task& message, int task) {
    message.set_type(tasks_[static_cast<std::size_t>(task)].type);
    message.set_index(tasks_[static_cast<std::size_t>(task)].index);
  };
  set_task(*table.mutable_teller(), self_);
  table.set_wall_clock_ms(
      std::chrono::duration_cast<milliseconds>(std::chrono::system_clock::now().time_since_epoch()).count());
  const Beat own = core_.beat(now());
  for (int task = 0; task < static_cast<int>(tasks_.size()); ++task) {
    rpc::TaskStatus& row = *table.add_tasks();
    set_task(*row.mutable_task(), task);
    row.set_address(address_of(task));
    row.set_state(state_of(core_.sighting(now(), task)));
    const Beat* last = task == self_ ? &own : core_.last_beat(task) ? &*core_.last_beat(task) : nullptr;
    const Time silence = core_.sighting(now(), task).silence;
    row.set_silence_ms(silence == Time::max() ? -1 : silence.count());
    if (last) {
      row.set_generation(last->generation);
      row.set_step(last->step);
      row.set_examples_per_second(last->examples_per_second);
    } else {
      row.set_note(dials_.at(task).last_error);
    }
  }
  add_details(table);
  for (const auto& observer : observers) observer->send(frame);
}

void ControlPlane::add_details(rpc::Table& table) {
  const std::lock_guard lock(details_mutex_);
  if (!details_) return;
  std::string fault;
  try {
    const auto details = details_();
    fault = fault_of(details);
    const auto is_text = [](const auto& entry) { return is_utf8(entry.second); };
    if (fault.empty() && !std::ranges::all_of(details, is_text)) fault = "has a value that is not UTF-8";
    if (fault.empty()) table.mutable_details()->insert(details.begin(), details.end());
  } catch (const std::exception& error) {
    fault = error.what();
  }
  if (fault.empty()) return;
  details_ = {};
  log_warning("{}: what it tells of itself {}: it tells nothing from now on", who_, fault);
}

// For those who wait: what the core's state means to them.
void ControlPlane::publish() {
  const Phase phase = core_.phase();
  const bool ended = phase == Phase::kDone || phase == Phase::kLeft || phase == Phase::kStopped;
  const bool others_know = ended && core_.all_know(now());
  // At once: after its end there is no time for another table. (No other thread writes phase_.)
  if (phase != phase_) tell_observers();
  const std::lock_guard lock(mutex_);
  if (others_know == others_know_ && phase == phase_) return;
  others_know_ = others_know;
  phase_ = phase;
  changed_.notify_all();
}

}  // namespace tandem::internal
