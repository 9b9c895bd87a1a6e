#include "train/checkpoint_name.h"

#include <fmt/format.h>

#include <algorithm>
#include <string_view>
#include <variant>
#include <vector>

#include "tandem/error.h"
#include "train/python_float.h"

namespace tandem::internal {
namespace {

using Value = std::variant<std::int64_t, double>;

// A pattern with the values for its fields.
class Pattern {
 public:
  Pattern(const std::string& text, const CheckpointMoment& moment, LogValues logs)
      : text_(text), moment_(moment), logs_(logs) {}

  std::string filled() const {
    std::string out;
    for (std::size_t at = 0; at < text_.size();) {
      const char c = text_[at];
      if (c != '{' && c != '}') {
        out += c;
        ++at;
      } else if (at + 1 < text_.size() && text_[at + 1] == c) {
        out += c;
        at += 2;
      } else {
        const std::size_t end = text_.find('}', at);
        if (c == '}' || end == std::string::npos)
          refuse("has a brace without its other half: write {{ or }} for one");
        out += field(std::string_view(text_).substr(at + 1, end - at - 1));
        at = end + 1;
      }
    }
    return out;
  }

 private:
  // "val_loss:.2f"
  std::string field(std::string_view field) const {
    const std::size_t colon = std::min(field.find(':'), field.size());
    const std::string name(field.substr(0, colon));
    const std::string format(field.substr(std::min(colon + 1, field.size())));
    Value value = find(name);
    const auto* number = std::get_if<double>(&value);
    if (format.empty() && number) return python_float(*number);
    // Python takes whole numbers where it wants others.
    if (!number && format.find_first_of("eEfFgG") != std::string::npos) {
      value = static_cast<double>(std::get<std::int64_t>(value));
    }
    try {
      return std::visit([&](auto held) { return fmt::format(fmt::runtime("{:" + format + "}"), held); },
                        value);
    } catch (const fmt::format_error& error) {
      refuse(fmt::format("has the field {{{}}}: {}", field, error.what()));
    }
  }

  Value find(const std::string& name) const {
    // A metric of that name comes before the number of the batch, as in Keras.
    for (const auto& [log, value] : logs_) {
      if (log == name && name != "epoch") return value;
    }
    if (name == "epoch") return moment_.epoch + 1;
    if (name == "batch" && moment_.batch) return *moment_.batch + 1;
    std::string known = "epoch";
    if (moment_.batch) known += ", batch";
    for (const auto& [log, value] : logs_) known += ", " + log;
    refuse(fmt::format("has the field {{{}}}, which there is not; there are: {}", name, known));
  }

  [[noreturn]] void refuse(const std::string& what) const {
    throw InvalidArgument(fmt::format("the checkpoint's name \"{}\" {}", text_, what));
  }

  const std::string& text_;
  const CheckpointMoment& moment_;
  LogValues logs_;
};

}  // namespace

std::string checkpoint_name(const std::string& pattern, const CheckpointMoment& moment, LogValues logs) {
  return Pattern(pattern, moment, logs).filled();
}

}  // namespace tandem::internal
