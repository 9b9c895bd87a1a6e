#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

namespace tandem::internal {

// tf.train.Feature: nothing, or a list of one of the three kinds.
using Feature =
    std::variant<std::monostate, std::vector<std::string>, std::vector<float>, std::vector<std::int64_t>>;

// tf.train.Example: what most TFRecord files have in their records.
struct Example {
  std::map<std::string, Feature, std::less<>> features;

  friend bool operator==(const Example&, const Example&) = default;
};

// Which record a message is about.
struct RecordPlace {
  std::string_view file = {};
  std::int64_t index = 0;
};

struct ExampleLimits {
  // Features and values in all: an empty string takes two bytes of a record and 32 of memory.
  std::size_t max_values = std::size_t{1} << 26;
};

// Reads the bytes of a record as protobuf does: fields that tandem does not know are passed over, of a name
// that comes twice the later one counts. Throws DataLoss, naming the record, for what is no Example or has
// too many values.
Example parse_example(std::string_view bytes, const RecordPlace& place, const ExampleLimits& limits = {});

// The bytes that protobuf writes where it is asked for a fixed order: features by name.
std::string encode_example(const Example& example);

// A feature's values. Throws InvalidArgument, naming the record, if there is no such feature, or one of
// another kind.
const std::vector<std::string>& bytes_list(const Example& example, std::string_view name,
                                           const RecordPlace& place);
const std::vector<float>& float_list(const Example& example, std::string_view name, const RecordPlace& place);
const std::vector<std::int64_t>& int64_list(const Example& example, std::string_view name,
                                            const RecordPlace& place);

}  // namespace tandem::internal
