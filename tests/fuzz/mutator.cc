#include "fuzz/mutator.h"

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <sstream>
#include <stdexcept>

#include "base/random.h"

namespace tandem::fuzz {
namespace {

class Random {
 public:
  explicit Random(std::uint64_t seed) : state_(seed) {}

  std::uint64_t bits() { return internal::mix(state_ += internal::kCounterStep); }
  // From 0 up to, but without, n.
  std::size_t below(std::size_t n) { return static_cast<std::size_t>(bits() % n); }

  const std::string& one_of(const std::vector<std::string>& all) { return all[below(all.size())]; }

 private:
  std::uint64_t state_;
};

std::string read(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

struct Piece {
  std::size_t begin;
  std::size_t length;
};

// A piece of at most 64 bytes: small enough for the rest to keep its form.
Piece some_piece(const std::string& text, Random& random) {
  const std::size_t begin = random.below(text.size() + 1);
  return {begin, random.below(std::min<std::size_t>(text.size() - begin, 64) + 1)};
}

void mutate(std::string& text, const std::vector<std::string>& samples, const std::vector<std::string>& words,
            Random& random) {
  const Piece here = some_piece(text, random);
  switch (random.below(8)) {
    case 0:  // flip a bit
      if (!text.empty()) text[random.below(text.size())] ^= static_cast<char>(1u << random.below(8));
      break;
    case 1:  // any byte at all
      text.insert(here.begin, 1, static_cast<char>(random.bits()));
      break;
    case 2:
      text.erase(here.begin, here.length);
      break;
    case 3:  // the same once more
      text.insert(here.begin, text.substr(here.begin, here.length));
      break;
    case 4: {  // splice in a piece of another sample
      const std::string& other = random.one_of(samples);
      const Piece there = some_piece(other, random);
      text.replace(here.begin, here.length, other, there.begin, there.length);
      break;
    }
    case 5: {  // another number
      const std::size_t digit = text.find_first_of("0123456789", here.begin);
      if (digit == std::string::npos) break;
      const std::size_t end = std::min(text.find_first_not_of("0123456789", digit), text.size());
      text.replace(digit, end - digit, std::to_string(random.bits() >> random.below(64)));
      break;
    }
    default:
      text.replace(here.begin, random.below(2) * here.length, random.one_of(words));
  }
}

}  // namespace

Mutator::Mutator(const std::string& corpus_folder) {
  std::vector<std::filesystem::path> paths;
  for (const auto& entry : std::filesystem::directory_iterator(corpus_folder)) paths.push_back(entry.path());
  std::sort(paths.begin(), paths.end());  // a folder has no order of its own, and runs must repeat
  for (const auto& path : paths) {
    if (path.filename() != "dictionary") {
      samples_.push_back(read(path));
      continue;
    }
    std::istringstream lines(read(path));
    for (std::string word; std::getline(lines, word);) words_.push_back(word);
  }
  if (samples_.empty() || words_.empty())
    throw std::runtime_error("no samples or no words in " + corpus_folder);
}

std::string Mutator::input(std::uint64_t seed, std::uint64_t run) const {
  Random random(internal::seed_of_stream(seed, run));
  std::string text = random.one_of(samples_);
  // Mostly one or two changes, so that inputs get past the first checks; now and then many.
  const std::size_t changes = random.below(8) == 0 ? random.below(32) : random.below(3);
  for (std::size_t i = 0; i < changes; ++i) mutate(text, samples_, words_, random);
  return text;
}

}  // namespace tandem::fuzz
