#include "base/example.h"

#include <fmt/format.h>

#include <array>
#include <bit>
#include <cstring>

#include "base/utf8.h"
#include "tandem/error.h"

namespace tandem::internal {
namespace {

static_assert(std::endian::native == std::endian::little, "floats are copied as they lie");

// The messages:
//   Example   { Features features = 1; }
//   Features  { map<string, Feature> feature = 1; }       an entry is { string key = 1; Feature value = 2; }
//   Feature   { oneof { BytesList bytes_list = 1; FloatList float_list = 2; Int64List int64_list = 3; } }
//   BytesList { repeated bytes value = 1; }   FloatList { repeated float ... }   Int64List { repeated int64
//   ... }
// A field is a varint, number << 3 | kind, and then by its kind a varint, 8 bytes, a length and bytes, or
// 4 bytes. Numbers of a list come packed, as bytes, or each as a field of its own.
enum Kind : std::uint32_t { kVarint = 0, kEight = 1, kBytes = 2, kFour = 5 };

class Reader {
 public:
  Reader(const RecordPlace& place, std::size_t values_left) : place_(place), values_left_(values_left) {}

  Example example(std::string_view bytes) {
    Example result;
    for_each_field(bytes, [&](std::uint32_t number, Kind kind, std::string_view value) {
      if (number == 1) features(message(kind, value, "features"), result);
    });
    return result;
  }

 private:
  void features(std::string_view bytes, Example& result) {
    for_each_field(bytes, [&](std::uint32_t number, Kind kind, std::string_view value) {
      if (number == 1) entry(message(kind, value, "a feature"), result);
    });
  }

  void entry(std::string_view bytes, Example& result) {
    std::string_view name;
    Feature feature;
    for_each_field(bytes, [&](std::uint32_t number, Kind kind, std::string_view value) {
      if (number == 1) name = message(kind, value, "the name of a feature");
      if (number == 2) add_to(feature, message(kind, value, "a feature"));
    });
    if (!is_utf8(name)) lose("the name of a feature is not UTF-8");
    count(1);
    result.features.insert_or_assign(std::string(name), std::move(feature));
  }

  void add_to(Feature& feature, std::string_view bytes) {
    for_each_field(bytes, [&](std::uint32_t number, Kind kind, std::string_view value) {
      switch (number) {
        case 1:
          return add_strings(list<std::string>(feature), message(kind, value, "a list"));
        case 2:
          return add_floats(list<float>(feature), message(kind, value, "a list"));
        case 3:
          return add_integers(list<std::int64_t>(feature), message(kind, value, "a list"));
        default:
          return;
      }
    });
  }

  // The list of that kind, a new one if the feature had another: of several the last counts, of one kind they
  // are one list.
  template <typename Value>
  static std::vector<Value>& list(Feature& feature) {
    auto* values = std::get_if<std::vector<Value>>(&feature);
    return values ? *values : feature.emplace<std::vector<Value>>();
  }

  void add_strings(std::vector<std::string>& values, std::string_view bytes) {
    for_each_field(bytes, [&](std::uint32_t number, Kind kind, std::string_view value) {
      if (number != 1) return;
      count(1);
      values.emplace_back(message(kind, value, "a value"));
    });
  }

  void add_floats(std::vector<float>& values, std::string_view bytes) {
    for_each_field(bytes, [&](std::uint32_t number, Kind kind, std::string_view value) {
      if (number != 1) return;
      if (kind != kBytes && kind != kFour) lose("a value of a float list is no float");
      if (value.size() % sizeof(float) != 0) lose("a float list ends in the middle of one");
      const std::size_t more = value.size() / sizeof(float);
      count(more);
      const std::size_t had = values.size();
      values.resize(had + more);
      if (more > 0) std::memcpy(values.data() + had, value.data(), value.size());
    });
  }

  void add_integers(std::vector<std::int64_t>& values, std::string_view bytes) {
    for_each_field(bytes, [&](std::uint32_t number, Kind kind, std::string_view value) {
      if (number != 1) return;
      if (kind != kBytes && kind != kVarint) lose("a value of an int64 list is no integer");
      while (!value.empty()) {
        count(1);
        values.push_back(static_cast<std::int64_t>(varint(value)));
      }
    });
  }

  // Calls fn(number, kind, value) for each field; the value of a number is its bytes.
  template <typename Fn>
  void for_each_field(std::string_view bytes, Fn fn) {
    while (!bytes.empty()) {
      const std::uint64_t tag = varint(bytes);
      const std::uint64_t number = tag >> 3;
      if (number == 0 || tag > 0xffffffff) lose("a field has a number that there is not");
      const auto kind = static_cast<Kind>(tag & 7);
      std::uint64_t size = 0;
      switch (kind) {
        case kVarint: {
          std::string_view rest = bytes;
          varint(rest);
          size = bytes.size() - rest.size();
          break;
        }
        case kEight:
          size = 8;
          break;
        case kBytes:
          size = varint(bytes);
          break;
        case kFour:
          size = 4;
          break;
        default:
          lose("a field is of a kind that there is not");
      }
      if (size > bytes.size()) lose("a field ends after the record");
      fn(static_cast<std::uint32_t>(number), kind, bytes.substr(0, size));
      bytes.remove_prefix(size);
    }
  }

  std::uint64_t varint(std::string_view& bytes) {
    std::uint64_t value = 0;
    for (std::size_t i = 0; i < bytes.size() && i < 10; ++i) {
      const auto byte = static_cast<std::uint8_t>(bytes[i]);
      value |= static_cast<std::uint64_t>(byte & 0x7f) << (7 * i);
      if (byte < 0x80) {
        bytes.remove_prefix(i + 1);
        return value;
      }
    }
    lose("a number does not end");
  }

  std::string_view message(Kind kind, std::string_view value, const char* what) const {
    if (kind != kBytes) lose(fmt::format("{} is a number", what));
    return value;
  }

  void count(std::size_t values) {
    if (values > values_left_) lose("it has more values than are read");
    values_left_ -= values;
  }

  [[noreturn]] void lose(std::string_view what) const {
    throw DataLoss(
        fmt::format("record {} of \"{}\" is no tf.train.Example: {}", place_.index, place_.file, what));
  }

  const RecordPlace& place_;
  std::size_t values_left_;
};

void put_varint(std::string& out, std::uint64_t value) {
  for (; value >= 0x80; value >>= 7) out += static_cast<char>(value | 0x80);
  out += static_cast<char>(value);
}

void put_bytes(std::string& out, std::uint32_t number, std::string_view bytes) {
  put_varint(out, number << 3 | kBytes);
  put_varint(out, bytes.size());
  out += bytes;
}

std::string encode(const std::vector<std::string>& values) {
  std::string out;
  for (const auto& value : values) put_bytes(out, 1, value);
  return out;
}

std::string encode(const std::vector<float>& values) {
  std::string out;
  if (!values.empty()) {
    put_bytes(out, 1, {reinterpret_cast<const char*>(values.data()), values.size() * sizeof(float)});
  }
  return out;
}

std::string encode(const std::vector<std::int64_t>& values) {
  std::string packed;
  for (const std::int64_t value : values) put_varint(packed, static_cast<std::uint64_t>(value));
  std::string out;
  if (!packed.empty()) put_bytes(out, 1, packed);
  return out;
}

std::string encode(const Feature& feature) {
  std::string out;
  if (const auto* strings = std::get_if<std::vector<std::string>>(&feature))
    put_bytes(out, 1, encode(*strings));
  if (const auto* floats = std::get_if<std::vector<float>>(&feature)) put_bytes(out, 2, encode(*floats));
  if (const auto* integers = std::get_if<std::vector<std::int64_t>>(&feature)) {
    put_bytes(out, 3, encode(*integers));
  }
  return out;
}

template <typename Value>
constexpr const char* kName = nullptr;
template <>
constexpr const char* kName<std::string> = "a bytes list";
template <>
constexpr const char* kName<float> = "a float list";
template <>
constexpr const char* kName<std::int64_t> = "an int64 list";

const char* name_of(const Feature& feature) {
  constexpr std::array kNames{"empty", kName<std::string>, kName<float>, kName<std::int64_t>};
  return kNames[feature.index()];
}

template <typename Value>
const std::vector<Value>& values_of(const Example& example, std::string_view name, const RecordPlace& place) {
  const auto found = example.features.find(name);
  if (found == example.features.end()) {
    std::string names;
    for (const auto& [other, feature] : example.features) names += (names.empty() ? "" : ", ") + other;
    constexpr std::size_t kMost = 200;
    if (names.size() > kMost) names = to_utf8(names.substr(0, kMost)) + " ...";
    throw InvalidArgument(fmt::format("record {} of \"{}\" has no feature \"{}\"; it has: {}", place.index,
                                      place.file, name, names.empty() ? "none" : names));
  }
  const auto* values = std::get_if<std::vector<Value>>(&found->second);
  if (!values) {
    throw InvalidArgument(fmt::format("feature \"{}\" of record {} of \"{}\" is {}: expected {}", name,
                                      place.index, place.file, name_of(found->second), kName<Value>));
  }
  return *values;
}

}  // namespace

Example parse_example(std::string_view bytes, const RecordPlace& place, const ExampleLimits& limits) {
  return Reader(place, limits.max_values).example(bytes);
}

std::string encode_example(const Example& example) {
  std::string features;
  for (const auto& [name, feature] : example.features) {
    std::string entry;
    put_bytes(entry, 1, name);
    put_bytes(entry, 2, encode(feature));
    put_bytes(features, 1, entry);
  }
  std::string out;
  put_bytes(out, 1, features);
  return out;
}

const std::vector<std::string>& bytes_list(const Example& example, std::string_view name,
                                           const RecordPlace& place) {
  return values_of<std::string>(example, name, place);
}

const std::vector<float>& float_list(const Example& example, std::string_view name,
                                     const RecordPlace& place) {
  return values_of<float>(example, name, place);
}

const std::vector<std::int64_t>& int64_list(const Example& example, std::string_view name,
                                            const RecordPlace& place) {
  return values_of<std::int64_t>(example, name, place);
}

}  // namespace tandem::internal
