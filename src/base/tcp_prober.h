#pragma once

#include <chrono>
#include <functional>
#include <map>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "base/file_descriptor.h"
#include "base/net.h"

namespace tandem::internal {

// Finds out whether anything listens at an address, by plain connections that are closed at once. A thread of
// its own has any number of them under way.
class TcpProber {
 public:
  enum class Outcome { kRefused, kAnswered, kSilent };
  // Called on the prober's thread.
  using Report = std::function<void(int id, Outcome outcome)>;

  explicit TcpProber(Report report);
  ~TcpProber();

  // Returns at once. A probe of the same id that is still under way is not started again.
  void probe(int id, const std::string& host, int port, std::chrono::milliseconds patience);

 private:
  using Clock = std::chrono::steady_clock;
  struct Request {
    int id;
    std::string host;
    int port;
    Clock::time_point deadline;
  };
  struct Attempt {
    FileDescriptor connection;
    Clock::time_point deadline;
  };

  void work();
  void begin(const Request& request);
  void wait();

  const Report report_;
  FileDescriptor wake_;
  std::mutex mutex_;
  std::vector<Request> requests_;
  bool stopping_ = false;
  // Of the prober's thread alone.
  std::map<int, Attempt> attempts_;
  std::map<std::string, std::vector<SocketAddress>> resolved_;
  std::thread thread_;
};

}  // namespace tandem::internal
