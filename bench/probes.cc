#include <fmt/format.h>
#include <torch/torch.h>

#include <cstdio>
#include <fstream>
#include <sstream>
#include <string>

#include "child_process.h"
#include "resnet20.h"
#include "sections.h"
#include "tandem/data/cifar10.h"
#include "tandem/error.h"
#include "turns.h"

namespace tandem::bench {
namespace {

constexpr int kReplicas = 2;
constexpr std::int64_t kFirstStepRows = 16;
constexpr std::int64_t kMemoryRows = 128;
constexpr int kMemorySteps = 3;
constexpr int kStarts = 5;
constexpr int kMemoryRuns = 3;
constexpr double kStartBar = 1.5;

// A field of /proc/self/status, which has kB.
double memory_field(const std::string& field) {
  std::ifstream file("/proc/self/status");
  for (std::string line; std::getline(file, line);) {
    if (line.starts_with(field + ":")) return std::stod(line.substr(field.size() + 1));
  }
  throw NotFound(fmt::format("/proc/self/status has no field {}", field));
}

struct Memory {
  double growth = 0;  // from before the model was made
  double peak = 0;    // of the whole process
};

// In MB; each run in a process of its own, since a peak never falls.
Memory memory_with(int replicas, bool central = false) {
  constexpr double kKiloBytesPerMegaByte = 1024;
  std::vector<std::string> probe = {kMemoryProbe, std::to_string(replicas)};
  if (central) probe.push_back(kCentralProbe);
  std::vector<double> growths;
  std::vector<double> peaks;
  for (int run = 0; run < kMemoryRuns; ++run) {
    double before = 0;
    double peak = 0;
    std::istringstream(run_this_program(probe).text) >> before >> peak;
    growths.push_back((peak - before) / kKiloBytesPerMegaByte);
    peaks.push_back(peak / kKiloBytesPerMegaByte);
  }
  return {median(growths), median(peaks)};
}

}  // namespace

void first_step(Report& report) {
  fmt::print(
      "\nStart of the process to the end of its first step: ResNet-{}, MirroredStrategy, 2 replicas, {} "
      "each\n",
      kResNetSize, kFirstStepRows);
  std::fflush(stdout);
  std::vector<double> seconds;
  for (int i = 0; i < kStarts; ++i) seconds.push_back(run_this_program({kFirstStepProbe}).seconds_to_first);
  const Spread start = spread(seconds);
  fmt::print("  {:<52} {:>8.2f}   ({:.2f} to {:.2f})\n", fmt::format("seconds, median of {}", kStarts),
             start.median, start.low, start.high);
  report.add("start_to_first_step_seconds", start.median);
  report.add({.what = "start of the process to its first step",
              .value = start.median,
              .wanted = Wanted::kBelow,
              .bar = kStartBar,
              .unit = " s"});
}

void first_step_probe() {
  const MirroredStrategy strategy = mirrored(kReplicas);
  Model model = make_resnet20(strategy);
  constexpr std::int64_t kImages = 50000;
  const Dataset train = data::synthetic_cifar10(data::Split::kTrain, kImages)
                            .shuffle(kImages)
                            .map(data::augment_cifar)
                            .batch(kReplicas * kFirstStepRows);
  auto batches = strategy.distribute(train);
  model.train_step(batches.next());
  fmt::print("stepped\n");
  std::fflush(stdout);
}

void memory(Report& report) {
  fmt::print("\nPeak memory: ResNet-{}, {} images per replica, {} steps, median of {} processes\n",
             kResNetSize, kMemoryRows, kMemorySteps, kMemoryRuns);
  std::fflush(stdout);
  const Memory one = memory_with(1);
  const Memory two = memory_with(kReplicas);
  const Memory central = memory_with(kReplicas, /*central=*/true);
  const auto line = [&](const char* what, const Memory& memory) {
    fmt::print("  {:<40} {:>8.0f} MB   ({:.0f} MB with the program and its libraries)\n", what, memory.growth,
               memory.peak);
  };
  line("1 replica", one);
  line("MirroredStrategy, 2 replicas", two);
  line("CentralStorageStrategy, 2 replicas", central);
  fmt::print("  {:<40} {:>8.0f} MB\n", "each further replica", two.growth - one.growth);
  report.add("memory_1_replica_mb", one.growth);
  report.add("memory_2_replicas_mb", two.growth);
  report.add("memory_central_storage_2_replicas_mb", central.growth);
  report.add("memory_1_replica_process_mb", one.peak);
  report.add("memory_2_replicas_process_mb", two.peak);
  report.add("memory_further_replica_mb", two.growth - one.growth);
}

void memory_probe(int replicas, bool central) {
  const DistributedBatch batch = random_batch(replicas, kMemoryRows, replicas * kMemoryRows);
  const double before = memory_field("VmRSS");
  Model model = central ? make_resnet20(central_storage(replicas)) : make_resnet20(mirrored(replicas));
  for (int i = 0; i < kMemorySteps; ++i) model.train_step(batch);
  fmt::print("{} {}\n", before, memory_field("VmHWM"));
  std::fflush(stdout);
}

}  // namespace tandem::bench
