#pragma once

#include <fstream>
#include <nlohmann/json.hpp>
#include <stdexcept>
#include <string>

namespace tandem::testing_support {

// What TensorFlow itself answered: tests/oracles/<name>.json.
inline nlohmann::json read_oracle(const std::string& name) {
  const std::string path = std::string(TANDEM_TEST_FILES) + "/oracles/" + name + ".json";
  std::ifstream file(path);
  if (!file) throw std::runtime_error("cannot open " + path);
  return nlohmann::json::parse(file);
}

}  // namespace tandem::testing_support
