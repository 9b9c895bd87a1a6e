// A ps, or a worker that counts, for tests that kill one.
//
//   counting_ps_task ps INDEX PORT WORKERS FOLDER        until all workers have finished
//   counting_ps_task worker INDEX ADDRESSES STEPS TALLY  pushes 1 to its own element of every shard, STEPS
//   times
//
// TALLY is a file of two numbers, 64 bits each: pushes begun and pushes answered, in this and earlier
// processes.
#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstdio>
#include <sstream>
#include <string>
#include <thread>

#include "base/file_descriptor.h"
#include "ps/ps_client.h"
#include "ps/ps_service.h"
#include "ps_service/counting_model.h"
#include "ps_service/counting_store.h"

namespace {

using namespace tandem::internal;
using namespace tandem::internal::ps;
using namespace tandem::testing_support;
using namespace std::chrono_literals;

int run_ps(char** argv) {
  CountingStore store;
  PsService service(store, {.ps = std::stoi(argv[2]),
                            .port = std::stoi(argv[3]),
                            .cluster_id = kClusterId,
                            .key = kKey,
                            .workers = std::stoi(argv[4]),
                            .snapshot_folder = argv[5],
                            .snapshot_every = 300ms,
                            .snapshot_updates = 200});
  fmt::print("listens\n");
  std::fflush(stdout);
  return service.join(120s) ? 0 : 1;
}

int run_worker(char** argv) {
  const int worker = std::stoi(argv[2]);
  std::vector<std::string> addresses;
  std::istringstream list(argv[3]);
  for (std::string address; std::getline(list, address, ',');) addresses.push_back(address);
  const int steps = std::stoi(argv[4]);
  const FileDescriptor file(open(argv[5], O_RDWR | O_CREAT, 0666));
  if (!file || ftruncate(file.get(), 16) != 0) return 2;
  auto* tally = static_cast<std::atomic<std::uint64_t>*>(
      mmap(nullptr, 16, PROT_READ | PROT_WRITE, MAP_SHARED, file.get(), 0));

  const PlacementPlan plan = counting_plan(static_cast<int>(addresses.size()));
  PsClient client(plan, {.worker = worker,
                         .locate = at_addresses(addresses, kKey),
                         .cluster_id = kClusterId,
                         .connect_timeout = 60s,
                         .ps_outage = 60s});
  if (worker == 0) {
    const std::vector<float> zeros(kCountingElements);
    client.initialise("count", std::vector(plan.shards().size(), std::as_bytes(std::span(zeros))));
  }
  client.wait_until_ready();
  std::vector<float> ones(kCountingElements);
  ones[static_cast<std::size_t>(worker)] = 1;
  std::vector<Gradient> gradients;
  for (std::size_t i = 0; i < plan.shards().size(); ++i) {
    gradients.push_back({.shard = i, .values = std::as_bytes(std::span(ones))});
  }
  std::vector<float> pulled(kCountingElements);
  fmt::print("begins\n");
  std::fflush(stdout);
  for (std::uint64_t step = 0; step < static_cast<std::uint64_t>(steps); ++step) {
    ++tally[0];
    client.push_async({.step = step}, gradients).wait(60s);
    ++tally[1];
    const PullTarget target{.shard = step % plan.shards().size(),
                            .values = std::as_writable_bytes(std::span(pulled))};
    client.pull_async(step + 1, std::span(&target, 1)).wait(60s);
  }
  for (std::size_t i = 0; i < plan.shards().size(); ++i) {
    fmt::print("lost {} {}\n", i, client.lost_updates(i));
  }
  client.finish(60s);
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  try {
    if (argc == 6 && std::string(argv[1]) == "ps") return run_ps(argv);
    if (argc == 6 && std::string(argv[1]) == "worker") return run_worker(argv);
  } catch (const std::exception& error) {
    fmt::print(stderr, "{}\n", error.what());
  }
  return 1;
}
