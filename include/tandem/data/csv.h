#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "tandem/dataset.h"

namespace tandem::data {

enum class CsvType {
  kInt,     // int64
  kFloat,   // float32
  kString,  // int64 that stand for texts, see string_tensor()
};

// Names and defaults are those of TensorFlow's make_csv_dataset().
struct CsvOptions {
  // The column that becomes y. Empty: none does.
  std::string label_name = {};
  // Empty: the first line has them.
  std::vector<std::string> column_names = {};
  // Whether the first line is a header; with column_names it is passed over.
  bool header = true;
  // The columns to read; empty: all. The label is one of them in any case.
  std::vector<std::string> select_columns = {};
  // What a column holds. Columns not named here: whole numbers, numbers or texts, whichever the first
  // num_rows_for_inference records of the (first) file are.
  std::map<std::string, CsvType> column_types = {};
  std::int64_t num_rows_for_inference = 100;
  // What an empty cell counts as, by column. Columns not named here: 0, or the empty text.
  std::map<std::string, std::string> column_defaults = {};
  // A cell with this text is empty too, e.g. "?" or "NA".
  std::string na_value = {};
  char field_delim = ',';
  bool use_quote_delim = true;
  // "" or "GZIP".
  std::string compression_type = {};
};

// The records of a CSV file as examples: x a map from the names of the columns to scalars, y the label. A
// file is read as a stream, a record at a time, so it may be larger than memory. Several files of the same
// columns are shared among workers as from_files() says.
//
//   auto cars = data::csv("auto-mpg.csv", {.label_name = "mpg", .na_value = "?"}).shuffle(400).batch(32);
//
// Throws NotFound for a file that cannot be read, InvalidArgument for a column that it does not have,
// DataLoss ("cars.csv:17: column \"weight\" (5) is ...") for a record with more or fewer cells than there are
// columns, and for one that is no number where one is expected: at once for the records that types are told
// from, else when they are come to.
Dataset csv(const std::string& path, CsvOptions options = {});
Dataset csv(std::vector<std::string> paths, CsvOptions options = {});

// Texts as tensors carry them: int64, of each text 64 bits that tell it from all others; 0 is the empty text,
// which counts as missing. For features that do not come from a file.
at::Tensor string_tensor(const std::vector<std::string>& texts);

}  // namespace tandem::data
