// Any bytes as a safetensors file: refused with one line, or its tensors fill it exactly and are written to a
// file that reads the same.
#include "checkpoint/safetensors.h"

#include <cstdint>
#include <string>
#include <vector>

#include "fuzz/require.h"
#include "tandem/error.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace tandem;
  using namespace tandem::internal;
  using fuzz::require;
  const std::string_view file(reinterpret_cast<const char*>(data), size);
  SafetensorsHeader header;
  try {
    header = parse_safetensors("x.safetensors", file, size);
  } catch (const Error& error) {
    require(error.code() == ErrorCode::kDataLoss || error.code() == ErrorCode::kInvalidArgument,
            "a refusal is DataLoss or InvalidArgument");
    const std::string line = error.what();
    require(line.find_first_of("\n\r\t") == std::string::npos, "a refusal is one line");
    require(line.size() < 4096, "a refusal is short");
    require(line.starts_with("x.safetensors"), "a refusal names its file");
    return -1;
  }
  std::vector<TensorBytes> tensors;
  std::uint64_t last_end = header.tensors.empty() ? size : header.tensors.front().begin;
  for (const TensorEntry& tensor : header.tensors) {
    require(tensor.begin == last_end && tensor.end >= tensor.begin && tensor.end <= size,
            "values lie one after the other, within the file");
    require(tensor_bytes(tensor.dtype, tensor.shape) == tensor.bytes(), "a shape fits its bytes");
    require(fault_of_tensor_name(tensor.name).empty(), "a name could be no path");
    tensors.push_back({tensor.name, tensor.dtype, tensor.shape,
                       std::as_bytes(std::span(file)).subspan(tensor.begin, tensor.bytes())});
    last_end = tensor.end;
  }
  require(last_end == size, "values go to the end of the file");

  const SafetensorsLayout layout = lay_out_safetensors(tensors, header.metadata);
  const SafetensorsHeader again = parse_safetensors("x", layout.beginning, layout.file_bytes);
  require(again.metadata == header.metadata, "metadata is the same after writing");
  require(again.tensors.size() == tensors.size(), "there are as many tensors after writing");
  for (std::size_t i = 0; i < again.tensors.size(); ++i) {
    const TensorBytes& written = tensors[layout.order[i]];
    require(again.tensors[i].name == written.name && again.tensors[i].dtype == written.dtype &&
                again.tensors[i].shape == written.shape && again.tensors[i].bytes() == written.bytes.size(),
            "a tensor is the same after writing");
  }
  return 0;
}
