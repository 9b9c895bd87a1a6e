#include "comm/tcp/channel.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <openssl/err.h>
#include <openssl/ssl.h>
#include <sys/socket.h>

#include <cerrno>
#include <cstring>

#include "tandem/error.h"

namespace tandem::internal::tcp {
namespace {

// OpenSSL hands this to the callbacks; the key is the group's.
constexpr const char* kIdentity = "tandem";

int key_index() {
  static const int index = SSL_CTX_get_ex_new_index(
      0, nullptr, nullptr, nullptr,
      [](void*, void* data, CRYPTO_EX_DATA*, int, long, void*) { delete static_cast<std::string*>(data); });
  return index;
}

unsigned int copy_key(SSL* ssl, unsigned char* out, unsigned int room) {
  const auto* key = static_cast<std::string*>(SSL_CTX_get_ex_data(SSL_get_SSL_CTX(ssl), key_index()));
  if (!key || key->size() > room) return 0;
  std::memcpy(out, key->data(), key->size());
  return static_cast<unsigned int>(key->size());
}

unsigned int client_key(SSL* ssl, const char*, char* identity, unsigned int identity_room, unsigned char* out,
                        unsigned int room) {
  if (identity_room <= std::strlen(kIdentity)) return 0;
  std::strcpy(identity, kIdentity);
  return copy_key(ssl, out, room);
}

unsigned int server_key(SSL* ssl, const char* identity, unsigned char* out, unsigned int room) {
  return std::strcmp(identity, kIdentity) == 0 ? copy_key(ssl, out, room) : 0;
}

void set_up(int socket) {
  const int on = 1;
  setsockopt(socket, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
  fcntl(socket, F_SETFL, fcntl(socket, F_GETFL) | O_NONBLOCK);
}

bool would_block(int error) {
  return error == EAGAIN || error == EWOULDBLOCK || error == EINTR;
}

}  // namespace

Encryption::Encryption(const std::string& key)
    : context_(SSL_CTX_new(TLS_method()), [](SSL_CTX* context) { SSL_CTX_free(context); }) {
  if (!context_) throw Error(ErrorCode::kInternal, "OpenSSL makes no context for encryption");
  SSL_CTX_set_min_proto_version(context_.get(), TLS1_3_VERSION);
  SSL_CTX_set_ex_data(context_.get(), key_index(), new std::string(key));
  SSL_CTX_set_psk_client_callback(context_.get(), client_key);
  SSL_CTX_set_psk_server_callback(context_.get(), server_key);
  SSL_CTX_set_num_tickets(context_.get(), 0);
  SSL_CTX_set_mode(context_.get(), SSL_MODE_ENABLE_PARTIAL_WRITE | SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER);
}

Channel::Channel(FileDescriptor socket, const Encryption* encryption, bool is_server)
    : socket_(std::move(socket)) {
  set_up(socket_.get());
  if (!encryption) return;
  ssl_ = std::shared_ptr<SSL>(SSL_new(encryption->get()), [](SSL* ssl) { SSL_free(ssl); });
  if (!ssl_ || SSL_set_fd(ssl_.get(), socket_.get()) != 1) {
    throw Error(ErrorCode::kInternal, "OpenSSL makes no connection");
  }
  if (is_server) {
    SSL_set_accept_state(ssl_.get());
  } else {
    SSL_set_connect_state(ssl_.get());
  }
}

bool Channel::advance() {
  if (!ssl_ || SSL_is_init_finished(ssl_.get())) return true;
  ERR_clear_error();
  const int result = SSL_do_handshake(ssl_.get());
  if (result == 1) return true;
  after_ssl(result, "in the encryption's handshake");
  return false;
}

std::size_t Channel::read(void* data, std::size_t bytes) {
  if (ssl_) {
    ERR_clear_error();
    std::size_t moved = 0;
    const int result = SSL_read_ex(ssl_.get(), data, bytes, &moved);
    return result == 1 ? moved : after_ssl(result, "reading");
  }
  const ssize_t got = recv(socket_.get(), data, bytes, 0);
  if (got > 0) return static_cast<std::size_t>(got);
  if (got == 0) throw ChannelClosed("closed by the other side");
  if (would_block(errno)) return 0;
  throw ChannelClosed(std::strerror(errno));
}

std::size_t Channel::write(const iovec* parts, int count) {
  wants_write_ = false;
  if (ssl_) {
    for (int i = 0; i < count; ++i) {
      if (parts[i].iov_len == 0) continue;
      ERR_clear_error();
      std::size_t moved = 0;
      const int result = SSL_write_ex(ssl_.get(), parts[i].iov_base, parts[i].iov_len, &moved);
      return result == 1 ? moved : after_ssl(result, "writing");
    }
    return 0;
  }
  msghdr message{};
  message.msg_iov = const_cast<iovec*>(parts);
  message.msg_iovlen = static_cast<std::size_t>(count);
  const ssize_t sent = sendmsg(socket_.get(), &message, MSG_NOSIGNAL);
  if (sent >= 0) return static_cast<std::size_t>(sent);
  if (!would_block(errno)) throw ChannelClosed(std::strerror(errno));
  wants_write_ = true;
  return 0;
}

std::size_t Channel::after_ssl(int result, const char* what) {
  const int system_error = errno;
  switch (SSL_get_error(ssl_.get(), result)) {
    case SSL_ERROR_WANT_READ:
      wants_write_ = false;
      return 0;
    case SSL_ERROR_WANT_WRITE:
      wants_write_ = true;
      return 0;
    case SSL_ERROR_ZERO_RETURN:
      throw ChannelClosed("closed by the other side");
    case SSL_ERROR_SYSCALL:
      throw ChannelClosed(system_error ? std::strerror(system_error) : "closed by the other side");
    default: {
      const char* reason = ERR_reason_error_string(ERR_peek_error());
      throw ChannelClosed(fmt::format("{} {}", reason ? reason : "error", what));
    }
  }
}

bool Channel::has_unread() const {
  return ssl_ && SSL_pending(ssl_.get()) > 0;
}

void Channel::finish() {
  if (ssl_) {
    ERR_clear_error();
    SSL_shutdown(ssl_.get());
  }
  shutdown(socket_.get(), SHUT_WR);
}

}  // namespace tandem::internal::tcp
