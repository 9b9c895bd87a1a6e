#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace tandem::fuzz {

// Makes inputs out of samples and the words of a dictionary. The same seed and run always give the same
// input, whatever ran before.
class Mutator {
 public:
  // Reads every file of the folder but "dictionary", which has one word a line. Throws if there is none.
  explicit Mutator(const std::string& corpus_folder);

  std::string input(std::uint64_t seed, std::uint64_t run) const;

 private:
  std::vector<std::string> samples_;
  std::vector<std::string> words_;
};

}  // namespace tandem::fuzz
