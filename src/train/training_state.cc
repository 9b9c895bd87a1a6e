#include "train/training_state.h"

#include <fmt/format.h>
#include <torch/torch.h>

#include <charconv>
#include <cmath>
#include <nlohmann/json.hpp>
#include <set>

#include "base/log.h"
#include "strategy/strategy_impl.h"
#include "tandem/error.h"
#include "train/metric_state.h"
#include "train/model_state.h"
#include "train/optimizer_binding.h"

namespace tandem::internal {
namespace {

using Json = nlohmann::json;

constexpr const char* kFitData = "train";

// JSON has no infinity, and no promise of every bit.
Json exactly(double value) {
  return fmt::format("{}", value);
}

double number(const Json& text) {
  const auto& digits = text.get_ref<const std::string&>();
  double value = 0;
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), value);
  if (error != std::errc() || end != digits.data() + digits.size()) {
    throw DataLoss(fmt::format("\"{}\" is no number", digits));
  }
  return value;
}

int rank_of(const Model::State& model) {
  const SyncGroup* tasks = model.strategy.impl().tasks();
  return tasks ? tasks->rank() : 0;
}

std::string generator_name(int task) {
  return fmt::format("@generator.task{}", task);
}
std::string metrics_name(int replica) {
  return fmt::format("@metrics.replica{}", replica);
}
std::string position_name(const std::string& dataset, int task) {
  return fmt::format("@position.{}.task{}", dataset, task);
}
std::string callback_prefix(std::size_t index) {
  return fmt::format("@callback{}.", index);
}

Json history_to_json(const History& history) {
  Json logs = Json::object();
  for (const auto& [name, values] : history.history) {
    Json line = Json::array();
    for (const double value : values) line.push_back(exactly(value));
    logs[name] = std::move(line);
  }
  return {{"epoch", history.epoch}, {"logs", std::move(logs)}};
}

History history_from_json(const Json& json) {
  History history;
  history.epoch = json.at("epoch").get<std::vector<std::int64_t>>();
  for (const auto& [name, line] : json.at("logs").items()) {
    for (const Json& value : line) history.history[name].push_back(number(value));
  }
  return history;
}

Json progress_to_json(const TrainingProgress& progress) {
  return {{"epoch", progress.epoch},        {"step", progress.step},
          {"steps", progress.steps},        {"loss_sum", exactly(progress.loss_sum)},
          {"rows", exactly(progress.rows)}, {"batch_size", progress.batch_size},
          {"stopped", progress.stopped},    {"history", history_to_json(progress.history)}};
}

TrainingProgress progress_from_json(const Json& json) {
  return {.epoch = json.at("epoch").get<std::int64_t>(),
          .step = json.at("step").get<std::int64_t>(),
          .steps = json.at("steps").get<std::int64_t>(),
          .loss_sum = number(json.at("loss_sum")),
          .rows = number(json.at("rows")),
          .batch_size = json.at("batch_size").get<std::int64_t>(),
          .stopped = json.at("stopped").get<bool>(),
          .history = history_from_json(json.at("history"))};
}

void capture_optimizer(Model::State& model, NamedTensors& shared, Json& meta) {
  const Updater& updater = *model.compiled->optimizer.binding().updater;
  meta["optimizer"] = updater.kind();
  meta["learning_rate"] = exactly(updater.learning_rate());
  if (const LossScale* scale = updater.saved_loss_scale()) {
    meta["loss_scale"] = {{"scale", exactly(scale->scale())}, {"good_steps", scale->good_steps()}};
  }
  for (const auto& [parameter, slots] : updater.state()) {
    for (const auto& [slot, tensor] : slots) {
      shared[parameter + "@" + slot] = tensor.to(at::kCPU).contiguous();
    }
  }
}

void capture_metrics(const Model::State& model, NamedTensors& own) {
  std::vector<std::vector<double>> rows(model.networks.size());
  for (const Metric& metric : model.compiled->metrics) append_totals(metric, rows);
  if (rows.front().empty()) return;
  const int first = model.strategy.impl().first_replica();
  for (std::size_t replica = 0; replica < rows.size(); ++replica) {
    own[metrics_name(first + static_cast<int>(replica))] = at::tensor(rows[replica], at::kDouble);
  }
}

void capture_position(const std::string& name, const DistributedDataset& dataset, int task, NamedTensors& own,
                      Json& meta) {
  const auto [epoch, element] = dataset.position();
  own[position_name(name, task)] = at::tensor({epoch, element}, at::kLong);
  meta["datasets"][name] = {{"global_batches", dataset.holds_global_batches()}};
}

void capture_callbacks(const RunningFit& fit, NamedTensors& shared, Json& meta) {
  Json all = Json::array();
  for (std::size_t i = 0; i < fit.callbacks.size(); ++i) {
    const CallbackState state = fit.callbacks[i]->state();
    Json numbers = Json::object();
    for (const auto& [name, value] : state.numbers) numbers[name] = exactly(value);
    all.push_back(std::move(numbers));
    for (const auto& [name, tensor] : state.tensors) {
      shared[callback_prefix(i) + name] = tensor.to(at::kCPU).contiguous();
    }
  }
  meta["callbacks"] = std::move(all);
}

// What a checkpoint has, sorted by what it is for.
struct Sorted {
  NamedTensors values;
  NamedTensors own_buffers;  // of all replicas
  OptimizerState optimizer;
  NamedTensors rest;  // names that begin with "@"
};

Sorted sort(const NamedTensors& tensors) {
  Sorted sorted;
  for (const auto& [name, tensor] : tensors) {
    const auto at = name.rfind('@');
    if (at == std::string::npos) {
      sorted.values[name] = tensor;
    } else if (name.front() == '@') {
      sorted.rest[name] = tensor;
    } else if (name.compare(at, 8, "@replica") == 0) {
      sorted.own_buffers[name] = tensor;
    } else {
      sorted.optimizer[name.substr(0, at)][name.substr(at + 1)] = tensor;
    }
  }
  return sorted;
}

// The names of the model that the checkpoint does not have, and the reverse.
void check_names(const Variables& variables, const NamedTensors& values, const std::string& source) {
  std::set<std::string> ours;
  for (const auto& [name, tensor] : variables.copy(0).parameters) ours.insert(name);
  for (const auto& [name, tensor] : variables.copy(0).buffers) ours.insert(name);
  for (const std::string& name : ours) {
    if (!values.contains(name)) {
      throw InvalidArgument(fmt::format(
          "{} is of another model: it has no \"{}\"; use the folder of this model, or an empty one", source,
          name));
    }
  }
  for (const auto& [name, tensor] : values) {
    if (!ours.contains(name)) {
      throw InvalidArgument(fmt::format(
          "{} is of another model: this one has no \"{}\"; use the folder of this model, or an empty one",
          source, name));
    }
  }
}

void apply_optimizer(Model::State& model, const OptimizerState& state, const Json& meta,
                     const std::string& source) {
  if (!model.compiled || !meta.contains("optimizer")) return;
  Updater& updater = *model.compiled->optimizer.binding().updater;
  const auto kind = meta.at("optimizer").get<std::string>();
  if (kind != updater.kind()) {
    throw InvalidArgument(
        fmt::format("{} was saved with the optimizer {}, and this model is compiled with {}: use the same "
                    "one, or load the weights alone (Model::load_weights)",
                    source, kind, updater.kind().empty() ? "another one" : updater.kind()));
  }
  updater.load_state(state);
  if (meta.contains("loss_scale")) {
    updater.restore_loss_scale(number(meta.at("loss_scale").at("scale")),
                               meta.at("loss_scale").at("good_steps").get<std::int64_t>());
  }
  model.compiled->optimizer.set_learning_rate(number(meta.at("learning_rate")));
}

// With as many replicas as before each gets its own part back; else the first gets it all.
void apply_metrics(const Model::State& model, const NamedTensors& rest) {
  const int first = model.strategy.impl().first_replica();
  int saved = 0;
  while (rest.contains(metrics_name(saved))) ++saved;
  const bool same = saved == model.strategy.num_replicas_in_sync();
  for (int replica = 0; replica < saved; ++replica) {
    const int local = same ? replica - first : 0;
    if (local < 0 || local >= model.strategy.impl().num_local_replicas() || (!same && rank_of(model) != 0)) {
      continue;
    }
    const at::Tensor& totals = rest.at(metrics_name(replica));
    std::int64_t expected = 0;
    for (const Metric& metric : model.compiled->metrics) expected += metric.state().sums.size;
    if (totals.scalar_type() != at::kDouble || totals.numel() != expected) {
      continue;  // compiled with other metrics: those begin anew
    }
    const double* next = totals.data_ptr<double>();
    for (const Metric& metric : model.compiled->metrics) {
      metric.state().add_total(local, {next, metric.state().size()});
      next += metric.state().size();
    }
  }
}

// Where this task stood in a dataset. Elements are counted in other units if the tasks, their replicas or the
// batch have changed since.
std::optional<DatasetPosition> saved_position(const Model::State& model, const std::string& name,
                                              const NamedTensors& rest, const Json& meta) {
  const Json datasets = meta.value("datasets", Json::object());
  if (!datasets.contains(name)) return {};
  const bool global = datasets.at(name).at("global_batches").get<bool>();
  const StrategyImpl& strategy = model.strategy.impl();
  const bool same_tasks = meta.at("tasks").get<int>() == strategy.num_tasks() &&
                          meta.at("replicas").get<int>() == strategy.num_replicas_in_sync();
  const auto found = rest.find(position_name(name, same_tasks ? rank_of(model) : 0));
  if (found == rest.end() || found->second.numel() != 2 || found->second.scalar_type() != at::kLong) {
    throw DataLoss(fmt::format("the place in \"{}\" is missing", name));
  }
  const auto* values = found->second.data_ptr<std::int64_t>();
  DatasetPosition position{values[0], values[1]};
  if (!global && !same_tasks) {
    const std::int64_t before = meta.at("replicas").get<int>() / meta.at("tasks").get<int>();
    position.element = position.element / before * strategy.num_local_replicas();
    log_warning(
        "the data was shared among {} tasks and is now among {}: some examples of this epoch come "
        "twice or not at all",
        meta.at("tasks").get<int>(), strategy.num_tasks());
  }
  return position;
}

std::vector<CallbackState> saved_callbacks(const NamedTensors& rest, const Json& meta) {
  std::vector<CallbackState> states;
  for (const Json& numbers : meta.at("callbacks")) {
    CallbackState& state = states.emplace_back();
    for (const auto& [name, value] : numbers.items()) state.numbers[name] = number(value);
    const std::string prefix = callback_prefix(states.size() - 1);
    for (auto it = rest.lower_bound(prefix); it != rest.end() && it->first.starts_with(prefix); ++it) {
      state.tensors[it->first.substr(prefix.size())] = it->second;
    }
  }
  return states;
}

}  // namespace

TrainingState capture(Model::State& model, CaptureScope scope, const TrackedDatasets& datasets) {
  const torch::NoGradGuard no_grad;
  const StrategyImpl& strategy = model.strategy.impl();
  const int task = rank_of(model);
  TrainingState state{.shared = model.variables->read(), .own = model.variables->own_buffers(), .meta = {}};
  Json meta = {{"global_step", model.global_step},
               {"seed", model.seed},
               {"strategy", strategy.name()},
               {"tasks", strategy.num_tasks()},
               {"replicas", strategy.num_replicas_in_sync()},
               {"threads_per_replica", strategy.threads_per_replica()},
               {"torch", TORCH_VERSION}};
  if (model.compiled) capture_optimizer(model, state.shared, meta);
  if (scope == CaptureScope::kModel) {
    state.meta = meta.dump();
    return state;
  }
  if (model.compiled) capture_metrics(model, state.own);
  state.own[generator_name(task)] = at::detail::getDefaultCPUGenerator().get_state().clone();
  for (const auto& [name, dataset] : datasets) capture_position(name, *dataset, task, state.own, meta);
  if (model.running) {
    meta["progress"] = progress_to_json(model.running->progress);
    if (model.running->batches) capture_position(kFitData, *model.running->batches, task, state.own, meta);
    capture_callbacks(*model.running, state.shared, meta);
  }
  state.meta = meta.dump();
  return state;
}

std::optional<Resume> apply(Model::State& model, const NamedTensors& tensors, const std::string& text,
                            const std::string& source, const TrackedDatasets& datasets) try {
  const torch::NoGradGuard no_grad;
  const Json meta = Json::parse(text);
  const Sorted saved = sort(tensors);
  check_names(*model.variables, saved.values, source);
  std::map<std::string, DatasetPosition> positions;
  for (const auto& [name, dataset] : datasets) {
    if (const auto position = saved_position(model, name, saved.rest, meta)) positions[name] = *position;
  }
  std::optional<Resume> resume;
  if (meta.contains("progress")) {
    resume =
        Resume{.progress = progress_from_json(meta.at("progress")),
               .callbacks = saved_callbacks(saved.rest, meta),
               .position = saved_position(model, kFitData, saved.rest, meta).value_or(DatasetPosition{})};
  }
  const auto seed = meta.at("seed").get<std::uint64_t>();
  const auto step = meta.at("global_step").get<std::int64_t>();

  model.variables->write(saved.values);
  apply_optimizer(model, saved.optimizer, meta, source);
  model.variables->write_own_buffers(saved.own_buffers);
  if (model.compiled) {
    model.reset_metrics();
    apply_metrics(model, saved.rest);
  }
  if (model.seed != seed) log_info("seed {} of {} holds", seed, source);
  model.seed = seed;
  model.global_step = step;
  if (model.compiled) model.compiled->optimizer.binding().updater->set_global_step(step);
  if (const auto found = saved.rest.find(generator_name(rank_of(model))); found != saved.rest.end()) {
    at::Generator generator = at::detail::getDefaultCPUGenerator();  // a handle
    generator.set_state(found->second);
  }
  for (const auto& [name, position] : positions) datasets.at(name)->seek(position);
  return resume;
} catch (const Json::exception& error) {
  throw DataLoss(fmt::format("{} has a \"meta\" that tandem did not write: {}", source, error.what()));
}

}  // namespace tandem::internal
