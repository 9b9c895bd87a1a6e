#include "train/packed_tensors.h"

#include <cstring>

#include "checkpoint/tensors.h"

namespace tandem::internal {

at::Tensor pack(const NamedTensors& tensors) {
  const std::vector<TensorBytes> parts = bytes_of_all(tensors);
  const SafetensorsLayout layout = lay_out_safetensors(parts, {});
  const at::Tensor line = at::empty({static_cast<std::int64_t>(layout.file_bytes)}, at::kByte);
  auto* to = static_cast<char*>(line.data_ptr());
  std::memcpy(to, layout.beginning.data(), layout.beginning.size());
  for (std::size_t i = 0; i < layout.order.size(); ++i) {
    const Bytes bytes = parts[layout.order[i]].bytes;
    if (!bytes.empty()) std::memcpy(to + layout.entries[i].begin, bytes.data(), bytes.size());
  }
  return line;
}

NamedTensors unpack(const at::Tensor& line, const std::string& whose) {
  const std::string_view text(static_cast<const char*>(line.data_ptr()), line.nbytes());
  NamedTensors tensors;
  for (const TensorEntry& entry : parse_safetensors(whose, text, text.size()).tensors) {
    at::Tensor tensor = empty_like_entry(entry);
    if (entry.bytes() > 0) std::memcpy(tensor.data_ptr(), text.data() + entry.begin, entry.bytes());
    tensors[entry.name] = std::move(tensor);
  }
  return tensors;
}

}  // namespace tandem::internal
