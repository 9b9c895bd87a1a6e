#pragma once

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <map>
#include <mutex>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "base/file_descriptor.h"

namespace tandem::testing_support {

// Serves files from memory on 127.0.0.1, one request at a time, and goes on in the middle where it is asked
// to ("Range: bytes=N-"). Anything else is answered with 404.
class HttpServer {
 public:
  explicit HttpServer(std::map<std::string, std::string> files)
      : files_(std::move(files)), listening_(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t size = sizeof address;
    if (bind(listening_.get(), reinterpret_cast<sockaddr*>(&address), size) != 0 ||
        listen(listening_.get(), 16) != 0 ||
        getsockname(listening_.get(), reinterpret_cast<sockaddr*>(&address), &size) != 0) {
      throw std::runtime_error("no port on 127.0.0.1");
    }
    port_ = ntohs(address.sin_port);
    thread_ = std::thread([this] { serve(); });
  }
  ~HttpServer() {
    shutdown(listening_.get(), SHUT_RDWR);
    thread_.join();
  }
  HttpServer(const HttpServer&) = delete;
  HttpServer& operator=(const HttpServer&) = delete;

  std::string url() const { return "http://127.0.0.1:" + std::to_string(port_); }

  // The next answer with a file breaks off after so many bytes of it.
  void break_off_after(std::size_t bytes) { break_off_after_ = bytes; }

  // From here on every answer is a whole file, whatever part was asked for.
  void ignore_ranges() { ignore_ranges_ = true; }

  // What was asked for: "name" or, in the middle of it, "name@N".
  std::vector<std::string> requests() const {
    const std::lock_guard lock(mutex_);
    return requests_;
  }

 private:
  static constexpr std::size_t kNever = static_cast<std::size_t>(-1);

  void serve() {
    for (;;) {
      const internal::FileDescriptor peer(accept4(listening_.get(), nullptr, nullptr, SOCK_CLOEXEC));
      if (!peer) return;
      answer(peer.get());
    }
  }

  void answer(int peer) {
    std::string request;
    char block[4096];
    while (request.find("\r\n\r\n") == std::string::npos) {
      const ssize_t got = recv(peer, block, sizeof block, 0);
      if (got <= 0) return;
      request.append(block, static_cast<std::size_t>(got));
    }
    const std::size_t begin = request.find('/') + 1;
    const std::string name = request.substr(begin, request.find(' ', begin) - begin);
    std::size_t from = 0;
    if (const auto range = request.find("Range: bytes="); range != std::string::npos) {
      from = std::stoul(request.substr(range + 13));
    }
    {
      const std::lock_guard lock(mutex_);
      requests_.push_back(from == 0 ? name : name + "@" + std::to_string(from));
    }
    const auto found = files_.find(name);
    if (found == files_.end()) return reply(peer, "404 Not Found", "", "");
    const std::string& whole = found->second;
    if (ignore_ranges_) from = 0;
    if (from > whole.size()) return reply(peer, "416 Range Not Satisfiable", "", "");
    const std::string part = whole.substr(from);
    const std::string range = "Content-Range: bytes " + std::to_string(from) + "-" +
                              std::to_string(whole.size() - 1) + "/" + std::to_string(whole.size()) + "\r\n";
    reply(peer, from == 0 ? "200 OK" : "206 Partial Content", from == 0 ? "" : range, part);
  }

  void reply(int peer, const std::string& status, const std::string& headers, const std::string& body) {
    const std::string head = "HTTP/1.1 " + status + "\r\nConnection: close\r\n" + headers +
                             "Content-Length: " + std::to_string(body.size()) + "\r\n\r\n";
    const std::size_t limit = body.empty() ? 0 : break_off_after_.exchange(kNever);
    send_all(peer, head + body.substr(0, std::min(limit, body.size())));
  }

  static void send_all(int peer, const std::string& bytes) {
    for (std::size_t sent = 0; sent < bytes.size();) {
      const ssize_t n = send(peer, bytes.data() + sent, bytes.size() - sent, MSG_NOSIGNAL);
      if (n <= 0) return;
      sent += static_cast<std::size_t>(n);
    }
  }

  const std::map<std::string, std::string> files_;
  internal::FileDescriptor listening_;
  int port_ = 0;
  std::atomic<std::size_t> break_off_after_{kNever};
  std::atomic<bool> ignore_ranges_{false};
  mutable std::mutex mutex_;
  std::vector<std::string> requests_;
  std::thread thread_;
};

}  // namespace tandem::testing_support
