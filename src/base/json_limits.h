#pragma once

#include <set>
#include <string>
#include <vector>

namespace tandem::internal {

struct JsonTooDeep {};
struct JsonKeyTwice {
  std::string key;
};

// Limits that the JSON parser does not have: depth, and keys given twice, of which it would silently take the
// last. A callback of nlohmann's parse(); throws one of the two above. The parser copies its callback, so
// give it a lambda that points here.
template <typename Json>
class JsonLimits {
 public:
  explicit JsonLimits(int deepest) : deepest_(deepest) {}

  bool operator()(int depth, typename Json::parse_event_t event, const Json& value) {
    using Event = typename Json::parse_event_t;
    if (event == Event::object_start || event == Event::array_start) {
      if (depth >= deepest_) throw JsonTooDeep{};
      if (event == Event::object_start) keys_.emplace_back();
    } else if (event == Event::object_end) {
      keys_.pop_back();
    } else if (event == Event::key) {
      const auto& key = value.template get_ref<const std::string&>();
      if (!keys_.back().insert(key).second) throw JsonKeyTwice{key};
    }
    return true;
  }

 private:
  int deepest_;
  std::vector<std::set<std::string>> keys_;
};

}  // namespace tandem::internal
