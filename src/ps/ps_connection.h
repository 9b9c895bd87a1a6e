#pragma once

#include <chrono>
#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "comm/tcp/handshake.h"
#include "ps/ps_state.h"
#include "ps/shard_intake.h"

namespace tandem::internal::ps {

// One worker's connection, as the ps sees it: reads a message, does what it says, answers, and begins anew.
// Nothing here waits: advance() goes as far as it can. One thread.
class PsConnection {
 public:
  using Clock = std::chrono::steady_clock;

  PsConnection(PsState& state, std::uint64_t serial, FileDescriptor socket,
               const tcp::Encryption* encryption);
  ~PsConnection();
  PsConnection(const PsConnection&) = delete;

  // False when it is over.
  bool advance(Clock::time_point now);

  int descriptor() const;
  // For poll(). While it waits for something here, only the peer's going is of interest.
  short events() const;
  bool is_parked() const { return parked_; }
  // Bytes wait that poll() does not know of, or it stopped only to let others have their turn.
  bool is_eager() const { return eager_; }
  bool is_stranger() const { return handshake_ != nullptr; }
  std::uint64_t serial() const { return serial_; }
  // When to give it up if nothing comes; max: never.
  Clock::time_point deadline() const;

 private:
  // At once from a socket: small enough to be in the cache still when it is summed.
  static constexpr std::size_t kReadBlock = std::size_t{256} << 10;

  enum class Stage {
    kHandshake,
    kPrologue,
    kHeader,
    kTexts,          // of Initialise
    kTensors,        // of Initialise and Assign
    kFirstSnapshot,  // then
    kAssigned,       // the same: until it is in a snapshot
    kRead,
    kPushEntry,  // the next entry of a push: what is to become of it?
    kPushPayload,
    kPushReply,
    kPullBegin,
    kPullRows,
    kSkip,   // bytes that nobody wants, then after_skip_
    kWrite,  // the reply, then the next message
  };

  // Of a pull: what is sent for one entry, or where it will be copied to.
  struct PullPart {
    bool known = false;
    std::shared_ptr<const ShardCopy> copy = {};
    Staging::Buffer buffer = {};
  };

  // Each does what it can; false: no further for now.
  bool run();
  bool read_prologue();
  bool read_header();
  bool read_texts();
  bool read_tensors();
  bool await_ready();
  bool await_saved();
  bool answer_read();
  bool begin_entry();
  bool read_payload();
  bool finish_push();
  bool begin_pull();
  bool read_rows();
  bool skip();
  bool write();

  // True once `bytes` are all there. `filled` counts them; `crc`, if given, goes along.
  bool fill(std::span<std::byte> bytes, std::size_t& filled, std::uint32_t* crc = nullptr);
  bool park();
  void skip_then(std::uint64_t bytes, Stage then);
  void reply(std::string header);
  void answer(const Answer& message);
  void refuse_entry(Status status, const std::string& message);

  void on_hello(const Hello& hello);
  void on_finished(const Finished& finished);
  void on_initialise();
  void on_assign(Assign assign);
  void on_read(const Read& read);
  std::optional<Answer> refusal_of_model();
  void begin_tensors(std::vector<ShardTensor> tensors, std::optional<std::uint64_t> updates);
  void refuse_tensors(const Answer& message);
  void is_initialised();
  void is_assigned();
  void payload_is_here();
  void count_staleness();
  ShardTable::Fault fault_of_pulled_rows(const Pull::Entry& entry, std::span<const std::byte> rows) const;
  bool is_admitted(std::uint32_t worker, const Incarnation& incarnation) const;
  std::string who() const;

  PsState& state_;
  const std::uint64_t serial_;
  std::unique_ptr<tcp::Handshake> handshake_;
  tcp::Channel channel_;
  Stage stage_ = Stage::kHandshake;
  Clock::time_point now_ = {};
  Clock::time_point last_progress_ = {};
  bool parked_ = false;
  bool eager_ = false;
  bool close_after_write_ = false;
  Clock::time_point linger_until_ = {};  // then
  std::size_t turn_bytes_ = 0;           // moved in this call of advance()

  std::uint32_t member_ = 0;  // who dialled
  std::optional<int> worker_;
  Incarnation incarnation_ = {};
  std::uint64_t pulled_at_ = 0;  // updates of the first shard when it was last pulled

  Prologue prologue_ = {};
  std::array<std::byte, kPrologueBytes> prologue_bytes_ = {};
  std::vector<std::byte> header_;
  std::size_t filled_ = 0;  // of whatever is being read
  std::uint32_t crc_ = 0;
  std::uint64_t skip_ = 0;
  Stage after_skip_ = Stage::kPrologue;

  Initialise initialise_ = {};
  std::string texts_;
  bool is_assign_ = false;  // that the tensors are of
  ShardIntake intake_;
  std::optional<std::uint64_t> updates_;  // to count on from
  std::uint64_t assignment_ = 0;          // which of all
  Read read_ = {};
  Push push_ = {};
  std::size_t entry_ = 0;
  std::vector<std::optional<PushReplies::Entry>> refused_;  // by entry: what was answered without the table
  std::vector<bool> fresh_;  // by entry: it was settled by what came over this connection
  std::string message_;
  Staging::Buffer staged_;
  Pull pull_ = {};
  Staging::Buffer rows_;
  std::vector<PullPart> parts_;
  std::vector<ShardTable::Fault> faults_;

  std::string out_header_;
  std::deque<std::shared_ptr<const ShardCopy>> out_copies_;  // behind the header
  std::size_t written_ = 0;                                  // of the first part that is not written
};

}  // namespace tandem::internal::ps
