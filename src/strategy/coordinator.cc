#include "tandem/coordinator.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <torch/torch.h>

#include <exception>
#include <map>

#include "ps/closure_wire.h"
#include "strategy/closure_host.h"
#include "strategy/strategy_impl.h"
#include "strategy/values_codec.h"
#include "tandem/error.h"

namespace tandem {
namespace {

// A seed for each worker: the same data, in another order.
std::uint64_t seed_of_worker(std::uint64_t seed, int worker) {
  return seed + 0x9e3779b97f4a7c15u * static_cast<std::uint64_t>(worker);
}

// How an exception of libtorch reads without the stack that it was thrown from.
template <typename Fn>
auto without_backtrace(Fn fn) {
  try {
    return fn();
  } catch (const c10::Error& error) {
    throw Error(ErrorCode::kUnknown, error.what_without_backtrace());
  }
}

internal::ClosureHost& host_of(const Strategy& strategy) {
  if (internal::ClosureHost* host = strategy.impl().closure_host()) return *host;
  throw InvalidArgument(
      fmt::format("a ClusterCoordinator needs a ParameterServerStrategy of a cluster with a chief, workers "
                  "and ps tasks: the strategy is {}",
                  strategy.name()));
}

}  // namespace

DistributedBatch ClosureContext::next(const std::string& dataset) {
  auto batch = next_(dataset);
  if (!batch) throw OutOfRange(fmt::format("dataset \"{}\" has no more batches on this worker", dataset));
  return *std::move(batch);
}

std::optional<DistributedBatch> ClosureContext::next_as_optional(const std::string& dataset) {
  return next_(dataset);
}

struct RemoteValue::Impl {
  internal::ps::ClosureHandle closure;
  std::string function;
};

bool RemoteValue::done() const {
  return impl_ && impl_->closure.done();
}

Values RemoteValue::fetch() const {
  if (!impl_) throw FailedPrecondition("this RemoteValue is the result of nothing: schedule() gives one");
  return internal::decode_values(fmt::format("the result of \"{}\"", impl_->function), impl_->closure.wait());
}

struct ClusterCoordinator::Impl {
  struct PerWorkerDataset {
    std::function<Dataset(const InputContext&)> make;
    IterateOptions options;
    std::optional<DistributedDataset> batches = {};  // once a function asked for one
  };

  Impl(const Strategy& the_strategy, internal::ClosureHost& the_host, ClusterCoordinatorOptions the_options)
      : strategy(the_strategy),
        host(the_host),
        options(the_options),
        exceptions_before(std::uncaught_exceptions()) {
    if (!host.is_coordinator()) return;
    internal::ps::ClosureDispatcherOptions dispatching{
        .locate = [this](int worker, std::string& why) { return host.locate(worker, why); },
        .cluster_id = host.cluster_id(),
        .encrypt = host.encrypts(),
        .first_closure = host.first_closure(),
        .queue_size = options.queue_size,
        .worker_timeout = options.worker_timeout,
        .all_workers_timeout = options.all_workers_timeout,
        .stagger = options.stagger};
    for (int worker = 0; worker < host.num_workers(); ++worker) {
      dispatching.workers.push_back(host.worker_name(worker));
    }
    dispatcher.emplace(std::move(dispatching));
  }

  ~Impl() {
    if (!dispatcher) return;
    const bool failed = std::uncaught_exceptions() > exceptions_before;
    dispatcher->finish(failed ? "the coordinator has failed" : "");
  }

  internal::ps::ClosureDispatcher& as_coordinator(const char* what) {
    if (dispatcher) return *dispatcher;
    throw FailedPrecondition(fmt::format("{}() is for the coordinator, and this is {}: call serve() there",
                                         what, host.worker_name(host.worker())));
  }

  // Workers wait for the chief to give the variables their first values.
  void begin() {
    if (std::exchange(begun, true)) return;
    strategy.impl().settle_variables();
  }

  static void check_name(const char* what, const std::string& name, bool taken) {
    if (name.empty() || name.size() > internal::ps::kLongestFunctionName) {
      throw InvalidArgument(fmt::format("the name of a {} has {} bytes: expected 1 to {}", what, name.size(),
                                        internal::ps::kLongestFunctionName));
    }
    if (taken) throw InvalidArgument(fmt::format("there is a {} \"{}\" already", what, name));
  }

  std::vector<std::string> function_names() const {
    std::vector<std::string> names;
    for (const auto& [name, function] : functions) names.push_back(name);
    return names;
  }

  const Function& function(std::string_view name) const {
    const auto found = functions.find(name);
    if (found != functions.end()) return found->second;
    throw NotFound(fmt::format("there is no function \"{}\": there are [{}]; add_function() on every task",
                               name, fmt::join(function_names(), ", ")));
  }

  std::optional<DistributedBatch> next(const std::string& name) {
    const auto found = datasets.find(name);
    if (found == datasets.end()) {
      throw NotFound(fmt::format(
          "there is no dataset \"{}\" on this worker: create_per_worker_dataset() on every task", name));
    }
    PerWorkerDataset& dataset = found->second;
    if (!dataset.batches) {
      const Dataset made = dataset.make({.num_input_pipelines = host.num_workers(),
                                         .input_pipeline_id = host.worker(),
                                         .num_replicas_in_sync = strategy.num_replicas_in_sync()});
      IterateOptions iterate = dataset.options;
      iterate.seed = seed_of_worker(iterate.seed, host.worker());
      dataset.batches = strategy.distribute(made.with_auto_shard(AutoShardPolicy::kOff), iterate);
    }
    return dataset.batches->next_as_optional();
  }

  std::string run(const internal::ps::ClosureRequest& request) {
    const Function& body = function(request.function);
    const Values arguments = internal::decode_values("the arguments", request.arguments);
    ClosureContext context(host.worker(), host.num_workers(),
                           [this](const std::string& dataset) { return next(dataset); });
    // Also when it throws: what this worker does next is not part of it.
    struct Belonging {
      Belonging(internal::ClosureHost& the_host, const internal::ps::ClosureRequest& request)
          : host(the_host) {
        host.set_closure(request.closure, request.settled_below);
      }
      ~Belonging() { host.set_closure(0, 0); }
      internal::ClosureHost& host;
    } const belonging(host, request);
    return without_backtrace([&] { return internal::encode_values("result", body(context, arguments)); });
  }

  const Strategy strategy;
  internal::ClosureHost& host;
  const ClusterCoordinatorOptions options;
  const int exceptions_before;
  bool begun = false;
  std::map<std::string, Function, std::less<>> functions;
  std::map<std::string, PerWorkerDataset> datasets;
  std::optional<internal::ps::ClosureDispatcher> dispatcher;  // the coordinator's
};

ClusterCoordinator::ClusterCoordinator(const Strategy& strategy, ClusterCoordinatorOptions options)
    : ClusterCoordinator(strategy, host_of(strategy), options) {}

ClusterCoordinator::ClusterCoordinator(const Strategy& strategy, internal::ClosureHost& host,
                                       ClusterCoordinatorOptions options)
    : impl_(std::make_unique<Impl>(strategy, host, options)) {}

ClusterCoordinator::~ClusterCoordinator() = default;

bool ClusterCoordinator::is_coordinator() const {
  return impl_->dispatcher.has_value();
}

void ClusterCoordinator::add_function(const std::string& name, Function function) {
  Impl::check_name("function", name, impl_->functions.contains(name));
  if (!function) throw InvalidArgument(fmt::format("function \"{}\" is empty", name));
  if (impl_->functions.size() >= internal::ps::kMostFunctions) {
    throw InvalidArgument(fmt::format("at most {} functions", internal::ps::kMostFunctions));
  }
  impl_->functions.emplace(name, std::move(function));
  if (impl_->dispatcher) impl_->dispatcher->expect_function(name);
}

void ClusterCoordinator::create_per_worker_dataset(const std::string& name,
                                                   std::function<Dataset(const InputContext&)> make,
                                                   IterateOptions options) {
  Impl::check_name("dataset", name, impl_->datasets.contains(name));
  if (!make) throw InvalidArgument(fmt::format("the function of dataset \"{}\" is empty", name));
  impl_->datasets.emplace(name, Impl::PerWorkerDataset{std::move(make), options});
}

void ClusterCoordinator::serve() {
  if (impl_->dispatcher) {
    throw FailedPrecondition("serve() is for workers, and this is the coordinator: schedule() and join()");
  }
  impl_->host.closure_server().serve(
      {.functions = impl_->function_names(),
       .run = [this](const internal::ps::ClosureRequest& request) { return impl_->run(request); },
       .coordinator_timeout = impl_->options.coordinator_timeout});
}

RemoteValue ClusterCoordinator::schedule(const std::string& function, const Values& arguments) {
  auto& dispatcher = impl_->as_coordinator("schedule");
  impl_->function(function);
  impl_->begin();
  const std::string bytes = internal::encode_values(fmt::format("argument of \"{}\":", function), arguments);
  return RemoteValue(std::make_shared<const RemoteValue::Impl>(
      RemoteValue::Impl{dispatcher.schedule(function, bytes), function}));
}

void ClusterCoordinator::join() {
  impl_->as_coordinator("join").join();
}

bool ClusterCoordinator::done() {
  return impl_->as_coordinator("done").done();
}

}  // namespace tandem
