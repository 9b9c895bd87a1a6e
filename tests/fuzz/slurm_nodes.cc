// Slurm's two lists, a line each: refused with one line, or expanded to names and numbers that stand for
// themselves; and a cluster made of them reads back the same.
#include "cluster/slurm_nodes.h"

#include <fmt/format.h>

#include <cstdint>
#include <numeric>
#include <string>

#include "cluster/tf_config.h"
#include "fuzz/require.h"
#include "tandem/error.h"

namespace {

using namespace tandem;
using fuzz::require;

// What fn returns, or an empty list if it refuses.
template <typename Fn>
auto unless_refused(Fn&& fn) -> decltype(fn()) {
  try {
    return fn();
  } catch (const InvalidArgument& error) {
    require(std::string(error.what()).find_first_of("\n\r\t") == std::string::npos, "a refusal is one line");
    return {};
  }
}

std::optional<ResolvedCluster> resolve(const std::string& nodes, const std::string& per_node,
                                       std::int64_t tasks, bool cyclic) {
  const Environment environment = [&](const char* name) -> std::optional<std::string> {
    const std::string_view variable = name;
    if (variable == "SLURM_PROCID") return "0";
    if (variable == "SLURM_STEP_NUM_TASKS") return std::to_string(tasks);
    if (variable == "SLURM_STEP_NODELIST") return nodes;
    if (variable == "SLURM_STEP_TASKS_PER_NODE") return per_node;
    if (variable == "SLURM_DISTRIBUTION" && cyclic) return "cyclic";
    return std::nullopt;
  };
  return unless_refused([&] { return SlurmClusterResolver({.environment = environment}).resolve(); });
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string text(reinterpret_cast<const char*>(data), size);
  const auto newline = std::min(text.find('\n'), text.size());
  const std::string node_list = text.substr(0, newline);
  const std::string task_list = text.substr(std::min(newline + 1, text.size()));

  const auto nodes = unless_refused([&] { return internal::expand_nodes(node_list, "NODES"); });
  const auto counts = unless_refused([&] { return internal::expand_tasks_per_node(task_list, "TASKS"); });
  if (!nodes.empty()) {
    require(internal::expand_nodes(fmt::format("{}", fmt::join(nodes, ",")), "NODES") == nodes,
            "expanded names stand for themselves");
  }
  if (!counts.empty()) {
    require(internal::expand_tasks_per_node(fmt::format("{}", fmt::join(counts, ",")), "TASKS") == counts,
            "expanded numbers stand for themselves");
  }
  const auto tasks = std::accumulate(counts.begin(), counts.end(), std::int64_t{0});
  // Slurm has no more tasks than this, and more would only test patience.
  if (nodes.empty() || counts.empty() || tasks > 2000) return -1;
  const auto resolved = resolve(node_list, task_list, tasks, size % 2 == 0);
  if (!resolved) return -1;
  require(resolved->worker_count() == tasks, "every task is a worker");
  const auto again = internal::read_tf_config(internal::make_tf_config(*resolved), "TF_CONFIG");
  require(again.cluster == resolved->cluster && again.task == resolved->task,
          "the cluster reads back the same");
  return 0;
}
