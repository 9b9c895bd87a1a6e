#include "cluster/visible_cpus.h"

#include <fmt/format.h>
#include <sched.h>

#include <charconv>

#include "tandem/error.h"

namespace tandem::internal {
namespace {

constexpr const char* kVariable = "TANDEM_VISIBLE_CPUS";

[[noreturn]] void complain(const std::string& text) {
  throw InvalidArgument(fmt::format("{} is \"{}\": expected cores such as 0 or 0,2-3", kVariable, text));
}

// A number at the beginning, which is taken off.
int take_number(std::string_view& rest, const std::string& text) {
  int number = 0;
  const auto [end, error] = std::from_chars(rest.data(), rest.data() + rest.size(), number);
  if (error != std::errc() || number < 0 || number >= CPU_SETSIZE) complain(text);
  rest.remove_prefix(static_cast<std::size_t>(end - rest.data()));
  return number;
}

bool take(std::string_view& rest, char c) {
  if (rest.empty() || rest.front() != c) return false;
  rest.remove_prefix(1);
  return true;
}

}  // namespace

std::set<int> parse_cpu_list(const std::string& text) {
  std::set<int> cpus;
  std::string_view rest = text;
  do {
    const int first = take_number(rest, text);
    const int last = take(rest, '-') ? take_number(rest, text) : first;
    if (last < first) complain(text);
    for (int cpu = first; cpu <= last; ++cpu) cpus.insert(cpu);
  } while (take(rest, ','));
  if (!rest.empty()) complain(text);
  return cpus;
}

void keep_to_visible_cpus(const Environment& environment) {
  const auto text = environment(kVariable);
  if (!text) return;
  cpu_set_t ours;
  CPU_ZERO(&ours);
  if (sched_getaffinity(0, sizeof ours, &ours) != 0) return;
  cpu_set_t wanted;
  CPU_ZERO(&wanted);
  for (const int cpu : parse_cpu_list(*text)) {
    if (!CPU_ISSET(cpu, &ours)) {
      std::string there;
      for (int other = 0; other < CPU_SETSIZE; ++other) {
        if (CPU_ISSET(other, &ours)) there += fmt::format("{}{}", there.empty() ? "" : ",", other);
      }
      throw InvalidArgument(
          fmt::format("{} is \"{}\": this process has no core {}, only {}", kVariable, *text, cpu, there));
    }
    CPU_SET(cpu, &wanted);
  }
  sched_setaffinity(0, sizeof wanted, &wanted);
}

}  // namespace tandem::internal
