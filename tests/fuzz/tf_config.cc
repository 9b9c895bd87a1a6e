// Any text as TF_CONFIG: it is refused with one line, or what was read prints to JSON that reads the same.
#include "cluster/tf_config.h"

#include <cstdint>
#include <string>

#include "fuzz/require.h"
#include "tandem/error.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace tandem;
  using fuzz::require;
  ResolvedCluster resolved;
  try {
    resolved = internal::read_tf_config(std::string(reinterpret_cast<const char*>(data), size), "TF_CONFIG");
  } catch (const InvalidArgument& error) {
    const std::string line = error.what();
    require(line.find_first_of("\n\r\t") == std::string::npos, "a refusal is one line");
    require(line.size() < 4096, "a refusal is short");
    require(line.starts_with("TF_CONFIG: "), "a refusal names its source");
    return -1;
  }
  require(resolved.cluster.empty() == !resolved.task, "a cluster has a task, and only a cluster");
  // The answers must exist whatever was accepted.
  resolved.worker_count();
  resolved.id_in_cluster();
  resolved.master();
  for (const auto& task : resolved.cluster.tasks())
    parse_address(resolved.cluster.task_address(task), "address");

  const std::string text = internal::make_tf_config(resolved);
  const ResolvedCluster again = internal::read_tf_config(text, "TF_CONFIG");
  require(again.cluster == resolved.cluster, "the cluster is the same after printing");
  require(again.cluster.id() == resolved.cluster.id(), "its id is the same after printing");
  require(again.task == resolved.task, "the task is the same after printing");
  require(internal::make_tf_config(again) == text, "printing twice gives the same text");
  return 0;
}
