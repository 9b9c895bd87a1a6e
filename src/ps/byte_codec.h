#pragma once

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

namespace tandem::internal::ps {

static_assert(std::endian::native == std::endian::little, "numbers travel as they lie in memory");

template <typename T>
concept Number = std::is_arithmetic_v<T> || std::is_enum_v<T>;

// What a ByteReader throws, for its caller to say of what.
struct BytesFault {
  const char* reason;
};

// A writer and a reader with the same calls, so that one function lists the fields of a message for both:
//
//   static void fields(auto& codec, auto& entry) { codec(entry.shard); codec(entry.version); }
class ByteWriter {
 public:
  template <Number T>
  void operator()(const T& value) {
    bytes_.append(reinterpret_cast<const char*>(&value), sizeof value);
  }
  void zeros(std::size_t count) { bytes_.append(count, '\0'); }
  // Text of a length that the reader knows.
  void fixed(const std::string& text, std::size_t) { bytes_ += text; }
  // Length, then text.
  void text(const std::string& text, std::size_t longest) {
    const auto length = static_cast<std::uint16_t>(std::min({text.size(), longest, std::size_t{0xffff}}));
    (*this)(length);
    bytes_.append(text, 0, length);
  }
  void count(std::size_t entries) { (*this)(static_cast<std::uint32_t>(entries)); }
  // How many, then each.
  template <Number T>
  void numbers(const std::vector<T>& values, std::size_t) {
    count(values.size());
    for (const T& value : values) (*this)(value);
  }
  // Number, then the fields of each, which take Entry::kBytes at least.
  template <typename Entry>
  void list(const std::vector<Entry>& entries, std::size_t) {
    count(entries.size());
    for (const Entry& entry : entries) Entry::fields(*this, entry);
  }

  std::string take() { return std::move(bytes_); }

 private:
  std::string bytes_;
};

// Never reads beyond the end, and allocates no more than a small multiple of what is there.
class ByteReader {
 public:
  explicit ByteReader(std::span<const std::byte> bytes) : rest_(bytes) {}

  template <Number T>
  void operator()(T& value) {
    std::memcpy(&value, take(sizeof value).data(), sizeof value);
  }
  void zeros(std::size_t count) {
    for (const std::byte byte : take(count)) {
      if (byte != std::byte{0}) throw BytesFault{"bytes that mean nothing are not zero"};
    }
  }
  void fixed(std::string& text, std::size_t length) { text = as_text(take(length)); }
  void text(std::string& text, std::size_t longest) {
    std::uint16_t length = 0;
    (*this)(length);
    if (length > longest) throw BytesFault{"a text is too long"};
    text = as_text(take(length));
  }
  // A number of entries that are there, at `entry_bytes` each at least.
  std::size_t count(std::size_t entry_bytes, std::size_t most) {
    std::uint32_t count = 0;
    (*this)(count);
    if (count > most) throw BytesFault{"a list has too many entries"};
    if (count > rest_.size() / entry_bytes) throw BytesFault{"it ends too early"};
    return count;
  }
  template <Number T>
  void numbers(std::vector<T>& values, std::size_t most) {
    values.resize(count(sizeof(T), most));
    for (T& value : values) (*this)(value);
  }
  template <typename Entry>
  void list(std::vector<Entry>& entries, std::size_t most) {
    entries.resize(count(Entry::kBytes, most));
    for (Entry& entry : entries) Entry::fields(*this, entry);
  }

  // What has not been read.
  std::span<const std::byte> rest() const { return rest_; }
  void end() const {
    if (!rest_.empty()) throw BytesFault{"there are bytes behind its end"};
  }

 private:
  std::span<const std::byte> take(std::size_t count) {
    if (count > rest_.size()) throw BytesFault{"it ends too early"};
    const auto bytes = rest_.first(count);
    rest_ = rest_.subspan(count);
    return bytes;
  }
  static std::string as_text(std::span<const std::byte> bytes) {
    return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
  }

  std::span<const std::byte> rest_;
};

}  // namespace tandem::internal::ps
