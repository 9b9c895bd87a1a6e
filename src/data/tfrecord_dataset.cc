#include <ATen/ops/empty.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstring>
#include <utility>
#include <variant>

#include "base/example.h"
#include "base/tfrecord.h"
#include "tandem/data/tfrecord.h"
#include "tandem/error.h"

namespace tandem::data {
namespace {

using internal::RecordPlace;

const char* name_of(FeatureType type) {
  switch (type) {
    case FeatureType::kFloat:
      return "float";
    case FeatureType::kInt64:
      return "int64";
    case FeatureType::kBytes:
      return "bytes";
  }
  return "unknown";
}

at::ScalarType dtype_of(FeatureType type) {
  switch (type) {
    case FeatureType::kFloat:
      return at::kFloat;
    case FeatureType::kInt64:
      return at::kLong;
    case FeatureType::kBytes:
      return at::kByte;
  }
  throw InvalidArgument(fmt::format("feature type {}: there is no such type", static_cast<int>(type)));
}

std::int64_t values_in(const std::vector<std::int64_t>& shape) {
  std::int64_t count = 1;
  for (const std::int64_t size : shape) {
    if (size < 0 || __builtin_mul_overflow(count, size, &count)) {
      throw InvalidArgument(
          fmt::format("a feature of shape [{}]: expected sizes of 0 or more", fmt::join(shape, ", ")));
    }
  }
  return count;
}

void check_spec(const ExampleSpec& spec, const std::string& label) {
  if (spec.empty()) throw InvalidArgument("tfrecord_examples: the spec is empty: name at least one feature");
  if (!label.empty() && !spec.contains(label)) {
    throw InvalidArgument(fmt::format("tfrecord_examples: the label \"{}\" is not in the spec", label));
  }
  if (!label.empty() && spec.size() == 1) {
    throw InvalidArgument(
        fmt::format("tfrecord_examples: the spec has only the label \"{}\": name what to learn from", label));
  }
  for (const auto& [name, feature] : spec) {
    const at::ScalarType dtype = dtype_of(feature.type);
    if (feature.shape) values_in(*feature.shape);
    const at::Tensor& value = feature.default_value;
    if (!value.defined()) continue;
    if (value.scalar_type() != dtype || (feature.shape && value.sizes() != at::IntArrayRef(*feature.shape))) {
      throw InvalidArgument(fmt::format(
          "feature \"{}\": the default value is {} [{}]: expected {} [{}]", name,
          c10::toString(value.scalar_type()), fmt::join(value.sizes(), ", "), c10::toString(dtype),
          feature.shape ? fmt::format("{}", fmt::join(*feature.shape, ", ")) : "any"));
    }
  }
}

// The values of a feature, wherever they lie.
struct Values {
  const void* data = nullptr;
  std::int64_t count = 0;
};

Values values_of(const internal::Example& example, const std::string& name, FeatureType type,
                 const RecordPlace& place) {
  switch (type) {
    case FeatureType::kFloat: {
      const auto& list = internal::float_list(example, name, place);
      return {list.data(), std::ssize(list)};
    }
    case FeatureType::kInt64: {
      const auto& list = internal::int64_list(example, name, place);
      return {list.data(), std::ssize(list)};
    }
    case FeatureType::kBytes: {
      const auto& list = internal::bytes_list(example, name, place);
      if (list.size() != 1) {
        throw InvalidArgument(fmt::format("record {} of \"{}\": feature \"{}\" has {} strings: expected 1",
                                          place.index, place.file, name, list.size()));
      }
      return {list[0].data(), std::ssize(list[0])};
    }
  }
  return {};
}

bool is_empty(const internal::Feature& feature) {
  return std::visit(
      [](const auto& list) {
        if constexpr (std::is_same_v<std::decay_t<decltype(list)>, std::monostate>) {
          return true;
        } else {
          return list.empty();
        }
      },
      feature);
}

at::Tensor read_feature(const internal::Example& example, const std::string& name, const FeatureSpec& spec,
                        const RecordPlace& place) {
  const auto found = example.features.find(name);
  const bool missing = found == example.features.end() || is_empty(found->second);
  if (missing && spec.default_value.defined()) return spec.default_value;
  if (missing && !spec.shape) return at::empty({0}, dtype_of(spec.type));
  const Values values = values_of(example, name, spec.type, place);
  const std::vector<std::int64_t> shape = spec.shape.value_or(std::vector<std::int64_t>{values.count});
  if (values_in(shape) != values.count) {
    throw InvalidArgument(fmt::format(
        "record {} of \"{}\": feature \"{}\" has {} {} values: expected {}, of shape [{}]", place.index,
        place.file, name, values.count, name_of(spec.type), values_in(shape), fmt::join(shape, ", ")));
  }
  at::Tensor tensor = at::empty(shape, dtype_of(spec.type));
  if (values.count > 0) std::memcpy(tensor.data_ptr(), values.data, tensor.nbytes());
  return tensor;
}

Batch read_example(std::string_view record, const ExampleSpec& spec, const std::string& label,
                   const RecordPlace& place) {
  const internal::Example example = internal::parse_example(record, place);
  Tensors::Map features;
  for (const auto& [name, feature] : spec) features[name] = read_feature(example, name, feature, place);
  Batch batch;
  if (!label.empty()) batch.y = features.extract(label).mapped();
  if (features.size() == 1) {
    batch.x = features.begin()->second;
  } else {
    batch.x = std::move(features);
  }
  return batch;
}

using ReadRecord = std::function<Batch(std::string_view record, const RecordPlace& place)>;

// A reader's records go through `read` one by one, as they are asked for.
Dataset from_records(std::vector<std::string> files, const TfRecordOptions& options, ReadRecord read) {
  const internal::Compression compression = internal::compression_of(options.compression);
  const auto open = [compression, read = std::move(read)](const std::string& file) {
    return Dataset::from_generator([file, compression, read] {
      const auto reader =
          std::make_shared<internal::RecordReader>(internal::open_tfrecord(file, compression));
      return [reader, read]() -> std::optional<Batch> {
        const RecordPlace place{reader->name(), reader->index()};
        const auto record = reader->next_view();
        if (!record) return {};
        return read(*record, place);
      };
    });
  };
  return Dataset::from_files(std::move(files), open, {.shuffle = options.shuffle_files});
}

}  // namespace

Dataset tfrecord(std::vector<std::string> files, TfRecordOptions options) {
  return from_records(std::move(files), options, [](std::string_view record, const RecordPlace&) {
    at::Tensor bytes = at::empty({std::ssize(record)}, at::kByte);
    if (!record.empty()) std::memcpy(bytes.data_ptr(), record.data(), record.size());
    return Batch{bytes};
  });
}

std::vector<std::string> tfrecord_shards(const std::string& prefix) {
  return internal::find_shards(prefix);
}

Dataset tfrecord_examples(std::vector<std::string> files, ExampleSpec spec, const std::string& label,
                          TfRecordOptions options) {
  check_spec(spec, label);
  return from_records(std::move(files), options,
                      [spec = std::move(spec), label](std::string_view record, const RecordPlace& place) {
                        return read_example(record, spec, label, place);
                      });
}

std::string encode_example(const Tensors::Map& features) {
  internal::Example example;
  for (const auto& [name, value] : features) {
    const at::Tensor values = value.detach().to(at::kCPU).contiguous();
    const auto count = static_cast<std::size_t>(values.numel());
    switch (values.scalar_type()) {
      case at::kFloat:
        example.features[name] =
            std::vector<float>(values.data_ptr<float>(), values.data_ptr<float>() + count);
        break;
      case at::kLong:
        example.features[name] = std::vector<std::int64_t>(values.data_ptr<std::int64_t>(),
                                                           values.data_ptr<std::int64_t>() + count);
        break;
      case at::kByte:
        example.features[name] = std::vector<std::string>{
            std::string(reinterpret_cast<const char*>(values.data_ptr<std::uint8_t>()), count)};
        break;
      default:
        throw InvalidArgument(fmt::format("feature \"{}\" is {}: expected Float, Long or Byte", name,
                                          c10::toString(values.scalar_type())));
    }
  }
  return internal::encode_example(example);
}

struct TfRecordWriter::State {
  std::variant<std::monostate, internal::TfRecordWriter, internal::ShardedTfRecordWriter> files;

  // fn(writer), whichever of the two it is.
  template <typename Fn>
  void with(Fn fn) {
    if (auto* one = std::get_if<internal::TfRecordWriter>(&files)) fn(*one);
    if (auto* several = std::get_if<internal::ShardedTfRecordWriter>(&files)) fn(*several);
  }
};

TfRecordWriter::TfRecordWriter(const std::string& name, TfRecordWriterOptions options)
    : state_(std::make_unique<State>()) {
  const internal::Compression compression = internal::compression_of(options.compression);
  if (options.shards == 0) {
    state_->files.emplace<internal::TfRecordWriter>(name, compression);
  } else {
    state_->files.emplace<internal::ShardedTfRecordWriter>(name, options.shards, compression);
  }
}

TfRecordWriter::~TfRecordWriter() = default;

void TfRecordWriter::write(std::string_view record) {
  state_->with([record](auto& writer) { writer.append(record); });
}

void TfRecordWriter::close() {
  state_->with([](auto& writer) { writer.close(); });
}

}  // namespace tandem::data
