#include "checkpoint/safetensors.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cerrno>
#include <cstring>
#include <limits>
#include <nlohmann/json.hpp>
#include <numeric>
#include <unordered_set>
#include <utility>

#include "cluster/text.h"

namespace tandem::internal {
namespace {

static_assert(std::endian::native == std::endian::little, "values are written as they lie in memory");

constexpr std::size_t kLengthBytes = 8;
constexpr std::string_view kMetadataKey = "__metadata__";

struct Dtype {
  std::string_view name;
  std::size_t bytes;
};

// In the order in which the Python package sorts them, from the back.
constexpr std::array kDtypes{
    Dtype{"BOOL", 1},    Dtype{"U8", 1},  Dtype{"I8", 1},  Dtype{"F8_E5M2", 1},
    Dtype{"F8_E4M3", 1}, Dtype{"I16", 2}, Dtype{"U16", 2}, Dtype{"F16", 2},
    Dtype{"BF16", 2},    Dtype{"I32", 4}, Dtype{"U32", 4}, Dtype{"F32", 4},
    Dtype{"C64", 8},     Dtype{"F64", 8}, Dtype{"I64", 8}, Dtype{"U64", 8},
};

auto find_dtype(std::string_view name) {
  return std::ranges::find(kDtypes, name, &Dtype::name);
}

struct Foreign {
  std::string_view magic;
  const char* reason;
};

// What people try instead.
constexpr const char* kConvert = "write it with safetensors.torch.save_file in Python";
constexpr std::array kForeign{
    Foreign{"PK\x03\x04",
            "is a zip archive, as torch.save and torch.jit.save write: it holds pickled Python, and reading "
            "that runs whatever code it names"},
    Foreign{"\x80\x02", "is a Python pickle, and reading that runs whatever code it names"},
    Foreign{"\x80\x03", "is a Python pickle, and reading that runs whatever code it names"},
    Foreign{"\x80\x04", "is a Python pickle, and reading that runs whatever code it names"},
    Foreign{"\x80\x05", "is a Python pickle, and reading that runs whatever code it names"},
    Foreign{"\x89HDF", "is an HDF5 file, as Keras writes"},
};

// Takes the header apart as the parser goes through it: no tree is built, so memory stays within what the
// tensors themselves need, and no key is seen twice without notice.
class HeaderReader final : public nlohmann::json_sax<nlohmann::json> {
 public:
  explicit HeaderReader(SafetensorsHeader& header) : header_(header) {}

  // What is wrong, after any function has returned false.
  const std::string& fault() const { return fault_; }

  bool key(std::string& text) override {
    switch (state_) {
      case State::kTop:
        return top_key(text);
      case State::kMetadata:
        if (!header_.metadata.emplace(text, "").second) {
          return refuse(fmt::format("metadata key {} is there twice", quote(text)));
        }
        metadata_key_ = text;
        return true;
      case State::kTensor:
        return tensor_key(text);
      default:
        return unexpected();
    }
  }

  bool string(std::string& text) override {
    if (state_ == State::kMetadata) {
      header_.metadata[metadata_key_] = text;
      return true;
    }
    if (state_ != State::kTensor || next_ != Field::kDtype) return unexpected();
    if (find_dtype(text) == kDtypes.end()) {
      return refuse(fmt::format("tensor {} has dtype {}: expected one of {}", quote(tensor().name),
                                quote(text), fmt::join(names_of_dtypes(), ", ")));
    }
    tensor().dtype = text;
    next_ = Field::kNone;
    return true;
  }

  bool number_unsigned(std::uint64_t value) override {
    if (state_ == State::kShape) {
      if (value > static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max())) return unexpected();
      tensor().shape.push_back(static_cast<std::int64_t>(value));
      return true;
    }
    if (state_ != State::kOffsets || offsets_ >= 2) return unexpected();
    (offsets_++ == 0 ? tensor().begin : tensor().end) = value;
    return true;
  }

  bool start_object(std::size_t) override {
    if (state_ == State::kStart) return go(State::kTop);
    if (state_ != State::kTop) return unexpected();
    return go(in_metadata_ ? State::kMetadata : State::kTensor);
  }

  bool end_object() override {
    if (state_ == State::kTop) return go(State::kEnd);
    if (state_ == State::kTensor && seen_ != kAllFields) {
      return refuse(fmt::format("tensor {} lacks dtype, shape or data_offsets", quote(tensor().name)));
    }
    return go(State::kTop);
  }

  bool start_array(std::size_t) override {
    if (state_ != State::kTensor) return unexpected();
    if (next_ == Field::kShape) return go(State::kShape);
    if (next_ == Field::kOffsets) return go(State::kOffsets);
    return unexpected();
  }

  bool end_array() override {
    if (state_ == State::kOffsets && offsets_ != 2) return unexpected();
    next_ = Field::kNone;
    return go(State::kTensor);
  }

  bool null() override { return unexpected(); }
  bool boolean(bool) override { return unexpected(); }
  bool number_integer(std::int64_t) override { return unexpected(); }
  bool number_float(double, const std::string&) override { return unexpected(); }
  bool binary(nlohmann::json::binary_t&) override { return unexpected(); }
  bool parse_error(std::size_t position, const std::string&, const nlohmann::json::exception&) override {
    return refuse(fmt::format("the header is not JSON at byte {}", kLengthBytes + position));
  }

 private:
  enum class State { kStart, kTop, kMetadata, kTensor, kShape, kOffsets, kEnd };
  enum class Field : unsigned { kNone = 0, kDtype = 1, kShape = 2, kOffsets = 4 };
  static constexpr unsigned kAllFields = 7;

  static std::vector<std::string_view> names_of_dtypes() {
    std::vector<std::string_view> names;
    for (const Dtype& dtype : kDtypes) names.push_back(dtype.name);
    return names;
  }

  TensorEntry& tensor() { return header_.tensors.back(); }

  bool go(State state) {
    state_ = state;
    return true;
  }

  bool top_key(const std::string& name) {
    in_metadata_ = name == kMetadataKey;
    if (in_metadata_) {
      if (std::exchange(has_metadata_, true)) return refuse("__metadata__ is there twice");
      return true;
    }
    if (const std::string fault = fault_of_tensor_name(name); !fault.empty()) {
      return refuse(fmt::format("the tensor name {} {}", quote(name), fault));
    }
    if (!names_.insert(name).second) return refuse(fmt::format("tensor {} is there twice", quote(name)));
    header_.tensors.push_back({.name = name});
    seen_ = 0;
    offsets_ = 0;
    return true;
  }

  bool tensor_key(const std::string& name) {
    next_ = name == "dtype"          ? Field::kDtype
            : name == "shape"        ? Field::kShape
            : name == "data_offsets" ? Field::kOffsets
                                     : Field::kNone;
    const auto bit = static_cast<unsigned>(next_);
    if (bit == 0 || (seen_ & bit) != 0) {
      return refuse(
          fmt::format("tensor {} has the key {}{}: expected dtype, shape and data_offsets, once each",
                      quote(tensor().name), quote(name), bit == 0 ? "" : " twice"));
    }
    seen_ |= bit;
    return true;
  }

  bool unexpected() {
    if (state_ == State::kTensor || state_ == State::kShape || state_ == State::kOffsets) {
      return refuse(fmt::format(
          "tensor {} is not of the form {{\"dtype\":\"F32\",\"shape\":[2,3],\"data_offsets\":[0,24]}}",
          quote(tensor().name)));
    }
    if (state_ == State::kMetadata) return refuse("__metadata__ is not a map from text to text");
    return refuse("the header is not a JSON object of tensors");
  }

  bool refuse(std::string fault) {
    if (fault_.empty()) fault_ = std::move(fault);
    return false;
  }

  SafetensorsHeader& header_;
  State state_ = State::kStart;
  Field next_ = Field::kNone;
  unsigned seen_ = 0;
  int offsets_ = 0;
  bool in_metadata_ = false;
  bool has_metadata_ = false;
  std::string metadata_key_;
  std::unordered_set<std::string> names_;
  std::string fault_;
};

std::uint64_t read_length(std::string_view beginning) {
  std::uint64_t length;
  std::memcpy(&length, beginning.data(), sizeof length);
  return length;
}

// The beginning is not that of a safetensors file. A file of another kind is told by name; only then, since
// the length of a header may begin with the same bytes.
[[noreturn]] void refuse_beginning(const std::string& file, std::string_view beginning,
                                   const std::string& reason) {
  for (const Foreign& foreign : kForeign) {
    if (beginning.starts_with(foreign.magic)) {
      throw InvalidArgument(
          fmt::format("{} {}; expected a safetensors file: {}", file, foreign.reason, kConvert));
    }
  }
  throw DataLoss(fmt::format("{}: {}", file, reason));
}

// Sorts the tensors by where they lie and checks that they fill the file. Makes offsets count from its start.
void place(const std::string& file, SafetensorsHeader& header, std::uint64_t data_begin,
           std::uint64_t file_bytes) {
  auto& tensors = header.tensors;
  std::ranges::sort(tensors, {}, [](const TensorEntry& one) { return std::pair(one.begin, one.end); });
  std::uint64_t next = 0;
  for (TensorEntry& tensor : tensors) {
    if (tensor.begin != next || tensor.end < tensor.begin) {
      throw DataLoss(
          fmt::format("{}: the values of tensor {} lie at [{}, {}): expected them to begin at {}, where "
                      "those before end",
                      file, quote(tensor.name), tensor.begin, tensor.end, next));
    }
    const auto bytes = tensor_bytes(tensor.dtype, tensor.shape);
    if (!bytes || *bytes != tensor.bytes()) {
      throw DataLoss(fmt::format("{}: tensor {} has {} bytes: expected {} for {} of shape [{}]", file,
                                 quote(tensor.name), tensor.bytes(),
                                 bytes ? std::to_string(*bytes) : "fewer than 2^63", tensor.dtype,
                                 fmt::join(tensor.shape, ", ")));
    }
    next = tensor.end;
    tensor.begin += data_begin;
    tensor.end += data_begin;
  }
  if (next != file_bytes - data_begin) {
    throw DataLoss(fmt::format("{}: the file has {} bytes: expected {}, where the last tensor ends", file,
                               file_bytes, data_begin + next));
  }
}

std::string json_text(std::string_view text) {
  return nlohmann::json(text).dump();
}

// The written form, checked before it is used: UTF-8.
void check_metadata(const Metadata& metadata) {
  for (const auto& [key, value] : metadata) {
    try {
      json_text(key);
      json_text(value);
    } catch (const nlohmann::json::exception&) {
      throw InvalidArgument(fmt::format("metadata {} is not UTF-8 text", quote(key)));
    }
  }
}

void check_tensors(std::span<const TensorBytes> tensors) {
  std::unordered_set<std::string_view> names;
  for (const TensorBytes& tensor : tensors) {
    if (const std::string fault = fault_of_tensor_name(tensor.name); !fault.empty()) {
      throw InvalidArgument(fmt::format("the tensor name {} {}", quote(tensor.name), fault));
    }
    if (!names.insert(tensor.name).second) {
      throw InvalidArgument(fmt::format("tensor {} is given twice", quote(tensor.name)));
    }
    const auto bytes = tensor_bytes(tensor.dtype, tensor.shape);
    if (!bytes || *bytes != tensor.bytes.size()) {
      throw InvalidArgument(fmt::format("tensor {} has {} bytes: expected {} for dtype {} and shape [{}]",
                                        quote(tensor.name), tensor.bytes.size(),
                                        bytes ? std::to_string(*bytes) : "none", quote(tensor.dtype),
                                        fmt::join(tensor.shape, ", ")));
    }
  }
}

}  // namespace

std::optional<std::size_t> dtype_bytes(std::string_view dtype) {
  const auto found = find_dtype(dtype);
  if (found == kDtypes.end()) return std::nullopt;
  return found->bytes;
}

std::optional<std::uint64_t> tensor_bytes(std::string_view dtype, std::span<const std::int64_t> shape) {
  const auto one = dtype_bytes(dtype);
  if (!one) return std::nullopt;
  std::int64_t bytes = static_cast<std::int64_t>(*one);
  for (const std::int64_t dimension : shape) {
    if (dimension < 0 || __builtin_mul_overflow(bytes, dimension, &bytes)) return std::nullopt;
  }
  return static_cast<std::uint64_t>(bytes);
}

std::string fault_of_tensor_name(std::string_view name) {
  if (name.empty()) return "is empty";
  if (name.size() > kLongestTensorName) return fmt::format("has more than {} bytes", kLongestTensorName);
  if (name == kMetadataKey) return "means metadata in this format";
  if (name.find_first_of("/\\") != std::string_view::npos) return "has a slash or a backslash";
  if (!is_printable_text(name)) return "has characters that cannot be printed";
  return {};
}

SafetensorsHeader parse_safetensors(const std::string& file, std::string_view beginning,
                                    std::uint64_t file_bytes) {
  if (beginning.size() < kLengthBytes) {
    refuse_beginning(file, beginning,
                     fmt::format("{} bytes are too few for a safetensors file", beginning.size()));
  }
  const std::uint64_t length = read_length(beginning);
  const std::uint64_t most = std::min(kLongestHeader, file_bytes - kLengthBytes);
  if (length > most) {
    refuse_beginning(
        file, beginning,
        fmt::format("the header has {} bytes by its own account: expected at most {}: the file is not "
                    "safetensors, or cut",
                    length, most));
  }
  const std::string_view text = beginning.substr(kLengthBytes, length);
  if (!text.starts_with('{')) {
    refuse_beginning(file, beginning,
                     "the header does not begin with a brace: the file is not safetensors, or damaged");
  }
  if (text.size() != length) throw DataLoss(fmt::format("{}: the header is cut", file));
  SafetensorsHeader header;
  HeaderReader reader(header);
  if (!nlohmann::json::sax_parse(text.begin(), text.end(), &reader)) {
    throw DataLoss(fmt::format("{}: {}", file, reader.fault()));
  }
  place(file, header, kLengthBytes + length, file_bytes);
  return header;
}

SafetensorsLayout lay_out_safetensors(std::span<const TensorBytes> tensors, const Metadata& metadata) {
  check_tensors(tensors);
  check_metadata(metadata);
  SafetensorsLayout layout;
  layout.order.resize(tensors.size());
  std::iota(layout.order.begin(), layout.order.end(), std::size_t{0});
  std::ranges::sort(layout.order, [&](std::size_t a, std::size_t b) {
    const auto type_of = [&](std::size_t i) { return find_dtype(tensors[i].dtype); };
    if (type_of(a) != type_of(b)) return type_of(a) > type_of(b);
    return tensors[a].name < tensors[b].name;
  });

  std::string header = "{";
  const auto separate = [&] { header += header.size() > 1 ? "," : ""; };
  if (!metadata.empty()) header += fmt::format("\"{}\":{}", kMetadataKey, nlohmann::json(metadata).dump());
  std::uint64_t next = 0;
  for (const std::size_t i : layout.order) {
    const TensorBytes& tensor = tensors[i];
    const std::uint64_t end = next + tensor.bytes.size();
    separate();
    header += fmt::format("{}:{{\"dtype\":\"{}\",\"shape\":[{}],\"data_offsets\":[{},{}]}}",
                          json_text(tensor.name), tensor.dtype, fmt::join(tensor.shape, ","), next, end);
    layout.entries.push_back({tensor.name, tensor.dtype, tensor.shape, next, end});
    next = end;
  }
  header += "}";
  while (header.size() % kLengthBytes != 0) header += ' ';
  if (header.size() > kLongestHeader) {
    throw InvalidArgument(
        fmt::format("the header of {} tensors has {} bytes: expected at most {}; write several files",
                    tensors.size(), header.size(), kLongestHeader));
  }

  const std::uint64_t length = header.size();
  layout.beginning.assign(reinterpret_cast<const char*>(&length), sizeof length);
  layout.beginning += header;
  for (TensorEntry& entry : layout.entries) {
    entry.begin += layout.beginning.size();
    entry.end += layout.beginning.size();
  }
  layout.file_bytes = layout.beginning.size() + next;
  return layout;
}

void write_safetensors(FileSystem& files, const std::string& path, std::span<const TensorBytes> tensors,
                       const Metadata& metadata) {
  const SafetensorsLayout layout = lay_out_safetensors(tensors, metadata);
  const std::string beside = fmt::format("{}.tmp-{}", path, random_suffix());
  auto file = files.create_file(beside);
  try {
    std::vector<Bytes> pieces{std::as_bytes(std::span(layout.beginning))};
    for (const std::size_t i : layout.order) pieces.push_back(tensors[i].bytes);
    file->append(pieces);
    file->sync();
    files.rename(beside, path);
  } catch (const Error&) {
    file.reset();
    try {
      files.remove_file(beside);
    } catch (const Error&) {  // the first reason is the one to tell
    }
    throw;
  }
  files.sync_folder(parent_folder(path));
}

SafetensorsFile::SafetensorsFile(FileSystem& files, const std::string& path)
    : path_(path), file_(files.open_file(path)) {
  std::string beginning(std::min<std::uint64_t>(kLengthBytes, file_->size()), '\0');
  const auto fill = [&](std::size_t from) {
    const auto rest = std::as_writable_bytes(std::span(beginning)).subspan(from);
    if (file_->read_at(from, rest) != rest.size()) throw DataLoss(fmt::format("{}: the file was cut", path));
  };
  fill(0);
  if (beginning.size() == kLengthBytes) {
    const std::uint64_t length = read_length(beginning);
    const std::uint64_t rest = file_->size() - kLengthBytes;
    if (length <= kLongestHeader && length <= rest) {
      beginning.resize(kLengthBytes + length);
      fill(kLengthBytes);
    }
  }
  header_ = parse_safetensors(path, beginning, file_->size());
  for (std::size_t i = 0; i < header_.tensors.size(); ++i) index_.emplace(header_.tensors[i].name, i);
}

const TensorEntry* SafetensorsFile::find(std::string_view name) const {
  const auto found = index_.find(name);
  return found == index_.end() ? nullptr : &header_.tensors[found->second];
}

void SafetensorsFile::read(const TensorEntry& tensor, std::span<std::byte> bytes,
                           std::uint64_t offset) const {
  if (offset > tensor.bytes() || bytes.size() > tensor.bytes() - offset) {
    throw InvalidArgument(fmt::format("{} bytes from byte {} of tensor {}: it has {}", bytes.size(), offset,
                                      quote(tensor.name), tensor.bytes()));
  }
  const std::size_t n = file_->read_at(tensor.begin + offset, bytes);
  if (n != bytes.size()) {
    throw DataLoss(fmt::format("{}: the file ends in the middle of tensor {}", path_, quote(tensor.name)));
  }
}

}  // namespace tandem::internal
