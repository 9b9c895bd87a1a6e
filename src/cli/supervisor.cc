#include "cli/supervisor.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <poll.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <memory>
#include <optional>

#include "cli/child_process.h"
#include "cli/line_prefixer.h"
#include "cli/output.h"
#include "cli/process_guard.h"
#include "cli/program.h"
#include "cli/signal_inbox.h"

namespace tandem::internal {
namespace {

using Clock = std::chrono::steady_clock;
using Seconds = std::chrono::duration<double>;

// A program has ended, but a child of its own (`tee` in a wrapper script) may still pass on its last lines.
constexpr Seconds kLinger{2};
// A killed process that is still there after this hangs in the kernel.
constexpr Seconds kAfterKill{5};
constexpr int kBlock = 65536;
constexpr int kPipeful = 16;  // blocks: 1 MiB, the most that Linux lets a user set

Clock::time_point from_now(Seconds seconds) {
  // Far enough for any patience, and safe to add to the clock.
  constexpr Seconds kForever{1e9};
  return Clock::now() + std::chrono::duration_cast<Clock::duration>(std::min(seconds, kForever));
}

// A descriptor below 3 that is closed would be taken by the first file or pipe opened here, and then a task
// would write into that.
void open_standard_streams() {
  while (true) {
    const int descriptor = open("/dev/null", O_RDWR | O_CLOEXEC);
    if (descriptor < 0) return;
    if (descriptor > STDERR_FILENO) {
      close(descriptor);
      return;
    }
  }
}

std::string prefix(const std::string& name, std::size_t number, bool colour) {
  // Green, yellow, blue, magenta, cyan, then the bright ones: red would look like an error.
  constexpr std::array kColours{32, 33, 34, 35, 36, 92, 93, 94, 95, 96};
  if (!colour) return fmt::format("[{}] ", name);
  return fmt::format("\x1b[{}m[{}]\x1b[0m ", kColours[number % kColours.size()], name);
}

class Supervisor {
 public:
  Supervisor(const std::vector<SupervisedTask>& tasks, const SuperviseOptions& options)
      : options_(options), one_stream_(same_file(STDOUT_FILENO, STDERR_FILENO)) {
    for (const auto& task : tasks) start(task);
  }

  int run() {
    while (alive() || !out_.empty() || !err_.empty()) {
      wait();
      read_signals();
      act_on_time();
      if (!alive() && abort_output_) break;
    }
    return exit_code_;
  }

 private:
  // One of a task's two streams on its way to ours.
  struct Stream {
    FileDescriptor* from;
    LinePrefixer prefixer;
    Output* to;
  };

  struct Task {
    Task(const SupervisedTask& task, ChildProcess started)
        : name(task.name), helper(task.helper), expendable(task.expendable), process(std::move(started)) {}

    std::string name;
    bool helper;
    bool expendable;
    ChildProcess process;
    std::vector<Stream> streams = {};
    std::optional<Ending> ending = {};
    Clock::time_point linger_until = {};  // once it has ended
    bool gone = false;
  };

  enum class Stage {
    kRunning,
    kGrace,        // a task has failed, or only helpers are left: the rest should end by itself
    kTerminating,  // it was told to
    kKilling,
  };

  void start(const SupervisedTask& task) {
    const ChildCommand command{.arguments = options_.command, .variables = task.variables};
    const auto number = tasks_.size();
    tasks_.push_back(std::make_unique<Task>(task, ChildProcess(command, signals_, guard_)));
    Task& started = *tasks_.back();
    Output& error_output = one_stream_ ? out_ : err_;
    const auto add_stream = [&](FileDescriptor& from, Output& to) {
      const int shown = to.descriptor();
      started.streams.push_back(
          {&from, LinePrefixer(prefix(task.name, number, wants_colour(shown)), is_terminal(shown)), &to});
    };
    add_stream(started.process.out(), out_);
    add_stream(started.process.err(), error_output);
  }

  bool alive() const {
    return std::any_of(tasks_.begin(), tasks_.end(), [](const auto& task) { return !task->gone; });
  }

  // Tasks that have not ended.
  std::vector<Task*> running() const {
    std::vector<Task*> found;
    for (const auto& task : tasks_) {
      if (!task->ending) found.push_back(task.get());
    }
    return found;
  }

  static std::string names(const std::vector<Task*>& tasks) {
    std::vector<std::string> all;
    for (const Task* task : tasks) all.push_back(task->name);
    return fmt::format("{}", fmt::join(all, ", "));
  }

  void say(const std::string& line) { (one_stream_ ? out_ : err_).queue() += "tandem: " + line + "\n"; }

  // Sleeps until a stream has something or takes something, a signal comes, or it is time to act.
  void wait() {
    std::vector<pollfd> waiting = {{signals_.descriptor(), POLLIN, 0}};
    for (const Output* output : {&out_, &err_}) {
      // poll() skips what is negative.
      waiting.push_back({output->empty() ? -1 : output->descriptor(), POLLOUT, 0});
    }
    std::vector<Stream*> streams;
    for (const auto& task : tasks_) {
      for (auto& stream : task->streams) {
        // Whose reader is slow shall write no faster.
        if (!*stream.from || stream.to->full()) continue;
        waiting.push_back({stream.from->get(), POLLIN, 0});
        streams.push_back(&stream);
      }
    }
    const timespec timeout = time_left();
    if (ppoll(waiting.data(), waiting.size(), &timeout, nullptr) <= 0) return;
    if (waiting[1].revents != 0) write(out_);
    if (waiting[2].revents != 0) write(err_);
    for (std::size_t i = 0; i < streams.size(); ++i) {
      if (waiting[i + 3].revents != 0) read_once(*streams[i]);
    }
  }

  timespec time_left() const {
    auto next = deadline_.value_or(from_now(Seconds(3600)));
    for (const auto& task : tasks_) {
      if (task->ending && !task->gone) next = std::min(next, task->linger_until);
    }
    const auto left = std::max(next - Clock::now(), Clock::duration::zero());
    const auto whole = std::chrono::duration_cast<std::chrono::seconds>(left);
    return {.tv_sec = whole.count(),
            .tv_nsec = std::chrono::duration_cast<std::chrono::nanoseconds>(left - whole).count()};
  }

  void write(Output& output) {
    if (output.write_some() || output_lost_) return;
    // No one reads any more (`| head`): what a program that prints would be ended by.
    output_lost_ = true;
    set_exit_code(128 + SIGPIPE);
    terminate();
  }

  // False at the end of what there is for now.
  static bool read_once(Stream& stream) {
    std::array<char, kBlock> block;
    const ssize_t n = read(stream.from->get(), block.data(), block.size());
    if (n < 0 && errno == EAGAIN) return false;
    if (n <= 0) {
      stream.prefixer.finish(stream.to->queue());
      stream.from->reset();
      return false;
    }
    stream.prefixer.append({block.data(), static_cast<std::size_t>(n)}, stream.to->queue());
    return true;
  }

  void read_signals() {
    while (const auto received = signals_.next()) {
      switch (received->signal) {
        case SIGCHLD:
          // The kernel tells of the first one only; the others ended later.
          for (const auto& task : tasks_) {
            if (!task->ending && task->process.id() == received->sender) look_at(*task);
          }
          for (const auto& task : tasks_) {
            if (!task->ending) look_at(*task);
          }
          break;
        case SIGUSR1:
        case SIGUSR2:
          // A request to the program; its children may not know the signal and would die of it.
          for (const Task* task : running()) task->process.send(received->signal);
          break;
        default:
          on_stop_signal(received->signal);
      }
    }
  }

  void on_stop_signal(int signal) {
    const auto tasks = running();
    if (tasks.empty()) {
      abort_output_ = true;  // nothing but unread output keeps us here
    } else if (signal == SIGINT && interrupted_) {
      say(fmt::format("interrupted twice: killing {}", names(tasks)));
      set_exit_code(128 + SIGINT);
      kill_all();
    } else {
      interrupted_ = interrupted_ || signal == SIGINT;
      signalled_ = true;
      for (const Task* task : tasks) task->process.send_to_group(signal);
    }
  }

  // Whether the task has ended, and what follows from it.
  void look_at(Task& task) {
    task.ending = task.process.ended();
    if (!task.ending) return;
    task.linger_until = from_now(kLinger);
    // Who was told to end has not failed by doing so.
    const bool told = stage_ == Stage::kTerminating || stage_ == Stage::kKilling;
    const bool spared = task.expendable && !signalled_ && !failed_ &&
                        (task.ending->signal != 0 || task.ending->exit_code == kExitPeerLost);
    if (spared && !told) {
      say(fmt::format("{} {}: the others go on without it", task.name, task.ending->to_string()));
    } else if (task.ending->exit_code != 0 && !told) {
      say(fmt::format("{} {}{}", task.name, task.ending->to_string(), failed_ ? "" : " (first failure)"));
      failed_ = true;
      set_exit_code(task.ending->exit_code);
    }
    const auto rest = running();
    if (stage_ != Stage::kRunning || rest.empty()) return;
    const bool only_helpers = std::all_of(rest.begin(), rest.end(), [](const Task* t) { return t->helper; });
    if (failed_ || only_helpers) {
      stage_ = Stage::kGrace;
      deadline_ = from_now(options_.grace);
    }
  }

  // The first reason to fail stands.
  void set_exit_code(int code) {
    if (exit_code_ == 0) exit_code_ = code;
  }

  void act_on_time() {
    const auto now = Clock::now();
    for (const auto& task : tasks_) {
      if (task->ending && !task->gone) finish(*task, now >= task->linger_until);
    }
    if (!deadline_ || now < *deadline_) return;
    deadline_.reset();
    const auto rest = running();
    if (rest.empty()) return;
    switch (stage_) {
      case Stage::kRunning:
        break;
      case Stage::kGrace:
        if (failed_) {
          say(fmt::format("{} did not end within {} s: sending SIGTERM", names(rest),
                          options_.grace.count()));
        } else {
          say(fmt::format("every worker is done: stopping {} with SIGTERM, which is not a failure",
                          names(rest)));
        }
        terminate();
        break;
      case Stage::kTerminating:
        say(fmt::format("{} did not end within {} s of SIGTERM: killing", names(rest),
                        options_.grace_after_term.count()));
        kill_all();
        break;
      case Stage::kKilling:
        for (Task* task : rest) {
          say(fmt::format("{} (process {}) cannot be killed: it hangs in the kernel", task->name,
                          task->process.id()));
          task->process.abandon();
          task->ending = Ending{};
          task->gone = true;
        }
        set_exit_code(1);
        break;
    }
  }

  // The task has ended: once its streams have too, or no longer matter, nothing of it remains.
  void finish(Task& task, bool late) {
    const auto open = [](const Stream& stream) { return static_cast<bool>(*stream.from); };
    if (!late && std::any_of(task.streams.begin(), task.streams.end(), open)) return;
    task.process.dismiss();
    for (auto& stream : task.streams) {
      // What a pipe can hold, and not more: a process that left the group may go on writing for ever.
      for (int i = 0; i < kPipeful && *stream.from && read_once(stream); ++i) {
      }
      if (!*stream.from) continue;
      stream.prefixer.finish(stream.to->queue());
      stream.from->reset();
    }
    task.gone = true;
  }

  void terminate() {
    for (const Task* task : running()) task->process.send_to_group(SIGTERM);
    stage_ = Stage::kTerminating;
    deadline_ = from_now(options_.grace_after_term);
  }

  void kill_all() {
    for (const Task* task : running()) task->process.send_to_group(SIGKILL);
    stage_ = Stage::kKilling;
    deadline_ = from_now(kAfterKill);
  }

  SuperviseOptions options_;
  bool one_stream_;
  Output out_{STDOUT_FILENO};
  Output err_{STDERR_FILENO};
  ProcessGuard guard_;
  SignalInbox signals_;
  std::vector<std::unique_ptr<Task>> tasks_;

  Stage stage_ = Stage::kRunning;
  std::optional<Clock::time_point> deadline_;  // of the stage
  bool failed_ = false;
  bool interrupted_ = false;
  bool signalled_ = false;  // whoever ends now may have been asked to
  bool output_lost_ = false;
  bool abort_output_ = false;
  int exit_code_ = 0;
};

}  // namespace

int supervise(const std::vector<SupervisedTask>& tasks, const SuperviseOptions& options) {
  open_standard_streams();
  return Supervisor(tasks, options).run();
}

}  // namespace tandem::internal
