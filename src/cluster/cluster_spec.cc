#include "tandem/cluster_spec.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <ostream>
#include <tuple>

#include "base/sha256.h"
#include "cluster/text.h"
#include "tandem/error.h"

namespace tandem {
namespace {

using internal::quote;

std::map<int, std::string> numbered(const auto& addresses) {
  std::map<int, std::string> tasks;
  for (const auto& address : addresses) tasks.emplace(static_cast<int>(tasks.size()), address);
  return tasks;
}

bool is_dense(const std::map<int, std::string>& tasks) {
  return tasks.empty() || tasks.rbegin()->first == static_cast<int>(tasks.size()) - 1;
}

ClusterSpec::Jobs sorted(ClusterSpec::Jobs jobs) {
  std::sort(jobs.begin(), jobs.end(), [](const auto& a, const auto& b) { return a.first < b.first; });
  return jobs;
}

// The job's place in ClusterSpec::tasks().
int place_of(const std::string& job) {
  constexpr std::array<const char*, 5> kPlaces = {"chief", "master", "worker", "ps", "evaluator"};
  return static_cast<int>(std::find(kPlaces.begin(), kPlaces.end(), job) - kPlaces.begin());
}

// As Python prints a string.
std::string single_quoted(const std::string& text) {
  std::string out = "'";
  for (const char c : text) {
    if (c == '\'' || c == '\\') out += '\\';
    out += c;
  }
  return out + "'";
}

}  // namespace

std::string TaskId::name() const {
  return fmt::format("{}:{}", type, index);
}

JobTasks::JobTasks(std::initializer_list<const char*> addresses) : addresses_(numbered(addresses)) {}
JobTasks::JobTasks(const std::vector<std::string>& addresses) : addresses_(numbered(addresses)) {}
JobTasks::JobTasks(std::map<int, std::string> sparse) : addresses_(std::move(sparse)) {}

ClusterSpec::ClusterSpec(std::initializer_list<Jobs::value_type> jobs) : ClusterSpec(Jobs(jobs)) {}

ClusterSpec::ClusterSpec(Jobs jobs) : jobs_(std::move(jobs)) {
  const Jobs by_name = sorted(jobs_);
  const auto twice = std::adjacent_find(by_name.begin(), by_name.end(),
                                        [](const auto& a, const auto& b) { return a.first == b.first; });
  if (twice != by_name.end()) {
    throw InvalidArgument(fmt::format("the cluster names job {} twice", quote(twice->first)));
  }
  for (const auto& [job, tasks] : jobs_) {
    if (!tasks.addresses().empty() && tasks.addresses().begin()->first < 0) {
      throw InvalidArgument(fmt::format("cluster.{} has the task index {}: indices begin at 0", job,
                                        tasks.addresses().begin()->first));
    }
  }
}

std::vector<std::string> ClusterSpec::jobs() const {
  std::vector<std::string> names;
  for (const auto& [job, tasks] : jobs_) names.push_back(job);
  return names;
}

bool ClusterSpec::has_job(const std::string& job) const {
  return std::any_of(jobs_.begin(), jobs_.end(), [&](const auto& entry) { return entry.first == job; });
}

const JobTasks& ClusterSpec::tasks_of(const std::string& job) const {
  std::vector<std::string> names;
  for (const auto& [name, tasks] : jobs_) {
    if (name == job) return tasks;
    names.push_back(quote(name));
  }
  throw InvalidArgument(fmt::format("the cluster has no job {}{}; its jobs: {}", quote(job),
                                    internal::did_you_mean(job, jobs()),
                                    names.empty() ? "none" : fmt::format("{}", fmt::join(names, ", "))));
}

int ClusterSpec::num_tasks(const std::string& job) const {
  return static_cast<int>(tasks_of(job).addresses().size());
}

std::vector<int> ClusterSpec::task_indices(const std::string& job) const {
  std::vector<int> indices;
  for (const auto& [index, address] : tasks_of(job).addresses()) indices.push_back(index);
  return indices;
}

std::vector<std::optional<std::string>> ClusterSpec::job_tasks(const std::string& job) const {
  std::vector<std::optional<std::string>> tasks;
  for (const auto& [index, address] : tasks_of(job).addresses()) {
    tasks.resize(static_cast<std::size_t>(index));
    tasks.emplace_back(address);
  }
  return tasks;
}

const std::string& ClusterSpec::task_address(const std::string& job, int index) const {
  const auto& tasks = tasks_of(job).addresses();
  const auto found = tasks.find(index);
  if (found != tasks.end()) return found->second;
  if (is_dense(tasks) && !tasks.empty()) {
    throw InvalidArgument(fmt::format("job {} has no task {}: it has {} ({} to {})", quote(job), index,
                                      tasks.size(), 0, tasks.size() - 1));
  }
  throw InvalidArgument(fmt::format("job {} has no task {}: its tasks are {}", quote(job), index,
                                    fmt::join(task_indices(job), ", ")));
}

std::vector<TaskId> ClusterSpec::tasks() const {
  Jobs in_order = jobs_;
  std::sort(in_order.begin(), in_order.end(), [](const auto& a, const auto& b) {
    return std::tuple(place_of(a.first), a.first) < std::tuple(place_of(b.first), b.first);
  });
  std::vector<TaskId> all;
  for (const auto& [job, tasks] : in_order) {
    for (const auto& [index, address] : tasks.addresses()) all.push_back({job, index});
  }
  return all;
}

std::string ClusterSpec::to_json() const {
  auto json = nlohmann::ordered_json::object();
  for (const auto& [job, tasks] : jobs_) {
    auto& entry = json[job] =
        is_dense(tasks.addresses()) ? nlohmann::ordered_json::array() : nlohmann::ordered_json::object();
    for (const auto& [index, address] : tasks.addresses()) {
      if (entry.is_array()) {
        entry.push_back(address);
      } else {
        entry[std::to_string(index)] = address;
      }
    }
  }
  return json.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace);
}

std::string ClusterSpec::id() const {
  internal::Sha256 digest;
  // Each text is preceded by its length, so that different clusters never give the same bytes.
  const auto add_number = [&](std::uint64_t value) {
    std::array<unsigned char, 8> bytes{};
    for (auto& byte : bytes) {
      byte = static_cast<unsigned char>(value);
      value >>= 8;
    }
    digest.update(bytes.data(), bytes.size());
  };
  const auto add_text = [&](const std::string& text) {
    add_number(text.size());
    digest.update(text.data(), text.size());
  };
  for (const auto& [job, tasks] : sorted(jobs_)) {
    add_text(job);
    add_number(tasks.addresses().size());
    for (const auto& [index, address] : tasks.addresses()) {
      add_number(static_cast<std::uint64_t>(index));
      add_text(address);
    }
  }
  return digest.hex().substr(0, 32);
}

bool operator==(const ClusterSpec& a, const ClusterSpec& b) {
  return sorted(a.jobs_) == sorted(b.jobs_);
}

std::ostream& operator<<(std::ostream& out, const ClusterSpec& cluster) {
  std::vector<std::string> names = cluster.jobs();
  std::sort(names.begin(), names.end());
  out << "ClusterSpec({";
  for (const char* job_separator = ""; const auto& job : names) {
    const auto indices = cluster.task_indices(job);
    const bool dense = indices.empty() || indices.back() == static_cast<int>(indices.size()) - 1;
    out << job_separator << single_quoted(job) << ": " << (dense ? "[" : "{");
    job_separator = ", ";
    for (const char* separator = ""; const int index : indices) {
      out << separator;
      if (!dense) out << index << ": ";
      out << single_quoted(cluster.task_address(job, index));
      separator = ", ";
    }
    out << (dense ? "]" : "}");
  }
  return out << "})";
}

}  // namespace tandem
