#pragma once

#include <sys/uio.h>

#include <cstddef>
#include <memory>
#include <stdexcept>
#include <string>

#include "base/file_descriptor.h"

struct ssl_ctx_st;
struct ssl_st;

namespace tandem::internal::tcp {

// The other side has closed the connection, or it broke. The message says how, without naming who.
class ChannelClosed : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

// Encryption that both sides know the key of beforehand: TLS 1.3 with the group's key and fresh
// Diffie-Hellman keys for each connection.
class Encryption {
 public:
  // `key`: 32 bytes.
  explicit Encryption(const std::string& key);

  ssl_ctx_st* get() const { return context_.get(); }

 private:
  std::shared_ptr<ssl_ctx_st> context_;
};

// Bytes over a connected socket, plain or encrypted; never blocks. Writes raise no SIGPIPE.
class Channel {
 public:
  Channel() = default;
  // Sets the socket up for low latency. `encryption` null: plain; else the handshake is done by advance().
  Channel(FileDescriptor socket, const Encryption* encryption, bool is_server);

  int descriptor() const { return socket_.get(); }
  explicit operator bool() const { return static_cast<bool>(socket_); }

  // The handshake of the encryption. True once it is done (at once if there is none); false: call it again
  // when the socket is ready for what wants_write() tells. Throws ChannelClosed.
  bool advance();

  // Bytes moved; 0 if none can be now. Throw ChannelClosed.
  std::size_t read(void* data, std::size_t bytes);
  std::size_t write(const iovec* parts, int count);

  // Whether the last call that moved nothing waits for the socket to become writable (not readable).
  bool wants_write() const { return wants_write_; }
  // Whether decrypted bytes wait here that poll() does not know of.
  bool has_unread() const;

  // The other side will read the end after what was written.
  void finish();

 private:
  std::size_t after_ssl(int result, const char* what);

  FileDescriptor socket_;
  std::shared_ptr<ssl_st> ssl_;
  bool wants_write_ = false;
};

}  // namespace tandem::internal::tcp
