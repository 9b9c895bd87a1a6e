#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "checkpoint/file_system.h"

namespace tandem::internal {

// The safetensors format: eight bytes with the length of a header (little-endian), the header as JSON, then
// the tensors' values, one after the other without holes, row-major and little-endian. Nothing in it runs
// code. Python reads and writes it with the package of that name.
//
// Files from elsewhere are not trusted: the reader keeps within the limits below, whatever the bytes.

// The format itself allows 100 MB.
inline constexpr std::uint64_t kLongestHeader = std::uint64_t{16} << 20;
inline constexpr std::size_t kLongestTensorName = 1024;

// A tensor to write. The values are not copied: they must stay until the write is done.
struct TensorBytes {
  std::string name;
  std::string dtype;  // as the format names it: "F32", "I64", "BF16", ...
  std::vector<std::int64_t> shape;
  Bytes bytes;
};

// A tensor in a file: its values lie at [begin, end), counted from the beginning of the file.
struct TensorEntry {
  std::string name;
  std::string dtype = {};
  std::vector<std::int64_t> shape = {};
  std::uint64_t begin = 0;
  std::uint64_t end = 0;

  std::uint64_t bytes() const { return end - begin; }
};

using Metadata = std::map<std::string, std::string>;

struct SafetensorsHeader {
  std::vector<TensorEntry> tensors;  // in the order of their values
  Metadata metadata;                 // "__metadata__": anything, as text
};

// Bytes of one value; nothing if the format has no such type, or not in whole bytes.
std::optional<std::size_t> dtype_bytes(std::string_view dtype);

// Bytes of a tensor; nothing if the type is unknown, a dimension is negative, or it is too large to count.
std::optional<std::uint64_t> tensor_bytes(std::string_view dtype, std::span<const std::int64_t> shape);

// Why a tensor cannot have this name ("is empty", ...); empty if it can. Names are printable UTF-8 without
// slashes and backslashes: some programs make a file of each tensor.
std::string fault_of_tensor_name(std::string_view name);

// The header of a file of `file_bytes` bytes, from its beginning up to at least where the values begin.
// `file` begins the messages. Throws InvalidArgument, saying what it is instead, for a pickle, a zip archive
// (as torch.save and torch.jit.save write) or an HDF5 file; DataLoss for anything else that is not whole and
// strictly of the format.
SafetensorsHeader parse_safetensors(const std::string& file, std::string_view beginning,
                                    std::uint64_t file_bytes);

// How tensors lie in a file: largest values first, so that each is aligned, then by name. The same tensors
// give the same bytes, whatever their order here, and the same as the Python package writes.
struct SafetensorsLayout {
  std::string beginning;             // length and header, with blanks up to a multiple of eight bytes
  std::vector<std::size_t> order;    // of the tensors given
  std::vector<TensorEntry> entries;  // in that order
  std::uint64_t file_bytes = 0;
};

// Throws InvalidArgument for a name that is wrong or given twice, an unknown type, a number of bytes that
// type and shape do not make, or a header that would be too long.
SafetensorsLayout lay_out_safetensors(std::span<const TensorBytes> tensors, const Metadata& metadata);

// Writes a file so that a reader finds the old one or the new one, whole, also after a crash. Throws as
// lay_out_safetensors() does, and FileError; then nothing is left behind.
void write_safetensors(FileSystem& files, const std::string& path, std::span<const TensorBytes> tensors,
                       const Metadata& metadata = {});

// A file to read from. The format has no checksums: values are as the disk gives them.
class SafetensorsFile {
 public:
  // Reads the header. Throws as parse_safetensors() does, and FileError.
  SafetensorsFile(FileSystem& files, const std::string& path);

  const std::vector<TensorEntry>& tensors() const { return header_.tensors; }
  const Metadata& metadata() const { return header_.metadata; }
  // Null if there is none.
  const TensorEntry* find(std::string_view name) const;

  // Values of a tensor from byte `offset` of it on, as many as fit. Throws InvalidArgument if it has fewer,
  // DataLoss if the file has been cut since. Any thread.
  void read(const TensorEntry& tensor, std::span<std::byte> bytes, std::uint64_t offset = 0) const;

 private:
  std::string path_;
  std::unique_ptr<ReadableFile> file_;
  SafetensorsHeader header_;
  std::map<std::string_view, std::size_t> index_;
};

}  // namespace tandem::internal
