#include <fmt/format.h>
#include <torch/torch.h>
#include <torch/version.h>

#include <array>
#include <cstdio>
#include <iostream>
#include <map>
#include <memory>
#include <string>
#include <utility>

#include "resnet20.h"
#include "sections.h"
#include "tandem/error.h"
#include "tandem/losses.h"
#include "tandem/models/resnet.h"
#include "tandem/multi_worker_mirrored_strategy.h"
#include "tandem/one_device_strategy.h"
#include "tandem/optimizers.h"
#include "tandem/parameter_server_strategy.h"
#include "train/optimizer_binding.h"
#include "turns.h"

namespace tandem::bench {
namespace {

constexpr int kReplicas = 2;

// What one size of batch should come to.
struct Size {
  std::int64_t rows;  // of each replica
  int steps;          // in one turn
  double exchange_bar;
  double share_bar;  // 0: none
};
constexpr std::array kSizes{
    Size{.rows = 128, .steps = 1, .exchange_bar = 0.96, .share_bar = 0.02},
    Size{.rows = 16, .steps = 4, .exchange_bar = 0.93, .share_bar = 0},
};

enum Variant : std::size_t { kOneThread, kTwoThreads, kNoExchange, kMirrored, kCentralStorage, kProducts };

struct Turn {
  double seconds = 0;
  internal::UpdateTimes spent = {};  // on the exchange; the mean over the replicas
};

// A step of Model under some strategy.
class ModelSteps {
 public:
  ModelSteps(const Strategy& strategy, std::int64_t rows)
      : ModelSteps(strategy, make_resnet20(strategy), rows) {}
  ModelSteps(const Strategy& strategy, Model model, std::int64_t rows)
      : replicas_(static_cast<int>(strategy.worker_devices().size())),
        model_(std::move(model)),
        batch_(random_batch(replicas_, rows, strategy.num_replicas_in_sync() * rows)) {}

  Turn operator()(int steps) {
    const internal::UpdateTimes before = spent();
    const double seconds = seconds_of([&] {
      for (int i = 0; i < steps; ++i) model_.train_step(batch_);
    });
    const internal::UpdateTimes after = spent();
    return {seconds, {after.wait - before.wait, after.reduce - before.reduce, after.update - before.update}};
  }

 private:
  internal::UpdateTimes spent() const {
    internal::UpdateTimes mean;
    for (int replica = 0; replica < replicas_; ++replica) {
      const internal::UpdateTimes& times = model_.optimizer().binding().updater->times(replica);
      mean.wait += times.wait / replicas_;
      mean.reduce += times.reduce / replicas_;
      mean.update += times.update / replicas_;
    }
    return mean;
  }

  int replicas_;  // of this process
  Model model_;
  DistributedBatch batch_;
};

// Replicas that only wait for each other at the end of a step: what an exchange that costs nothing would
// give. Each has a module and a libtorch optimizer of its own.
class LockstepSteps {
 public:
  explicit LockstepSteps(std::int64_t rows)
      : strategy_(mirrored(kReplicas)), batch_(random_batch(kReplicas, rows, kReplicas * rows)) {
    for (int i = 0; i < kReplicas; ++i) copies_.emplace_back();
  }

  Turn operator()(int steps) {
    return {seconds_of([&] {
      for (int i = 0; i < steps; ++i) step();
    })};
  }

 private:
  struct Copy {
    Copy() {
      torch::optim::SGDOptions decayed(kLearningRate);
      decayed.momentum(kMomentum).weight_decay(kWeightDecay);
      torch::optim::SGDOptions plain = decayed;
      plain.weight_decay(0);
      std::vector<at::Tensor> kernels;
      std::vector<at::Tensor> others;
      for (const auto& item : network->named_parameters()) {
        (optimizers::kernels_only(item.key(), item.value()) ? kernels : others).push_back(item.value());
      }
      std::vector<torch::optim::OptimizerParamGroup> groups;
      groups.emplace_back(std::move(kernels), std::make_unique<torch::optim::SGDOptions>(decayed));
      groups.emplace_back(std::move(others), std::make_unique<torch::optim::SGDOptions>(plain));
      optimizer = std::make_unique<torch::optim::SGD>(std::move(groups), decayed);
    }

    models::ResNetCifar network{kResNetSize};
    std::unique_ptr<torch::optim::SGD> optimizer;
  };

  void step() {
    strategy_.run(
        [&](ReplicaContext& replica, const Batch& piece) {
          Copy& copy = copies_[static_cast<std::size_t>(replica.local_id())];
          const at::Tensor y_pred = copy.network(piece.x);
          const at::Tensor loss = compute_average_loss(loss_.per_example(piece.y, y_pred), piece.rows());
          const double value = loss.item<double>();
          // Dropped, not zeroed: backward then puts its results there instead of adding them.
          for (auto& group : copy.optimizer->param_groups()) {
            for (auto& parameter : group.params()) parameter.mutable_grad().reset();
          }
          loss.backward();
          copy.optimizer->step();
          return value;
        },
        batch_);
  }

  MirroredStrategy strategy_;
  DistributedBatch batch_;
  Loss loss_ = losses::sparse_categorical_crossentropy();
  std::vector<Copy> copies_;
};

// Matrix products with as many multiplications as the convolutions of a step: how fast it would be if all of
// it ran as the best that these cores do.
class ProductSteps {
 public:
  explicit ProductSteps(std::int64_t rows)
      : strategy_(mirrored(kReplicas)),
        products_(static_cast<double>(rows) * kFlopsPerImage / (2.0 * kWidth * kWidth * kWidth)) {
    for (int i = 0; i < kReplicas; ++i) {
      copies_.push_back(
          {torch::randn({kWidth, kWidth}), torch::randn({kWidth, kWidth}), torch::empty({kWidth, kWidth})});
    }
  }

  Turn operator()(int steps) {
    const auto count = static_cast<int>(products_ * steps + 0.5);
    const double seconds = seconds_of([&] {
      strategy_.run([&](ReplicaContext& replica) {
        auto& [a, b, product] = copies_[static_cast<std::size_t>(replica.local_id())];
        for (int i = 0; i < count; ++i) at::mm_out(product, a, b);
      });
    });
    return {seconds * products_ * steps / count};
  }

 private:
  static constexpr std::int64_t kWidth = 512;
  // ResNet-20's 40.8 million multiply-adds, forward and twice that backward.
  static constexpr double kFlopsPerImage = 3 * 2 * 40.8e6;

  MirroredStrategy strategy_;
  double products_;  // of a step and replica
  std::vector<std::array<at::Tensor, 3>> copies_;
};

Samples<Turn> measure(const Size& size, int rounds) {
  ModelSteps one_thread(OneDeviceStrategy("/cpu:0", {.threads_per_replica = 1}), size.rows);
  ModelSteps two_threads(OneDeviceStrategy("/cpu:0", {.threads_per_replica = kReplicas}),
                         kReplicas * size.rows);
  LockstepSteps no_exchange(size.rows);
  ModelSteps mirrored_pair(mirrored(kReplicas), size.rows);
  ModelSteps central_pair(central_storage(kReplicas), size.rows);
  ProductSteps products(size.rows);
  return take_turns<Turn>(rounds,
                          {[&] { return one_thread(size.steps); }, [&] { return two_threads(size.steps); },
                           [&] { return no_exchange(size.steps); }, [&] { return mirrored_pair(size.steps); },
                           [&] { return central_pair(size.steps); }, [&] { return products(size.steps); }});
}

std::vector<double> images_per_second(const std::vector<Turn>& turns, double images) {
  std::vector<double> rates;
  for (const Turn& turn : turns) rates.push_back(images / turn.seconds);
  return rates;
}

void print_ratio(const char* what, const Spread& spread) {
  fmt::print("  {:<52} {:>8.3f}   ({:.3f} to {:.3f})\n", what, spread.median, spread.low, spread.high);
}

void report_speed(const Size& size, const Samples<Turn>& turns, Report& report) {
  const auto replica_images = static_cast<double>(size.rows * size.steps);
  const auto a = images_per_second(turns[kOneThread], replica_images);
  const auto b = images_per_second(turns[kTwoThreads], kReplicas * replica_images);
  const auto c = images_per_second(turns[kNoExchange], kReplicas * replica_images);
  const auto d = images_per_second(turns[kMirrored], kReplicas * replica_images);
  const auto e = images_per_second(turns[kCentralStorage], kReplicas * replica_images);
  const auto f = images_per_second(turns[kProducts], kReplicas * replica_images);
  const auto rate = [&](const char* key, const std::string& what, const std::vector<double>& rates) {
    fmt::print("  {:<52} {:>8.1f}\n", what, median(rates));
    report.add(fmt::format("step_{}_{}_images_per_second", size.rows, key), median(rates));
  };
  rate("one_thread", fmt::format("a  one replica, 1 thread, batch {}", size.rows), a);
  rate("two_threads", fmt::format("b  one replica, 2 threads, batch {}", kReplicas * size.rows), b);
  rate("no_exchange", fmt::format("c  two replicas that exchange nothing, {} each", size.rows), c);
  rate("mirrored", fmt::format("d  MirroredStrategy, 2 replicas, {} each", size.rows), d);
  rate("central_storage", fmt::format("e  CentralStorageStrategy, 2 replicas, {} each", size.rows), e);
  rate("products", "f  as many multiplications as matrix products", f);

  const Spread to_no_exchange = ratio(d, c);
  const Spread to_two_threads = ratio(d, b);
  const Spread to_one_thread = ratio(d, a);
  const Spread central_to_mirrored = ratio(e, d);
  const Spread to_products = ratio(d, f);
  print_ratio("d / c  what the exchange leaves", to_no_exchange);
  print_ratio("d / b  replicas or threads", to_two_threads);
  print_ratio("d / a  scaling", to_one_thread);
  print_ratio("e / d  one copy of the variables or one each", central_to_mirrored);
  print_ratio("d / f  of what the cores can do", to_products);
  report.add(fmt::format("step_{}_mirrored_to_no_exchange", size.rows), to_no_exchange.median);
  report.add(fmt::format("step_{}_mirrored_to_two_threads", size.rows), to_two_threads.median);
  report.add(fmt::format("step_{}_mirrored_to_one_thread", size.rows), to_one_thread.median);
  report.add(fmt::format("step_{}_central_storage_to_mirrored", size.rows), central_to_mirrored.median);
  report.add(fmt::format("step_{}_mirrored_to_products", size.rows), to_products.median);
  report.add({.what = fmt::format("{} per replica: mirrored / no exchange", size.rows),
              .value = to_no_exchange.median,
              .bar = size.exchange_bar,
              .digits = 3});
  report.add({.what = fmt::format("{} per replica: mirrored / one replica, 2 threads", size.rows),
              .value = to_two_threads.median,
              .wanted = Wanted::kAbove,
              .bar = 1,
              .digits = 3});
}

void report_shares(const Size& size, const std::vector<Turn>& turns, Report& report) {
  constexpr double kPercent = 100;
  const auto share = [&](const char* key, const char* what, auto spent) {
    std::vector<double> shares;
    for (const Turn& turn : turns) shares.push_back(kPercent * spent(turn.spent) / turn.seconds);
    const Spread part = spread(std::move(shares));
    fmt::print("  {:<52} {:>7.2f}%   ({:.2f}% to {:.2f}%)\n", what, part.median, part.low, part.high);
    report.add(fmt::format("step_{}_{}_percent", size.rows, key), part.median);
    return part.median;
  };
  using Times = internal::UpdateTimes;
  const double exchange = share("reduce_and_update", "reduce and update, of a step of d",
                                [](const Times& spent) { return spent.reduce + spent.update; });
  share("wait", "wait for the other replica, of a step of d", [](const Times& spent) { return spent.wait; });
  if (size.share_bar == 0) return;
  report.add({.what = fmt::format("{} per replica: reduce and update", size.rows),
              .value = exchange,
              .wanted = Wanted::kBelow,
              .bar = kPercent * size.share_bar,
              .unit = "%"});
}

// Answers each line "ROWS STEPS" with the seconds of that many steps, after one that does not count.
template <typename Steps>
void answer(std::map<std::int64_t, Steps> sizes) {
  constexpr int kWarmUpSteps = 3;
  for (auto& [rows, steps] : sizes) steps(kWarmUpSteps);
  fmt::print("libtorch {}\n", TORCH_VERSION);
  std::fflush(stdout);
  std::int64_t rows = 0;
  int steps = 0;
  while (std::cin >> rows >> steps) {
    const auto size = sizes.find(rows);
    if (size == sizes.end()) throw InvalidArgument(fmt::format("no batch of {} images per replica", rows));
    size->second(1);  // since the last turn others have had the caches
    fmt::print("{}\n", size->second(steps).seconds);
    std::fflush(stdout);
  }
}

void step_parameter_server_worker() {
  const ParameterServerOptions options{.threads_per_replica = 1};
  if (ParameterServerStrategy::serve(options)) return;
  const ParameterServerStrategy strategy(options);
  // The ps holds one model at a time: batches of all sizes are steps of the same.
  const Model model = make_resnet20(strategy);
  std::map<std::int64_t, ModelSteps> sizes;
  for (const Size& size : kSizes) sizes.try_emplace(size.rows, strategy, model, size.rows);
  answer(std::move(sizes));
}

}  // namespace

void step_worker(const std::string& variant) {
  if (variant == "parameter_server") return step_parameter_server_worker();
  if (variant == "no_exchange") {
    std::map<std::int64_t, LockstepSteps> sizes;
    for (const Size& size : kSizes) sizes.try_emplace(size.rows, size.rows);
    answer(std::move(sizes));
    return;
  }
  const Strategy strategy = [&]() -> Strategy {
    if (variant == "alone") return OneDeviceStrategy("/cpu:0", {.threads_per_replica = 1});
    if (variant == "multi_worker") return MultiWorkerMirroredStrategy({.threads_per_replica = 1});
    return mirrored(kReplicas);
  }();
  std::map<std::int64_t, ModelSteps> sizes;
  for (const Size& size : kSizes) sizes.try_emplace(size.rows, strategy, size.rows);
  answer(std::move(sizes));
}

void step_speed(int rounds, Report& report) {
  for (const Size& size : kSizes) {
    fmt::print("\nResNet-{}, {} images per replica: images/s, ratios (middle half of {} rounds)\n",
               kResNetSize, size.rows, rounds);
    std::fflush(stdout);
    const Samples<Turn> turns = measure(size, rounds);
    report_speed(size, turns, report);
    report_shares(size, turns[kMirrored], report);
  }
}

}  // namespace tandem::bench
