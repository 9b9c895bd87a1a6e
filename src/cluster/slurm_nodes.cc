#include "cluster/slurm_nodes.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <string_view>

#include "cluster/text.h"
#include "tandem/error.h"

namespace tandem::internal {
namespace {

// More than Slurm itself allows a job to have; a few bytes of list must not expand to gigabytes.
constexpr std::size_t kMostNodes = 65'536;

class NodeList {
 public:
  NodeList(const std::string& list, const std::string& variable)
      : text_(list), list_(list), variable_(variable) {}

  std::vector<std::string> expand() {
    std::vector<std::string> all;
    for (bool more = true; more;) {
      const auto names = entry();
      all.insert(all.end(), names.begin(), names.end());
      limit(all.size());
      more = take(',');
    }
    if (!text_.empty()) throw refuse("a bracket is closed that was not opened");
    return all;
  }

 private:
  InvalidArgument refuse(const std::string& why) const {
    return InvalidArgument(
        fmt::format("{} is {}: {}; expected a list such as \"n[01-03,7],m5\"", variable_, quote(list_), why));
  }

  void limit(std::size_t names) const {
    if (names > kMostNodes) throw refuse(fmt::format("more than {} nodes", kMostNodes));
  }

  bool take(char c) {
    if (text_.empty() || text_.front() != c) return false;
    text_.remove_prefix(1);
    return true;
  }

  std::string_view take_until(std::string_view stops) {
    const std::string_view piece = text_.substr(0, text_.find_first_of(stops));
    text_.remove_prefix(piece.size());
    return piece;
  }

  // Text and brackets by turns, up to a comma: every combination of what they stand for.
  std::vector<std::string> entry() {
    std::vector<std::string> names = {""};
    bool anything = false;
    while (!text_.empty() && text_.front() != ',' && text_.front() != ']') {
      anything = true;
      std::vector<std::string> pieces;
      if (take('[')) {
        pieces = ranges();
      } else {
        pieces.emplace_back(take_until(",[]"));
      }
      limit(names.size() * pieces.size());
      std::vector<std::string> longer;
      for (const auto& name : names) {
        for (const auto& piece : pieces) longer.push_back(name + piece);
      }
      names = std::move(longer);
    }
    if (!anything) throw refuse("a name is missing");
    if (!is_printable_name(names.front())) throw refuse("a name has a character that cannot be seen");
    return names;
  }

  // What follows "[", with the bracket that closes it.
  std::vector<std::string> ranges() {
    std::vector<std::string> numbers;
    for (bool more = true; more;) {
      const std::string_view first = number();
      const std::string_view last = take('-') ? number() : first;
      const auto low = parse_int(first);
      const auto high = parse_int(last);
      if (!low || !high || *low > *high) {
        throw refuse(fmt::format("{} is not a range", quote(fmt::format("{}-{}", first, last))));
      }
      limit(numbers.size() + static_cast<std::size_t>(*high - *low) + 1);
      for (int i = *low; i <= *high; ++i) numbers.push_back(fmt::format("{:0{}}", i, first.size()));
      more = take(',');
    }
    if (!take(']')) throw refuse("a bracket is not closed");
    return numbers;
  }

  std::string_view number() {
    const std::string_view digits = text_.substr(0, text_.find_first_not_of("0123456789"));
    if (digits.empty() || digits.size() > 9) throw refuse("a number is missing or too long in the brackets");
    text_.remove_prefix(digits.size());
    return digits;
  }

  std::string_view text_;  // what is left to read
  const std::string& list_;
  const std::string& variable_;
};

}  // namespace

std::vector<std::string> expand_nodes(const std::string& list, const std::string& variable) {
  return NodeList(list, variable).expand();
}

std::vector<int> expand_tasks_per_node(const std::string& list, const std::string& variable) {
  const auto refuse = [&](const std::string& piece) {
    return InvalidArgument(
        fmt::format("{} is {}: {} is not a number of tasks; expected a list such as \"2(x3),1\"", variable,
                    quote(list), quote(piece)));
  };
  std::vector<int> counts;
  for (const auto& piece : split_list(list)) {
    std::string_view rest = piece;
    int times = 1;
    if (const auto bracket = rest.find("(x"); bracket != std::string_view::npos) {
      const auto parsed =
          rest.back() == ')' ? parse_int(rest.substr(bracket + 2, rest.size() - bracket - 3)) : std::nullopt;
      if (!parsed || *parsed < 1) throw refuse(piece);
      times = *parsed;
      rest = rest.substr(0, bracket);
    }
    const auto count = parse_int(rest);
    if (!count || *count < 1 || counts.size() + static_cast<std::size_t>(times) > kMostNodes)
      throw refuse(piece);
    counts.insert(counts.end(), static_cast<std::size_t>(times), *count);
  }
  return counts;
}

}  // namespace tandem::internal
