#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "tandem/batch.h"
#include "tandem/dataset.h"

namespace tandem::data {

struct TfRecordOptions {
  // TensorFlow's names: "", "GZIP" or "ZLIB".
  std::string compression = {};
  // Another order of the files each epoch; see FilesOptions.
  bool shuffle_files = false;
};

// The records of TFRecord files, one file after the other: x is a uint8 tensor of a record's bytes. Read as
// they are asked for, with both checksums; no file is in memory as a whole. Several workers share the files
// (AutoShardPolicy::kFile).
//
// Throws InvalidArgument for an empty list and another compression; next() throws NotFound, and DataLoss,
// naming file and offset, for a damaged or cut-off record.
Dataset tfrecord(std::vector<std::string> files, TfRecordOptions options = {});

// The files of a set that TensorFlow would name "<prefix>-00000-of-00005" and so on, in order. Throws
// NotFound if there is none or one is missing, InvalidArgument if there are sets of several sizes.
std::vector<std::string> tfrecord_shards(const std::string& prefix);

// tf.train.Feature's three kinds, and what they become.
enum class FeatureType {
  kFloat,  // float32
  kInt64,  // int64
  kBytes,  // one string, as a uint8 tensor of its bytes (a picture, or raw values)
};

// TensorFlow's FixedLenFeature and, without a shape, VarLenFeature (of kBytes: of one string, of any length).
struct FeatureSpec {
  FeatureType type = FeatureType::kFloat;
  // Of the tensor; {} is a scalar. Unset: one dimension of as many values as there are.
  std::optional<std::vector<std::int64_t>> shape = {};
  // Where an Example has no such feature, or an empty one. Undefined: that is an error, save for a feature
  // without a shape, which then has no values.
  at::Tensor default_value = {};
};

// What to read of each Example, by name; what else it has is passed over.
using ExampleSpec = std::map<std::string, FeatureSpec>;

// The Examples of TFRecord files: x has a tensor for each name of the spec, or is the tensor itself if there
// is one. `label`: the name of the one that is y; empty: there is none. Files as in tfrecord().
//
// Throws InvalidArgument for a spec that cannot be (no name, a label that it does not have, a default value
// of another type or shape). next() throws, naming the file, the record and the feature, DataLoss for a
// record that is no Example and InvalidArgument for a feature that is missing, of another kind, or of
// another number of values.
Dataset tfrecord_examples(std::vector<std::string> files, ExampleSpec spec, const std::string& label = {},
                          TfRecordOptions options = {});

// tf.train.Example's bytes: float tensors become float lists, int64 tensors int64 lists, a uint8 tensor one
// string. Throws InvalidArgument for another type.
std::string encode_example(const Tensors::Map& features);

struct TfRecordWriterOptions {
  std::string compression = {};
  // 0: one file, of exactly the name given. Else the name is the prefix of so many, which get the records in
  // turn: give each worker at least one.
  int shards = 0;
};

// Writes TFRecord files, which have their names once close() has returned. Not thread-safe.
class TfRecordWriter {
 public:
  // Throws InvalidArgument for options that cannot work, NotFound with the system's reason.
  explicit TfRecordWriter(const std::string& name, TfRecordWriterOptions options = {});
  // Without close() nothing stays.
  ~TfRecordWriter();

  // Both throw NotFound with the system's reason if the file cannot be written.
  void write(std::string_view record);
  void close();

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace tandem::data
