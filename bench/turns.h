#pragma once

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <functional>
#include <thread>
#include <vector>

namespace tandem::bench {

// Seconds that fn takes.
template <typename Fn>
double seconds_of(Fn fn) {
  const auto start = std::chrono::steady_clock::now();
  fn();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

// What the variants measured: by variant, then by round.
template <typename Sample>
using Samples = std::vector<std::vector<Sample>>;

// Lets the variants measure in turn, in many short rounds, so that whatever else the machine does meanwhile
// falls on all of them alike. Each round begins with another variant; once all have begun one, they go round
// the other way, so that none always follows the same one. A first round, to warm up, does not count.
template <typename Sample>
Samples<Sample> take_turns(int rounds, const std::vector<std::function<Sample()>>& variants) {
  // OpenMP's threads spin for a moment after their work; nobody is to share a core with them.
  constexpr std::chrono::milliseconds kPause{10};
  const std::size_t count = variants.size();
  Samples<Sample> samples(count);
  for (std::size_t round = 0; round <= static_cast<std::size_t>(rounds); ++round) {
    const bool backwards = round / count % 2 == 1;
    for (std::size_t turn = 0; turn < count; ++turn) {
      const std::size_t variant = (round + (backwards ? count - turn : turn)) % count;
      std::this_thread::sleep_for(kPause);
      const Sample sample = variants[variant]();
      if (round > 0) samples[variant].push_back(sample);
    }
  }
  return samples;
}

// The middle of some measurements, and the bounds of their middle half.
struct Spread {
  double median = 0;
  double low = 0;
  double high = 0;
};

inline Spread spread(std::vector<double> values) {
  if (values.empty()) return {};
  std::sort(values.begin(), values.end());
  const auto at = [&](double part) {
    const double place = part * static_cast<double>(values.size() - 1);
    const auto below = static_cast<std::size_t>(place);
    const std::size_t above = std::min(below + 1, values.size() - 1);
    return values[below] + (place - static_cast<double>(below)) * (values[above] - values[below]);
  };
  return {at(0.5), at(0.25), at(0.75)};
}

inline double median(std::vector<double> values) {
  return spread(std::move(values)).median;
}

// Of a / b, round by round: what slows a whole round down cancels out.
inline Spread ratio(const std::vector<double>& a, const std::vector<double>& b) {
  std::vector<double> quotients(a.size());
  std::transform(a.begin(), a.end(), b.begin(), quotients.begin(), std::divides<>());
  return spread(std::move(quotients));
}

}  // namespace tandem::bench
