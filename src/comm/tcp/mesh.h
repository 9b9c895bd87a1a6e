#pragma once

#include <gloo/transport/context.h>

#include <atomic>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "base/file_descriptor.h"
#include "comm/engine.h"
#include "comm/tcp/channel.h"
#include "comm/tcp/frame.h"
#include "comm/tcp/link.h"
#include "tandem/error.h"

namespace tandem::internal::tcp {

// The connections of one member to all others, as Gloo's algorithms see them.
//
// There is no thread here: whoever waits for a message moves all that can be moved meanwhile, so a message
// costs no hand-over between threads. One operation at a time; abort() may come from any thread.
class Mesh final : public ::gloo::transport::Context {
 public:
  // `channels` by rank, nothing at the own one.
  Mesh(int rank, std::vector<std::string> names, std::vector<Channel> channels);
  ~Mesh() override;

  // What follows is part of this operation.
  void begin(const Operation& operation);
  const FrameHeader& header() const { return header_; }
  const std::string& name(int member) const { return names_[static_cast<std::size_t>(member)]; }
  Link& link(int member) { return static_cast<Link&>(*pairs_[static_cast<std::size_t>(member)]); }

  // Returns once `count` is above zero, having taken one from it. `link`: where the news must come from, if
  // that is known. Throws what Link throws, DeadlineExceeded, and Aborted after abort().
  void wait(int& count, Link* link);

  // From any thread: wakes the waiter.
  void interrupt();
  bool interrupted() const { return interrupted_.load(std::memory_order_acquire); }

  // After a failure: forgets what is under way, tells the others why, and closes.
  void give_up(ErrorCode code, const std::string& reason);
  // At the end: waits for up to half a second until the others have ended too.
  void say_goodbye();

  Traffic traffic() const;
  void count_sent(std::size_t bytes) { bytes_sent_.fetch_add(bytes, std::memory_order_relaxed); }
  void count_received(std::size_t bytes) { bytes_received_.fetch_add(bytes, std::memory_order_relaxed); }

  // "all_reduce "gradients" #12 of 1000 float32"
  static std::string describe(const FrameHeader& header);
  std::string describe() const { return describe(header_); }

  // Gloo's interface.
  std::unique_ptr<::gloo::transport::Pair>& createPair(int member) override;
  std::unique_ptr<::gloo::transport::UnboundBuffer> createUnboundBuffer(void* data,
                                                                        std::size_t bytes) override;

 private:
  bool has_link(int member) const { return pairs_[static_cast<std::size_t>(member)] != nullptr; }
  void poll_links(Link* awaited);
  std::string awaited_members() const;

  const std::vector<std::string> names_;
  FileDescriptor wake_;
  std::atomic<bool> interrupted_{false};
  FrameHeader header_ = {};
  std::uint64_t collectives_ = 0;
  Operation::Clock::time_point deadline_ = Operation::Clock::time_point::max();
  Operation::Clock::time_point begun_ = {};
  Operation::Clock::time_point next_notice_ = {};
  std::atomic<std::uint64_t> operations_{0};
  std::atomic<std::uint64_t> bytes_sent_{0};
  std::atomic<std::uint64_t> bytes_received_{0};
};

}  // namespace tandem::internal::tcp
