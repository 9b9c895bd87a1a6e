#include <fmt/format.h>
#include <torch/torch.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <map>

#include "base/meeting.h"
#include "comm/local/shared_memory.h"
#include "orders.h"
#include "resnet20.h"
#include "sections.h"
#include "strategy/strategy_impl.h"
#include "turns.h"

namespace tandem::bench {
namespace {

constexpr int kReplicas = 2;
constexpr std::int64_t kSmallest = std::int64_t{4} << 10;
constexpr std::int64_t kLargest = std::int64_t{64} << 20;
constexpr std::int64_t kBarFrom = std::int64_t{1} << 20;
constexpr double kBar = 0.60;

// Repeats in one turn: enough to be long beside the clock, few enough to be short beside a disturbance.
int repeats_for(std::int64_t bytes) {
  constexpr std::int64_t kBytesPerTurn = kLargest;
  constexpr std::int64_t kMost = 2000;
  return static_cast<int>(std::clamp<std::int64_t>(kBytesPerTurn / bytes, 2, kMost));
}

// One buffer for each replica. All zeros, so that sums of sums stay numbers.
class Buffers {
 public:
  Buffers(const Strategy& strategy, std::int64_t bytes)
      : strategy_(strategy), bytes_(bytes), repeats_(repeats_for(bytes)) {
    const auto floats = bytes / static_cast<std::int64_t>(sizeof(float));
    for (auto& buffer : buffers_)
      buffer = torch::empty({floats}).fill_(0);  // fill_: in memory before the first turn
  }

  // Bytes of one buffer per second, summed into both in place.
  double all_reduce() {
    internal::StrategyImpl& impl = strategy_.impl();
    return bytes_per_second([&](int replica) {
      impl.cross_device_ops().all_reduce(impl.meeting(), replica,
                                         buffers_[static_cast<std::size_t>(replica)]);
    });
  }

  // The same with a plain loop: each replica adds its half of the second buffer to the first.
  double plain_add() {
    internal::Meeting& meeting = strategy_.impl().meeting();
    float* to = buffers_[0].data_ptr<float>();
    const float* from = buffers_[1].data_ptr<float>();
    return bytes_per_second([&](int replica) {
      const auto [begin, end] = internal::share_of(buffers_[0].numel(), replica, kReplicas);
      meeting.arrive(replica, "plain_add");
      for (std::int64_t i = begin; i < end; ++i) to[i] += from[i];
      meeting.arrive(replica, "plain_add");
    });
  }

 private:
  // On replica 0's clock, from one meeting of the replicas to another: without the start of run().
  template <typename Fn>
  double bytes_per_second(Fn once) const {
    const PerReplica<double> seconds = strategy_.run([&](ReplicaContext& context) {
      const int replica = context.local_id();
      strategy_.impl().meeting().arrive(replica, "start");
      return seconds_of([&] {
        for (int i = 0; i < repeats_; ++i) once(replica);
      });
    });
    return static_cast<double>(bytes_) * repeats_ / seconds[0];
  }

  const Strategy& strategy_;
  std::int64_t bytes_;
  int repeats_;
  std::array<at::Tensor, kReplicas> buffers_;
};

std::string size_name(std::int64_t bytes) {
  return bytes < (1 << 20) ? fmt::format("{} KiB", bytes >> 10) : fmt::format("{} MiB", bytes >> 20);
}

}  // namespace

void all_reduce_speed(int rounds, Report& report) {
  constexpr double kGiga = 1e9;
  fmt::print(
      "\nAll-reduce between 2 replicas, beside a plain addition by 2 threads: GB/s of one replica's "
      "buffer\n");
  fmt::print("  {:<10} {:>12} {:>12} {:>8}   (middle half of {} rounds)\n", "size", "all-reduce", "addition",
             "ratio", rounds);
  std::fflush(stdout);
  const MirroredStrategy strategy = mirrored(kReplicas);
  for (std::int64_t bytes = kSmallest; bytes <= kLargest; bytes *= 4) {
    Buffers buffers(strategy, bytes);
    const auto rates = take_turns<double>(
        rounds, {[&] { return buffers.all_reduce(); }, [&] { return buffers.plain_add(); }});
    const Spread to_plain = ratio(rates[0], rates[1]);
    fmt::print("  {:<10} {:>12.3g} {:>12.3g} {:>8.2f}   ({:.2f} to {:.2f})\n", size_name(bytes),
               median(rates[0]) / kGiga, median(rates[1]) / kGiga, to_plain.median, to_plain.low,
               to_plain.high);
    std::fflush(stdout);
    report.add(fmt::format("all_reduce_{}_bytes_per_second", bytes), median(rates[0]));
    report.add(fmt::format("plain_add_{}_bytes_per_second", bytes), median(rates[1]));
    report.add(fmt::format("all_reduce_{}_to_plain_add", bytes), to_plain.median);
    if (bytes < kBarFrom) continue;
    report.add({.what = fmt::format("all-reduce of {} / plain addition", size_name(bytes)),
                .value = to_plain.median,
                .bar = kBar});
  }
}

void all_reduce_worker(const std::string& orders) {
  OrderSocket socket = OrderSocket::dial(orders, 0);
  const MirroredStrategy strategy = mirrored(kReplicas);
  std::map<std::int64_t, Buffers> sizes;
  // As often as above, whatever the order says: threads that meet need longer than processes that sleep until
  // each has a core.
  obey_orders(socket, [&](const Order& order) {
    Buffers& buffers = sizes.try_emplace(order.bytes, strategy, order.bytes).first->second;
    return Answer{.seconds = static_cast<double>(order.bytes) / buffers.all_reduce()};
  });
}

}  // namespace tandem::bench
