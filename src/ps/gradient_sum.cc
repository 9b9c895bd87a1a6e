#include "ps/gradient_sum.h"

#include <algorithm>

#include "comm/bfloat16.h"

namespace tandem::internal::ps {
namespace {

template <typename T>
void add_to(std::span<std::byte> sum, std::span<const std::byte> values) {
  T* to = reinterpret_cast<T*>(sum.data());
  const T* from = reinterpret_cast<const T*>(values.data());
  const std::size_t count = sum.size() / sizeof(T);
  for (std::size_t i = 0; i < count; ++i) to[i] = to[i] + from[i];
}

void add_to(WireType type, std::span<std::byte> sum, std::span<const std::byte> values) {
  if (type == WireType::kFloat32) add_to<float>(sum, values);
  if (type == WireType::kFloat64) add_to<double>(sum, values);
  if (type == WireType::kBfloat16) add_to<Bfloat16>(sum, values);
}

}  // namespace

void GradientSum::clear() {
  kind = PayloadKind::kNothing;
  rows.clear();
}

void GradientSum::add(const Layout& layout, PayloadKind added, std::span<const std::int64_t> row_ids,
                      std::span<const std::byte> more) {
  if (added == PayloadKind::kNothing) return;
  if (kind == PayloadKind::kNothing) {
    kind = added;
    rows.assign(row_ids.begin(), row_ids.end());
    values.assign(more.begin(), more.end());
    return;
  }
  if (kind == PayloadKind::kRows && added == PayloadKind::kDense) spread(layout);
  if (added == PayloadKind::kDense) {
    add_to(layout.type, values, more);
  } else if (kind == PayloadKind::kDense) {
    for (std::size_t i = 0; i < row_ids.size(); ++i) {
      add_to(layout.type, row(static_cast<std::size_t>(row_ids[i]), layout.row_bytes),
             more.subspan(i * layout.row_bytes, layout.row_bytes));
    }
  } else {
    merge(layout, row_ids, more);
  }
}

std::span<std::byte> GradientSum::row(std::size_t index, std::size_t row_bytes) {
  return std::span(values).subspan(index * row_bytes, row_bytes);
}

void GradientSum::spread(const Layout& layout) {
  std::vector<std::byte> dense(layout.bytes);
  for (std::size_t i = 0; i < rows.size(); ++i) {
    std::ranges::copy(row(i, layout.row_bytes),
                      dense.begin() + rows[i] * static_cast<std::int64_t>(layout.row_bytes));
  }
  values = std::move(dense);
  rows.clear();
  kind = PayloadKind::kDense;
}

void GradientSum::merge(const Layout& layout, std::span<const std::int64_t> row_ids,
                        std::span<const std::byte> more) {
  const std::size_t row_bytes = layout.row_bytes;
  std::vector<std::int64_t> both_rows;
  std::vector<std::byte> both;
  std::size_t a = 0;
  std::size_t b = 0;
  while (a < rows.size() || b < row_ids.size()) {
    const bool from_a = b == row_ids.size() || (a < rows.size() && rows[a] <= row_ids[b]);
    const bool from_both = from_a && b < row_ids.size() && a < rows.size() && rows[a] == row_ids[b];
    both_rows.push_back(from_a ? rows[a] : row_ids[b]);
    const std::span<const std::byte> source =
        from_a ? std::span<const std::byte>(row(a, row_bytes)) : more.subspan(b * row_bytes, row_bytes);
    both.insert(both.end(), source.begin(), source.end());
    if (from_both) {
      add_to(layout.type, std::span(both).last(row_bytes), more.subspan(b * row_bytes, row_bytes));
    }
    a += from_a ? 1 : 0;
    b += !from_a || from_both ? 1 : 0;
  }
  rows = std::move(both_rows);
  values = std::move(both);
}

}  // namespace tandem::internal::ps
