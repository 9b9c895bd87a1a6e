#include "data/noted_texts.h"

#include <mutex>
#include <shared_mutex>
#include <unordered_map>

namespace tandem::internal {
namespace {

constexpr std::size_t kMostTexts = 4096;
constexpr std::size_t kLongestText = 100;

struct NotedTexts {
  std::shared_mutex mutex;
  std::unordered_map<std::int64_t, std::string> by_fingerprint;
};

NotedTexts& noted_texts() {
  static NotedTexts texts;
  return texts;
}

}  // namespace

void note_text(std::int64_t fingerprint, std::string_view text) {
  if (text.size() > kLongestText) return;
  NotedTexts& texts = noted_texts();
  {
    const std::shared_lock lock(texts.mutex);
    if (texts.by_fingerprint.size() >= kMostTexts || texts.by_fingerprint.contains(fingerprint)) return;
  }
  const std::lock_guard lock(texts.mutex);
  texts.by_fingerprint.emplace(fingerprint, text);
}

std::optional<std::string> noted_text(std::int64_t fingerprint) {
  NotedTexts& texts = noted_texts();
  const std::shared_lock lock(texts.mutex);
  const auto found = texts.by_fingerprint.find(fingerprint);
  if (found == texts.by_fingerprint.end()) return {};
  return found->second;
}

}  // namespace tandem::internal
