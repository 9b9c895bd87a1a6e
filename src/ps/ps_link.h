#pragma once

#include <atomic>
#include <condition_variable>
#include <deque>
#include <exception>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "base/bell.h"
#include "ps/lost_pushes.h"
#include "ps/ps_client.h"
#include "ps/ps_line.h"
#include "ps/shard_image.h"
#include "ps/wire.h"

namespace tandem::internal::ps {

// What a handle waits for: one part for each message that it takes.
struct PsHandle::Operation {
  std::mutex mutex = {};
  std::condition_variable changed = {};
  std::map<std::string, int> missing = {};  // answers, by ps
  std::exception_ptr error = {};
  PsOutcome outcome = {};
  int initialised_before = 0;  // of Initialise: the ps tasks that kept what they had

  void expect(const std::string& who) { ++missing[who]; }
  void answered(const std::string& who, const std::exception_ptr& failure = {});
  void was_initialised();
};

// The connection of a worker to one ps, and the thread that keeps it.
class PsLink {
 public:
  using Operation = PsHandle::Operation;

  // One message to the ps.
  struct Request {
    MessageKind kind = MessageKind::kPush;  // or kPull, kInitialise, kAssign, kRead, kFinished
    std::shared_ptr<Operation> operation = {};

    Push push = {};                           // without entries' checksums, which the link's thread adds
    std::vector<PayloadSpans> payloads = {};  // by entry
    std::vector<std::vector<std::byte>> narrowed = {};  // those of them that travel in 16 bits

    Pull pull = {};
    std::vector<PullTarget> targets = {};  // by entry

    std::string texts = {};  // of kInitialise
    Initialise initialise = {};

    Assign assign = {};
    Read read = {};
    std::shared_ptr<ShardImage> image = {};  // where it is read to

    std::string header = {};  // once it is prepared
  };

  PsLink(int ps, const PlacementPlan& plan, const PsClientOptions& options);
  ~PsLink();

  // "ps 1".
  const std::string& name() const { return name_; }

  void ask(std::unique_ptr<Request> request);

  // What is under way fails, and nobody's memory is used any more when this returns.
  void close();

  // Until it has said hello. Throws what made it give up.
  void wait_until_ready();
  bool is_connected() const { return connected_; }
  // Whether it has given up, because the ps is gone or has forgotten everything.
  bool is_lost() const { return lost_for_good_; }
  std::uint64_t first_step() const { return first_step_; }
  std::uint64_t global_step() const { return global_step_; }
  std::uint64_t lost(std::size_t shard) const;
  std::uint64_t lost_at_worst() const;

 private:
  using Clock = std::chrono::steady_clock;

  void run();
  void connect();
  std::vector<std::byte> read_message(Prologue& prologue);
  bool greet();
  void initialise(const Request& request);
  void take_reply_of_hello(const HelloReply& reply);
  void exchange();
  void take_requests();
  void prepare(Request& request);
  std::vector<std::byte> narrow_memory(std::size_t bytes);
  bool write_some();
  bool read_some();
  void take_reply();
  void take_answer(const Answer& answer);
  [[noreturn]] void ask_again(const std::string& why);
  void take_push_replies(const PushReplies& replies);
  void take_pull_reply(const PullReply& reply);
  void take_read_reply(ReadReply reply);
  void begin_payload();
  bool read_payload();
  void answer_front();
  void fail(const std::exception_ptr& error);
  void check_patience(const std::string& why);

  const int ps_;
  const PlacementPlan& plan_;
  const PsClientOptions& options_;
  const std::string digest_;
  const std::string name_;
  Bell bell_;
  std::atomic<bool> stopping_{false};
  std::atomic<bool> connected_{false};
  std::atomic<bool> lost_for_good_{false};
  std::atomic<std::uint64_t> first_step_{0};
  std::atomic<std::uint64_t> global_step_{0};

  mutable std::mutex mutex_;  // of what is below
  std::condition_variable changed_;
  std::deque<std::unique_ptr<Request>> queue_;
  bool ready_ = false;  // it has been, once
  std::exception_ptr error_;
  std::map<std::size_t, LostPushes> lost_;  // by shard

  // The thread's own.
  std::string place_;  // "ps 1 (10.0.0.2:4000)": where it was tried last
  PsLine line_;
  std::unique_ptr<Request> first_values_;
  std::deque<std::unique_ptr<Request>> unanswered_;
  std::size_t to_send_ = 0;  // the first of them that is not sent whole
  std::uint64_t next_seq_ = 1;
  std::uint64_t next_step_ = 0;
  std::vector<iovec> out_;
  std::size_t out_at_ = 0;
  Clock::time_point down_since_ = {};
  Clock::time_point say_at_ = {};
  std::chrono::milliseconds back_off_{10};
  int damaged_ = 0;
  bool was_ready_ = false;
  bool gave_values_ = false;  // so that nobody else will give it some
  bool finished_ = false;

  std::array<std::byte, kPrologueBytes> prologue_bytes_ = {};
  Prologue prologue_ = {};
  std::vector<std::byte> header_;
  std::size_t filled_ = 0;
  enum class Reading { kPrologue, kHeader, kPayload } reading_ = Reading::kPrologue;
  // What comes as the payload of a reply.
  struct Part {
    std::size_t shard = 0;
    std::span<std::byte> to = {};
    std::size_t wire_bytes = 0;  // fewer than `to` has: it comes in 16 bits
    std::uint32_t crc = 0;
  };
  std::vector<Part> parts_;
  std::size_t part_ = 0;
  std::uint32_t crc_ = 0;
  std::vector<std::byte> halves_;
  std::multimap<std::size_t, std::vector<std::byte>> spare_narrowed_;  // by size
  std::thread thread_;
};

}  // namespace tandem::internal::ps
