#include "tandem/model.h"

#include <fmt/format.h>
#include <torch/torch.h>

#include <algorithm>
#include <cmath>
#include <random>
#include <string_view>
#include <utility>

#include "base/log.h"
#include "base/random.h"
#include "base/sha256.h"
#include "strategy/replica_random.h"
#include "strategy/strategy_impl.h"
#include "strategy/torch_device.h"
#include "tandem/embedding.h"
#include "tandem/error.h"
#include "tandem/sync_batch_norm.h"
#include "trace/recorder.h"
#include "train/metric_state.h"
#include "train/mixed_precision.h"
#include "train/model_state.h"
#include "train/optimizer_binding.h"

namespace tandem {
namespace {

std::uint64_t draw_seed() {
  // Small enough to be typed again, and to survive a JSON number.
  const std::uint64_t seed = std::random_device()();
  internal::log_info("seed {} (drawn; give it again to repeat this run)", seed);
  return seed;
}

// The same on all tasks: the chief's.
std::uint64_t choose_seed(const internal::StrategyImpl& strategy,
                          const std::optional<std::uint64_t>& wanted) {
  const std::uint64_t mine = wanted ? *wanted : strategy.seed() ? *strategy.seed() : draw_seed();
  internal::SyncGroup* tasks = strategy.tasks();
  if (!tasks) return mine;
  const at::Tensor seed = at::scalar_tensor(static_cast<std::int64_t>(mine), at::kLong);
  tasks->broadcast("seed of the model", seed);
  const auto chiefs = static_cast<std::uint64_t>(seed.item<std::int64_t>());
  if (chiefs != mine) {
    internal::log_info("{}: the model's seed is {}, as on {}, and not {}", tasks->self(), chiefs,
                       tasks->member(0), mine);
  }
  return chiefs;
}

// The tables that are not here, each with its name and a seed of its own; one that is registered twice, once.
std::vector<std::shared_ptr<internal::RemoteTable>> tables_of(const torch::nn::Module& module,
                                                              std::uint64_t seed) {
  std::vector<std::shared_ptr<internal::RemoteTable>> tables;
  for (const auto& item : module.named_modules()) {
    const auto* embedding = item.value()->as<EmbeddingImpl>();
    if (!embedding || !embedding->remote_table()) continue;
    const auto& table = embedding->remote_table();
    if (std::ranges::find(tables, table) != tables.end()) continue;
    table->name = item.key().empty() ? "weight" : item.key() + ".weight";
    table->seed = internal::seed_of_stream(seed, tables.size());
    tables.push_back(table);
  }
  return tables;
}

internal::ReplicaTensors tensors_of(const torch::nn::Module& module, std::uint64_t seed) {
  internal::ReplicaTensors tensors;
  for (const auto& item : module.named_parameters()) tensors.parameters.push_back({item.key(), item.value()});
  for (const auto& item : module.named_buffers()) tensors.buffers.push_back({item.key(), item.value()});
  tensors.tables = tables_of(module, seed);
  return tensors;
}

// The forward of the same module with every batch norm in it synchronised.
Network with_sync_batch_norm(const Network& network) {
  return Network(network.shared_module(), [network](const Tensors& x) {
    const SyncBatchNormScope scope;
    return network(x);
  });
}

bool has_sync_batch_norm(const torch::nn::Module& module) {
  for (const auto& child : module.modules()) {
    if (child->as<SyncBatchNormImpl>()) return true;
  }
  return false;
}

// Batch norm cannot train on one value per channel. libtorch says so without telling where.
at::Tensor forward(const Network& network, const Batch& piece, const ReplicaContext& replica,
                   std::int64_t step) {
  const internal::TraceSpan span("forward");
  try {
    return network(piece.x);
  } catch (const std::exception& error) {
    if (piece.rows() != 1 ||
        std::string_view(error.what()).find("more than 1 value per channel") == std::string_view::npos) {
      throw;
    }
    throw InvalidArgument(
        fmt::format("batch norm cannot train on one row: replica {} got a piece of 1 row at step {} (global "
                    "batch of {} rows over {} "
                    "replicas). Drop the last batch with .batch(n, {{.drop_remainder = true}}), choose a "
                    "batch size that leaves every "
                    "replica 2 rows or more, or use fewer replicas",
                    replica.id(), step, replica.global_rows(), replica.num_replicas_in_sync()));
  }
}

double local_rows(const DistributedBatch& batch) {
  std::int64_t rows = 0;
  for (const Batch& piece : batch) rows += piece.rows();
  return static_cast<double>(std::max<std::int64_t>(rows, 1));
}

}  // namespace

Model::Model(NetworkFactory factory, ModelOptions options) : state_(std::make_shared<State>()) {
  State& state = *state_;
  state.strategy = get_strategy();
  internal::StrategyImpl& impl = state.strategy.impl();
  state.policy = options.policy;
  impl.or_stop_all([&] {
    internal::check_policy(options.policy, state.strategy.worker_devices());
    state.seed = choose_seed(impl, options.seed);
    std::vector<internal::ReplicaTensors> copies;
    for (const Device& device : state.strategy.worker_devices()) {
      const internal::RandomScope random(state.seed);  // the same initial values each time
      Network network = factory();
      if (options.sync_batch_norm) network = with_sync_batch_norm(network);
      if (options.policy.is_mixed()) network = internal::with_policy(network, options.policy, device);
      if (device.type == DeviceType::kGpu) network.module().to(internal::torch_device(device));
      copies.push_back(tensors_of(network.module(), state.seed));
      state.networks.push_back(std::move(network));
    }
    state.collective_forward =
        options.sync_batch_norm || has_sync_batch_norm(state.networks.front().module());
    state.variables =
        std::make_shared<internal::Variables>(std::move(copies), impl.placement(), impl.tasks());
  });
  // An optimizer may keep the variables for longer.
  state.variables->on_step([mine = std::weak_ptr(state_)](const std::optional<std::int64_t>& counted) {
    // Where other tasks count their steps too, theirs are among them.
    if (const auto alive = mine.lock()) alive->global_step = counted.value_or(alive->global_step + 1);
  });
  impl.add_variables(state.variables);
}

void Model::compile(CompileOptions options) {
  if (options.steps_per_execution < 1) {
    throw InvalidArgument(
        fmt::format("steps_per_execution is {}: expected 1 or more", options.steps_per_execution));
  }
  if (state_->policy.compute_dtype() == at::kHalf && !options.optimizer.has_loss_scale()) {
    options.optimizer = optimizers::LossScaleOptimizer(options.optimizer);
  }
  options.optimizer.binding().bind(state_->strategy.impl(), state_->variables);
  for (const Metric& metric : options.metrics) metric.state().strategy = state_->strategy;
  state_->compiled = std::move(options);
}

double Model::train_step(const DistributedBatch& batch, OnNan on_nan) {
  return state_->train_step(*this, batch, on_nan).loss;
}

Model::State::Standing Model::State::train_step(const Model& model, const DistributedBatch& batch,
                                                OnNan on_nan) {
  CompileOptions& compiled = ready("train_step()");
  const internal::TraceSpan span("train_step", global_step + 1);
  strategy.seed_random(seed, global_step);
  const std::int64_t step = global_step;
  // A loss that overflows is what its scale is there for, until that cannot become smaller.
  const double loss_scale = compiled.optimizer.loss_scale();
  const PerReplica<double> losses = strategy.run(
      [&](ReplicaContext& replica, const Batch& piece) {
        at::Tensor
            loss;  // stays undefined without rows: nothing to add, but the others wait for this replica
        double value = 0;
        if (piece.rows() > 0 || collective_forward) {
          const at::Tensor y_pred = forward(model.on(replica), piece, replica, step);
          loss = compute_average_loss(compiled.loss.per_example(piece.y, y_pred), replica.global_rows(),
                                      piece.sample_weight);
          value = loss.item<double>();
          if (!std::isfinite(value) && on_nan == OnNan::kStop && loss_scale <= 1) {
            throw NonFiniteLoss(fmt::format(
                "the loss is {} at step {} (replica {}): nothing was updated. Lower the learning rate, look "
                "for "
                "bad values in the data, or go on regardless (OnNan::kContinue, --on_nan continue)",
                value, step, replica.id()));
          }
          for (const Metric& metric : compiled.metrics) {
            metric.update(replica, piece.y, y_pred.detach(), piece.sample_weight);
          }
        }
        compiled.optimizer.minimize(replica, loss, model);
        return value;
      },
      batch);
  if (const double now = compiled.optimizer.loss_scale(); now < loss_scale && strategy.is_chief()) {
    internal::log_info("step {} was skipped: its gradients are not finite; the loss scale is {} now", step,
                       now);
  }
  Standing all = standing(losses.values());
  // Of the replicas of this task, where those of others are not asked: a mean over as many rows.
  if (!strategy.impl().tasks()) all.loss *= static_cast<double>(batch.global_rows()) / local_rows(batch);
  return all;
}

const Network& Model::on(const ReplicaContext& replica) const {
  return state_->networks[static_cast<std::size_t>(replica.local_id())];
}

void Model::stop_training() {
  state_->stop_requested = true;
}
void Model::request_save() {
  state_->save_requested = true;
}
const Strategy& Model::strategy() const {
  return state_->strategy;
}
const Policy& Model::policy() const {
  return state_->policy;
}
Optimizer Model::optimizer() const {
  return state_->ready("optimizer()").optimizer;
}
std::uint64_t Model::seed() const {
  return state_->seed;
}
std::int64_t Model::global_step() const {
  return state_->global_step;
}

std::int64_t Model::num_parameters() const {
  std::int64_t count = 0;
  for (const std::size_t place : state_->variables->trainable()) {
    count += state_->variables->copy(0).parameters[place].tensor.numel();
  }
  for (const auto& table : state_->variables->tables()) count += table->rows * table->columns;
  return count;
}

std::map<std::string, at::Tensor> Model::values() const {
  return state_->variables->read();
}

void Model::set_values(const std::map<std::string, at::Tensor>& values) {
  state_->variables->write(values);
}

std::string Model::parameter_digest() const {
  internal::Sha256 digest;
  for (const auto& [name, value] : values()) {
    digest.update(name.c_str(), name.size() + 1);
    digest.update(value.data_ptr(), value.nbytes());
  }
  return digest.hex();
}

CompileOptions& Model::State::ready(const char* what) {
  if (!compiled)
    throw FailedPrecondition(fmt::format("{} needs a compiled model: call compile() first", what));
  return *compiled;
}

void Model::State::reset_metrics() {
  for (const Metric& metric : compiled->metrics) metric.reset();
}

Model::State::Standing Model::State::standing(const std::vector<double>& local_losses) const {
  std::vector<std::vector<double>> rows;
  for (const double loss : local_losses) rows.push_back({loss});
  for (const Metric& metric : compiled->metrics) internal::append_totals(metric, rows);
  const std::vector<double> sums = internal::sum_over_replicas(strategy, rows);
  Standing all{.loss = sums[0]};
  auto next = sums.begin() + 1;
  for (const Metric& metric : compiled->metrics) {
    const auto first = std::exchange(next, next + metric.state().sums.size);
    all.metrics.push_back(metric.state().sums.result({first, next}));
  }
  return all;
}

Logs Model::State::logs(double loss, const std::vector<double>& metrics) const {
  Logs logs;
  logs.set("loss", loss);
  for (std::size_t i = 0; i < metrics.size(); ++i) logs.set(compiled->metrics[i].name(), metrics[i]);
  return logs;
}

Logs Model::State::logs_so_far(double loss) const {
  return logs(loss, standing(std::vector<double>(networks.size(), 0)).metrics);
}

}  // namespace tandem
