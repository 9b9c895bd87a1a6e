#include "tandem/data/csv.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/scalar_tensor.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <memory>
#include <optional>

#include "base/compression.h"
#include "base/csv_reader.h"
#include "base/fingerprint.h"
#include "cluster/text.h"
#include "data/noted_texts.h"
#include "tandem/error.h"

namespace tandem::data {
namespace {

template <typename Number>
std::optional<Number> parse_number(std::string_view text) {
  while (!text.empty() && text.front() == ' ') text.remove_prefix(1);
  while (!text.empty() && text.back() == ' ') text.remove_suffix(1);
  if (text.starts_with('+')) text.remove_prefix(1);
  Number value{};
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size() || text.empty()) return {};
  return value;
}

struct Column {
  std::string name;
  std::size_t place = 0;  // of its cell in a record
  CsvType type = CsvType::kString;
  at::Tensor missing = {};  // what stands for an empty cell
};

// Why a cell cannot be what the column holds; nothing if it can.
std::optional<at::Tensor> value_of(CsvType type, const std::string& cell) {
  switch (type) {
    case CsvType::kInt:
      if (const auto value = parse_number<std::int64_t>(cell)) return at::scalar_tensor(*value, at::kLong);
      return {};
    case CsvType::kFloat:
      if (const auto value = parse_number<double>(cell)) return at::scalar_tensor(*value, at::kFloat);
      return {};
    case CsvType::kString:
      return at::scalar_tensor(internal::fingerprint(cell), at::kLong);
  }
  return {};
}

const char* expected(CsvType type) {
  return type == CsvType::kInt ? "a whole number" : "a number";
}

// What the columns of a file are, the same for all files of a dataset.
struct Layout {
  CsvOptions options;
  std::vector<std::string> names;  // of all cells of a record
  std::vector<Column> columns;     // those that are read

  bool is_missing(const std::string& cell) const {
    return cell.empty() || (!options.na_value.empty() && cell == options.na_value);
  }
};

internal::CsvReader open(const std::string& path, const CsvOptions& options) {
  return internal::CsvReader(path,
                             internal::unpacked(path, internal::file_source(path),
                                                internal::compression_of(options.compression_type)),
                             {.separator = options.field_delim, .quotes = options.use_quote_delim});
}

// Checks the header that a file has, or the number of cells of any other record.
void check_cells(const Layout& layout, const internal::CsvReader& reader,
                 const std::vector<std::string>& cells) {
  if (cells.size() == layout.names.size()) return;
  throw DataLoss(fmt::format(
      "{}: {} cells: expected {}, one for each column ({}{})", reader.where(), cells.size(),
      layout.names.size(), cells.size() < layout.names.size() ? "the first without one is " : "the last is ",
      internal::quote(layout.names[std::min(cells.size(), layout.names.size() - 1)])));
}

std::size_t place_of(const Layout& layout, const std::string& name, const char* what) {
  const auto found = std::ranges::find(layout.names, name);
  if (found == layout.names.end()) {
    throw InvalidArgument(fmt::format("csv: {} names the column {}{}: the columns are {}", what,
                                      internal::quote(name), internal::did_you_mean(name, layout.names),
                                      fmt::join(layout.names, ", ")));
  }
  return static_cast<std::size_t>(found - layout.names.begin());
}

// Reads the names, or passes over the line that has them.
void read_header(internal::CsvReader& reader, Layout& layout) {
  if (!layout.options.header) return;
  std::vector<std::string> cells;
  if (!reader.next(cells))
    throw DataLoss(fmt::format("{}: the file is empty: expected a header", reader.where()));
  if (layout.names.empty()) {
    layout.names = std::move(cells);
  } else if (layout.options.column_names.empty() && cells != layout.names) {
    throw DataLoss(fmt::format("{}: the columns are {}: expected those of the first file, {}", reader.where(),
                               fmt::join(cells, ", "), fmt::join(layout.names, ", ")));
  }
}

// Whole numbers where all are, else numbers, else texts.
void infer_types(internal::CsvReader& reader, Layout& layout, std::vector<Column*> untold) {
  for (Column* column : untold) column->type = CsvType::kInt;
  std::vector<bool> seen(layout.names.size(), false);
  std::vector<std::string> cells;
  for (std::int64_t row = 0; row < layout.options.num_rows_for_inference && reader.next(cells); ++row) {
    check_cells(layout, reader, cells);
    for (Column* column : untold) {
      const std::string& cell = cells[column->place];
      if (layout.is_missing(cell)) continue;
      seen[column->place] = true;
      while (column->type != CsvType::kString && !value_of(column->type, cell)) {
        column->type = column->type == CsvType::kInt ? CsvType::kFloat : CsvType::kString;
      }
    }
  }
  for (Column* column : untold) {
    if (!seen[column->place]) column->type = CsvType::kString;
  }
}

Layout lay_out(const std::string& path, CsvOptions options) {
  if (options.num_rows_for_inference < 1) {
    throw InvalidArgument(
        fmt::format("csv: num_rows_for_inference is {}: expected 1 or more", options.num_rows_for_inference));
  }
  if (!options.header && options.column_names.empty()) {
    throw InvalidArgument("csv: a file without a header needs column_names");
  }
  Layout layout{.options = std::move(options), .names = {}, .columns = {}};
  layout.names = layout.options.column_names;
  internal::CsvReader reader = open(path, layout.options);
  read_header(reader, layout);

  std::vector<std::string> chosen =
      layout.options.select_columns.empty() ? layout.names : layout.options.select_columns;
  const std::string& label = layout.options.label_name;
  if (!label.empty() && std::ranges::find(chosen, label) == chosen.end()) chosen.push_back(label);
  for (const std::string& name : chosen) {
    layout.columns.push_back({.name = name, .place = place_of(layout, name, "select_columns or label_name")});
  }
  for (const auto& [name, type] : layout.options.column_types) place_of(layout, name, "column_types");
  for (const auto& [name, text] : layout.options.column_defaults) place_of(layout, name, "column_defaults");

  std::vector<Column*> untold;
  for (Column& column : layout.columns) {
    const auto type = layout.options.column_types.find(column.name);
    if (type == layout.options.column_types.end()) {
      untold.push_back(&column);
    } else {
      column.type = type->second;
    }
  }
  if (!untold.empty()) infer_types(reader, layout, untold);
  for (Column& column : layout.columns) {
    const auto given = layout.options.column_defaults.find(column.name);
    const std::string text = given != layout.options.column_defaults.end() ? given->second
                             : column.type == CsvType::kString             ? ""
                                                                           : "0";
    const auto value = value_of(column.type, text);
    if (!value) {
      throw InvalidArgument(fmt::format("csv: column_defaults has {} for {}: expected {}",
                                        internal::quote(text), internal::quote(column.name),
                                        expected(column.type)));
    }
    column.missing = *value;
  }
  return layout;
}

// One pass over one file.
class Records {
 public:
  Records(const std::string& path, std::shared_ptr<const Layout> layout)
      : layout_(std::move(layout)), reader_(open(path, layout_->options)) {
    Layout expected = *layout_;
    read_header(reader_, expected);
  }

  std::optional<Batch> next() {
    if (!reader_.next(cells_)) return {};
    check_cells(*layout_, reader_, cells_);
    Tensors::Map features;
    Batch example;
    for (const Column& column : layout_->columns) {
      at::Tensor value = read(column);
      if (column.name == layout_->options.label_name) {
        example.y = std::move(value);
      } else {
        features[column.name] = std::move(value);
      }
    }
    example.x = std::move(features);
    return example;
  }

 private:
  at::Tensor read(const Column& column) const {
    const std::string& cell = cells_[column.place];
    if (layout_->is_missing(cell)) return column.missing;
    if (column.type == CsvType::kString && column.name == layout_->options.label_name) {
      internal::note_text(internal::fingerprint(cell), cell);
    }
    if (auto value = value_of(column.type, cell)) return std::move(*value);
    const bool told = layout_->options.column_types.contains(column.name);
    throw DataLoss(fmt::format(
        "{}: column {} ({}) is {}: expected {}{}", reader_.where(), internal::quote(column.name),
        column.place + 1, internal::quote(cell), expected(column.type),
        told ? "" : ", as in the records before (say otherwise in column_types, or give na_value)"));
  }

  std::shared_ptr<const Layout> layout_;
  internal::CsvReader reader_;
  std::vector<std::string> cells_;
};

}  // namespace

Dataset csv(const std::string& path, CsvOptions options) {
  return csv(std::vector<std::string>{path}, std::move(options));
}

Dataset csv(std::vector<std::string> paths, CsvOptions options) {
  if (paths.empty()) throw InvalidArgument("csv: no file is given");
  const auto layout = std::make_shared<const Layout>(lay_out(paths.front(), std::move(options)));
  const auto read = [layout](const std::string& path) {
    return Dataset::from_generator([path, layout] {
      const auto records = std::make_shared<Records>(path, layout);
      return [records] { return records->next(); };
    });
  };
  return Dataset::from_files(std::move(paths), read,
                             {.count = [](const std::string&) { return Dataset::kUnknown; }});
}

at::Tensor string_tensor(const std::vector<std::string>& texts) {
  at::Tensor tensor = at::empty({std::ssize(texts)}, at::kLong);
  auto* out = tensor.data_ptr<std::int64_t>();
  for (const std::string& text : texts) {
    internal::note_text(*out = internal::fingerprint(text), text);
    ++out;
  }
  return tensor;
}

}  // namespace tandem::data
