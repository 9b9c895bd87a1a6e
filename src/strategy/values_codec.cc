#include "strategy/values_codec.h"

#include <fmt/format.h>
#include <torch/torch.h>

#include <algorithm>
#include <cstring>
#include <limits>

#include "checkpoint/tensors.h"
#include "ps/byte_codec.h"
#include "tandem/error.h"

namespace tandem::internal {
namespace {

constexpr std::size_t kMostValues = 1 << 16;
constexpr std::size_t kMostDimensions = 64;
constexpr std::size_t kLongestDtype = 8;
// Of one tensor: the length of the dtype's name and the number of dimensions.
constexpr std::size_t kSmallestEntry = sizeof(std::uint16_t) + sizeof(std::uint32_t);

struct ValueShape {
  at::ScalarType dtype = at::kFloat;
  std::vector<std::int64_t> sizes = {};
  std::uint64_t bytes = 0;
};

ValueShape read_shape(const std::string& what, ps::ByteReader& reader) {
  ValueShape shape;
  std::string dtype;
  reader.text(dtype, kLongestDtype);
  shape.dtype = dtype_from_name(what, dtype);
  shape.sizes.resize(reader.count(sizeof(std::int64_t), kMostDimensions));
  // A tensor without elements may have any other sizes, so long as libtorch can multiply them.
  constexpr auto kMost = static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max()) / 16;
  std::uint64_t volume = 1;
  shape.bytes = c10::elementSize(shape.dtype);
  for (std::int64_t& size : shape.sizes) {
    reader(size);
    if (size < 0) throw ps::BytesFault{"a dimension is negative"};
    const auto factor = static_cast<std::uint64_t>(size);
    if (factor > 0 && volume > kMost / factor) throw ps::BytesFault{"a tensor is too large"};
    volume *= std::max<std::uint64_t>(factor, 1);
    shape.bytes *= factor;
  }
  return shape;
}

}  // namespace

std::string encode_values(const std::string& what, const std::vector<at::Tensor>& values) {
  if (values.size() > kMostValues) {
    throw InvalidArgument(fmt::format("{} has {} tensors: at most {}", what, values.size(), kMostValues));
  }
  ps::ByteWriter writer;
  writer.count(values.size());
  std::size_t bytes = 0;
  for (std::size_t i = 0; i < values.size(); ++i) {
    const at::Tensor& value = values[i];
    const std::string name = fmt::format("{} {}", what, i);
    if (!value.defined()) throw InvalidArgument(fmt::format("{} is an undefined tensor", name));
    if (value.layout() != at::kStrided) {
      throw InvalidArgument(fmt::format("{} is sparse: only dense tensors can travel; to_dense()", name));
    }
    writer.text(dtype_name(name, value.scalar_type()), kLongestDtype);
    writer.count(value.sizes().size());
    for (const std::int64_t size : value.sizes()) writer(size);
    bytes += value.nbytes();
  }
  std::string encoded = writer.take();
  encoded.reserve(encoded.size() + bytes);
  for (const at::Tensor& value : values) {
    const at::Tensor there = value.detach().cpu().contiguous();
    encoded.append(static_cast<const char*>(there.data_ptr()), there.nbytes());
  }
  return encoded;
}

std::vector<at::Tensor> decode_values(const std::string& what, std::string_view bytes) {
  try {
    ps::ByteReader reader(std::as_bytes(std::span(bytes)));
    std::vector<ValueShape> shapes(reader.count(kSmallestEntry, kMostValues));
    std::uint64_t expected = 0;
    for (ValueShape& shape : shapes) {
      shape = read_shape(what, reader);
      if (shape.bytes > reader.rest().size()) throw ps::BytesFault{"it ends too early"};
      expected += shape.bytes;
    }
    if (expected != reader.rest().size()) throw ps::BytesFault{"its values have another size"};
    const std::byte* from = reader.rest().data();
    std::vector<at::Tensor> values;
    for (const ValueShape& shape : shapes) {
      // Any other byte in a bool would be undefined behaviour.
      const auto is_bool = [](std::byte byte) { return byte <= std::byte{1}; };
      if (shape.dtype == at::kBool && !std::all_of(from, from + shape.bytes, is_bool)) {
        throw ps::BytesFault{"a truth value is neither 0 nor 1"};
      }
      values.push_back(at::empty(shape.sizes, shape.dtype));
      if (shape.bytes > 0) std::memcpy(values.back().data_ptr(), from, shape.bytes);
      from += shape.bytes;
    }
    return values;
  } catch (const ps::BytesFault& fault) {
    throw InvalidArgument(fmt::format("{} cannot be read: {}", what, fault.reason));
  }
}

}  // namespace tandem::internal
