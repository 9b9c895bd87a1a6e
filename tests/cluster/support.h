#pragma once

#include <gtest/gtest.h>

#include <map>
#include <string>

#include "support/errors.h"
#include "tandem/cluster_resolver.h"
#include "tandem/error.h"

namespace tandem::testing_support {

// An environment with these variables alone. As in a real one, an empty value counts as none.
inline Environment variables(std::map<std::string, std::string> values) {
  return [values = std::move(values)](const char* name) -> std::optional<std::string> {
    const auto found = values.find(name);
    if (found == values.end() || found->second.empty()) return std::nullopt;
    return found->second;
  };
}

// The one line with which it refuses.
inline std::string refusal(const ClusterResolver& resolver) {
  const std::string line = message_of<InvalidArgument>([&] { resolver.resolve(); });
  EXPECT_EQ(line.find_first_of("\n\r\t"), std::string::npos) << line;
  EXPECT_LT(line.size(), 600u) << line;
  return line;
}

inline std::string refusal(const std::string& tf_config) {
  return refusal(TFConfigClusterResolver(tf_config));
}

inline ResolvedCluster accept(const ClusterResolver& resolver) {
  auto resolved = resolver.resolve();
  EXPECT_TRUE(resolved.has_value()) << resolver.name();
  return resolved.value_or(ResolvedCluster{});
}

inline ResolvedCluster accept(const std::string& tf_config) {
  return accept(TFConfigClusterResolver(tf_config));
}

inline ::testing::AssertionResult contains(const std::string& text, const std::string& part) {
  if (text.find(part) != std::string::npos) return ::testing::AssertionSuccess();
  return ::testing::AssertionFailure() << "no \"" << part << "\" in: " << text;
}

}  // namespace tandem::testing_support
