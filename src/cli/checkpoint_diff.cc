#include "cli/checkpoint_diff.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <utility>

#include "checkpoint/float_values.h"
#include "tandem/error.h"

namespace tandem::internal {
namespace {

std::string form_of(const TensorEntry& tensor) {
  return fmt::format("{} [{}]", tensor.dtype, fmt::join(tensor.shape, ", "));
}

bool same_form(const TensorEntry& a, const TensorEntry& b) {
  return a.dtype == b.dtype && a.shape == b.shape;
}

std::vector<double> doubles_of(const TensorEntry& tensor, Bytes bytes) {
  std::vector<double> values(tensor.bytes() / *dtype_bytes(tensor.dtype));
  to_doubles(tensor.dtype, bytes, values);
  return values;
}

// How far apart; a number and none are infinitely far.
double distance(double a, double b) {
  if (a == b || (std::isnan(a) && std::isnan(b))) return 0;
  const double apart = std::fabs(a - b);
  return std::isnan(apart) ? std::numeric_limits<double>::infinity() : apart;
}

// What differs between the values; empty if nothing does.
std::string difference(const TensorEntry& tensor, Bytes a, Bytes b, double tolerance) {
  if (std::ranges::equal(a, b)) return {};
  const std::size_t one = *dtype_bytes(tensor.dtype);
  const std::size_t count = a.size() / one;
  if (!is_float(tensor.dtype)) {
    std::size_t different = 0;
    for (std::size_t i = 0; i < count; ++i) {
      different += std::memcmp(a.data() + i * one, b.data() + i * one, one) != 0 ? 1 : 0;
    }
    return fmt::format("{} of {} values differ", different, count);
  }
  const auto x = doubles_of(tensor, a);
  const auto y = doubles_of(tensor, b);
  std::size_t different = 0;
  double largest = 0;
  double sum = 0;
  for (std::size_t i = 0; i < count; ++i) {
    const double apart = distance(x[i], y[i]);
    different += apart > tolerance ? 1 : 0;
    largest = std::max(largest, apart);
    sum += apart;
  }
  if (different == 0) return {};
  return fmt::format("{} of {} values differ, by {:.3g} at most, {:.3g} on average", different, count,
                     largest, sum / static_cast<double>(count));
}

void check_same_tensors(const TensorSet& first, const TensorSet& other) {
  const auto refuse = [&](std::string_view name, const std::string& what) {
    return InvalidArgument(
        fmt::format("{} and {} have no mean: tensor {} {}", first.name(), other.name(), name, what));
  };
  for (const auto& [name, tensor] : first.tensors()) {
    const auto found = other.tensors().find(name);
    if (found == other.tensors().end()) throw refuse(name, "is only in the first");
    if (!same_form(*tensor, *found->second)) {
      throw refuse(name, fmt::format("is {} in the first, {} in the other", form_of(*tensor),
                                     form_of(*found->second)));
    }
  }
  for (const auto& [name, tensor] : other.tensors()) {
    if (!first.tensors().contains(name)) throw refuse(name, "is only in the other");
  }
}

}  // namespace

Comparison compare(const TensorSet& a, const TensorSet& b, double tolerance) {
  const auto values_a = a.read();
  const auto values_b = b.read();
  std::string text;
  std::size_t same = 0;
  std::size_t different = 0;
  const auto tell = [&](std::string_view name, const std::string& what) {
    text += fmt::format("{}: {}\n", name, what);
    ++different;
  };
  // Both maps are sorted by name.
  auto at_a = a.tensors().begin();
  auto at_b = b.tensors().begin();
  while (at_a != a.tensors().end() || at_b != b.tensors().end()) {
    if (at_b == b.tensors().end() || (at_a != a.tensors().end() && at_a->first < at_b->first)) {
      tell(at_a->first, fmt::format("only in {}", a.name()));
      ++at_a;
      continue;
    }
    if (at_a == a.tensors().end() || at_b->first < at_a->first) {
      tell(at_b->first, fmt::format("only in {}", b.name()));
      ++at_b;
      continue;
    }
    const auto& [name, tensor] = *at_a;
    if (!same_form(*tensor, *at_b->second)) {
      tell(name, fmt::format("{} and {}", form_of(*tensor), form_of(*at_b->second)));
    } else {
      const auto index = [](const TensorSet& set, auto at) {
        return static_cast<std::size_t>(std::distance(set.tensors().begin(), at));
      };
      const std::string what =
          difference(*tensor, values_a[index(a, at_a)], values_b[index(b, at_b)], tolerance);
      if (what.empty()) {
        ++same;
      } else {
        tell(name, what);
      }
    }
    ++at_a;
    ++at_b;
  }
  text += fmt::format("{} tensors are the same, {} differ\n", same, different);
  return {.text = std::move(text), .same = different == 0};
}

Average average(const std::vector<TensorSet>& sets) {
  for (const TensorSet& set : sets) check_same_tensors(sets.front(), set);
  const auto& tensors = sets.back().tensors();
  std::vector<std::vector<double>> sums(tensors.size());
  Average result;
  for (const TensorSet& set : sets) {
    result.values = set.read();  // the last one's stay
    std::size_t i = 0;
    for (const auto& [name, tensor] : tensors) {
      if (is_float(tensor->dtype)) {
        const auto values = doubles_of(*tensor, result.values[i]);
        sums[i].resize(values.size());
        for (std::size_t k = 0; k < values.size(); ++k) sums[i][k] += values[k];
      }
      ++i;
    }
  }
  std::size_t i = 0;
  for (const auto& [name, tensor] : tensors) {
    for (double& sum : sums[i]) sum /= static_cast<double>(sets.size());
    if (is_float(tensor->dtype)) from_doubles(tensor->dtype, sums[i], result.values[i]);
    result.tensors.push_back({std::string(name), tensor->dtype, tensor->shape, result.values[i]});
    ++i;
  }
  return result;
}

}  // namespace tandem::internal
