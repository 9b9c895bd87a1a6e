#pragma once

#include <string>

#include "cli/ps_tellers.h"
#include "rpc/control.pb.h"
#include "tandem/cluster_spec.h"

namespace tandem::internal {

// What a peer wrote, fit for a terminal: one line, without control characters, not too long.
std::string printable(std::string text);

// A line for each task, under a heading, and one that says who tells this. Then, where there are ps tasks,
// one for each of those.
std::string text_table(const ClusterSpec& cluster, const rpc::Table& table, const PsTable& ps = {});

// The same as one line of JSON.
std::string json_table(const ClusterSpec& cluster, const rpc::Table& table, const PsTable& ps = {});

// Whether the task that sent the table had come to its end, well or not: a run ends for all tasks together.
bool tells_the_end(const rpc::Table& table);

// "2 done", "worker:1 dead, 1 stopped": how many are in which state, and who is lost.
std::string states_in_short(const rpc::Table& table);

}  // namespace tandem::internal
