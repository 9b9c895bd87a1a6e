#include "strategy/ps_updater.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <torch/torch.h>

#include <algorithm>
#include <deque>
#include <exception>
#include <mutex>

#include "base/log.h"
#include "comm/local/shared_memory.h"
#include "strategy/optimizer_description.h"
#include "strategy/ps_layout.h"
#include "tandem/error.h"

namespace tandem::internal {
namespace {

using std::chrono::milliseconds;

constexpr const char* kPsMinimize = "minimize";
// A ps that is gone is given up by its link, after ps_outage. This is for one that is there and does not
// answer, or makes this worker wait for others.
constexpr milliseconds kAnswerPatience = std::chrono::hours(1);
constexpr milliseconds kFarewellPatience{2000};

// The tables as variables of a plan. How the optimizer treats them is asked with a tensor that has no memory.
std::vector<ps::PlanVariable> planned_tables(const Variables& variables, const OptimizerSpec& spec) {
  std::vector<ps::PlanVariable> planned;
  for (const auto& table : variables.tables()) {
    const at::Tensor shape = at::empty({table->rows, table->columns}, at::kMeta);
    planned.push_back({.name = table->name,
                       .dtype = "F32",
                       .shape = {table->rows, table->columns},
                       .option_group = spec.option_group ? spec.option_group(table->name, shape) : 0,
                       .first_values = ps::NormalValues{.stddev = table->stddev, .seed = table->seed}});
  }
  return planned;
}

// Of rows that ascend, those of one shard: where they are, and their numbers in it.
struct RowsOfShard {
  std::size_t begin = 0;
  std::vector<std::int64_t> ids = {};
};
RowsOfShard rows_of_shard(const at::Tensor& rows, const ps::Shard& shard) {
  const std::span all(rows.data_ptr<std::int64_t>(), static_cast<std::size_t>(rows.numel()));
  const auto begin = std::ranges::lower_bound(all, shard.row_begin);
  const auto end = std::ranges::lower_bound(all, shard.row_end);
  RowsOfShard mine{.begin = static_cast<std::size_t>(begin - all.begin()), .ids = {begin, end}};
  for (std::int64_t& id : mine.ids) id -= shard.row_begin;
  return mine;
}

// The bytes of so many rows.
std::span<std::byte> bytes_of_rows(const at::Tensor& values, std::size_t begin, std::size_t count) {
  const std::size_t row_bytes = static_cast<std::size_t>(values.size(1)) * values.element_size();
  return {static_cast<std::byte*>(values.data_ptr()) + begin * row_bytes, count * row_bytes};
}

class PsUpdater final : public Updater, private VariableHome, private RowSource {
 public:
  PsUpdater(std::shared_ptr<Variables> variables, const OptimizerSpec& spec, const MeetingPlace& place,
            std::shared_ptr<PsSession> session, const PsUpdaterOptions& options)
      : Updater(variables, spec, place),
        variables_(std::move(variables)),
        meeting_(place.meeting),
        session_(std::move(session)),
        layout_(buffers_, planned_tables(*variables_, spec),
                {.num_ps = session_->num_ps(),
                 .ps_strategy = options.ps_strategy,
                 .partitioner = options.partitioner}) {
    if (global_clipnorm_ > 0 && options.workers_in_sync && session_->num_computing() > 1) {
      throw InvalidArgument(
          "global_clipnorm is of all workers' gradients, which with max_staleness 0 no worker knows: use "
          "another "
          "strategy, or max_staleness 1 or more (then each worker's gradients are clipped on their own)");
    }
    if (spec.loss_scale) {
      throw InvalidArgument(
          "loss scaling (float16) needs one decision about each step, which asynchronous workers do not "
          "take: use "
          "bfloat16 with parameter servers");
    }
    // Only what it is and its learning rate are of use here.
    std::vector<std::vector<at::Tensor>> probe(static_cast<std::size_t>(spec.option_groups));
    for (auto& group : probe) group.push_back(at::zeros({1}));
    optimizers_.push_back(spec.make(std::move(probe)));
    optimizer_text_ = describe_optimizer(*optimizers_.front());
    for (int group = 0; group < static_cast<int>(buffers_.groups().size()); ++group) {
      const at::Tensor& gradients = buffers_.host_gradients(0, group);
      // A lone replica's sum is its gradient.
      sums_.push_back(buffers_.replicas() == 1 ? gradients : at::zeros_like(gradients));
      pulled_.push_back(at::zeros_like(gradients));
    }
    client_options_ = session_->client_options();
    client_options_.bfloat16 = options.bfloat16;
    client_options_.ps_outage = options.ps_outage;
    client_ = std::make_unique<ps::PsClient>(layout_.plan(), client_options_);
    if (session_->is_chief()) tell_plan();
    variables_->set_home(this);
    for_each_table([this](std::size_t number, RemoteTable& table) {
      table.source = this;
      table.number = number;
    });
  }

  ~PsUpdater() override {
    variables_->leave_home(this);
    for_each_table([this](std::size_t, RemoteTable& table) {
      if (table.source == this) table.source = nullptr;
    });
    if (std::uncaught_exceptions() > 0) return;
    try {
      client_->finish(kFarewellPatience);
    } catch (const std::exception& error) {
      log_warning("{}: {}", session_->name(), error.what());
    }
    if (const std::uint64_t lost = client_->lost_updates(); lost > 0) {
      log_warning("{}: {} updates of this worker were lost with parameter servers that had to start again",
                  session_->name(), lost);
    }
  }

  // What is left of a step that failed is not part of this one.
  void begin_step(int replica) override {
    if (!has_parts(replica)) forget_row_gradients(replica);
    Updater::begin_step(replica);
  }

  void apply(int replica) override {
    const torch::NoGradGuard no_grad;
    UpdateTimes& times = times_[static_cast<std::size_t>(replica)];
    timed("reduce", times.reduce, [&] { buffers_.stage_gradients(replica); });
    timed("wait for replicas", times.wait,
          [&] { meeting_.arrive(replica, kPsMinimize); });  // every replica's gradients are complete
    timed("reduce", times.reduce, [&] { reduce(replica); });
    if (buffers_.replicas() > 1)
      timed("wait for replicas", times.wait,
            [&] { meeting_.arrive(replica, kPsMinimize); });  // the sum stands
    if (replica == 0) timed("exchange", times.exchange, [&] { push(); });
    if (buffers_.replicas() > 1)
      timed("wait for replicas", times.wait, [&] { meeting_.arrive(replica, kPsMinimize); });  // it is pushed
    forget_row_gradients(replica);
  }

  OptimizerState state() const override;
  void load_state(const OptimizerState& state) override;

  std::optional<std::int64_t> global_step() const override { return global_step_; }
  void set_global_step(std::int64_t step) override {
    count_steps(step);
    if (begun_ && session_->is_chief()) assign(client_->read_shards(kAnswerPatience));
  }

 private:
  void forget_row_gradients(int replica) {
    for (const auto& table : variables_->tables(replica)) table->gradients.clear();
  }
  void tell_plan() const;
  void count_steps(std::int64_t global_step) {
    global_step_ = global_step;
    session_->set_step(global_step);
  }
  bool begin();
  void reduce(int replica);
  void push();
  void sum_rows();
  void add_rows(std::vector<ps::Gradient>& gradients);
  void install();
  ps::PsHandle pull(std::uint64_t step);
  std::vector<ps::ShardImage> own_images() const;
  void assign(const std::vector<ps::ShardImage>& images);

  // On every replica.
  template <typename Fn>
  void for_each_table(Fn fn) const {
    for (int replica = 0; replica < buffers_.replicas(); ++replica) {
      const auto& tables = variables_->tables(replica);
      for (std::size_t number = 0; number < tables.size(); ++number) fn(number, *tables[number]);
    }
  }

  // VariableHome
  void settle() override;
  void fetch() override;
  void store() override;
  void look_again() override;

  // RowSource
  at::Tensor pull_rows(std::size_t table, const at::Tensor& rows, bool for_step) override;

  const std::shared_ptr<Variables> variables_;
  Meeting& meeting_;
  const std::shared_ptr<PsSession> session_;
  const PsLayout layout_;
  std::string optimizer_text_;
  std::vector<at::Tensor> sums_;    // by group
  std::vector<at::Tensor> pulled_;  // by group: where values arrive
  bool begun_ = false;
  bool gives_anew_ = false;  // what the ps tasks have is no longer to hold
  OptimizerState first_state_;
  std::int64_t global_step_ = 0;
  std::uint64_t step_ = 0;  // of this worker
  std::uint64_t rejected_ = 0;
  std::optional<ps::PsHandle> arriving_;

  // Rows are asked for by several replicas at once; whatever else the client is told, while none computes.
  std::mutex asking_;
  // Where rows arrive, and what is asked for.
  struct Lookup {
    at::Tensor values;
    std::deque<RowsOfShard> parts;
  };
  std::vector<std::shared_ptr<Lookup>> failed_lookups_;  // their memory may still be written to
  // What was pushed last: the sums by table, and the numbers by shard.
  std::vector<std::optional<RowGradient>> row_sums_;
  std::deque<RowsOfShard> pushed_rows_;

  ps::PsClientOptions client_options_;
  std::unique_ptr<ps::PsClient> client_;  // last: it reads and writes the buffers until it is gone
};

void PsUpdater::tell_plan() const {
  log_info("{}: {}", session_->name(), layout_.plan().table());
  for (const int ps : layout_.plan().idle_ps()) {
    log_warning("{}: ps {} gets no variable: start fewer ps tasks, or cut large variables with a partitioner",
                session_->name(), ps);
  }
}

// The chief gives its values, unless the ps tasks have some already; everybody then has theirs. Whether they
// are those of before.
bool PsUpdater::begin() {
  bool mine = false;
  if (session_->is_chief()) {
    const std::vector<ps::ShardImage> images = own_images();
    mine = client_->initialise(optimizer_text_, images, static_cast<std::uint64_t>(global_step_)) == 0;
    if (!mine && gives_anew_) {
      // Those that were not lost are ahead of the others.
      assign(images);
    } else if (!mine) {
      log_info("{}: the parameter servers go on with what they have", session_->name());
    }
  }
  client_->wait_until_ready();
  begun_ = true;
  gives_anew_ = false;
  first_state_.clear();
  step_ = client_->first_step();
  count_steps(static_cast<std::int64_t>(client_->global_step()));
  if (mine) return true;
  arriving_ = pull(step_);
  settle();
  return false;
}

void PsUpdater::settle() {
  if (!begun_) begin();
  if (!arriving_) return;
  const TraceSpan span("wait for values");
  arriving_->wait(kAnswerPatience);
  arriving_.reset();
  install();
}

void PsUpdater::install() {
  const torch::NoGradGuard no_grad;
  for (int replica = 0; replica < buffers_.replicas(); ++replica) {
    for (int group = 0; group < static_cast<int>(pulled_.size()); ++group) {
      buffers_.parameters(replica, group).copy_(pulled_[static_cast<std::size_t>(group)]);
    }
  }
}

void PsUpdater::fetch() {
  if (!begun_) return;
  if (arriving_) settle();
  // For no step in particular: as it is now.
  arriving_ = pull(0);
  settle();
  count_steps(static_cast<std::int64_t>(client_->global_step()));
}

void PsUpdater::store() {
  if (!begun_) return;
  if (!session_->is_chief()) {
    log_warning("{}: values that a worker sets hold until its next step: the chief sets those of all",
                session_->name());
    return;
  }
  std::vector<ps::ShardImage> images = client_->read_shards(kAnswerPatience);
  const std::vector<ps::ShardImage> own = own_images();
  for (std::size_t shard = 0; shard < layout_.num_slot_shards(); ++shard) {
    images[shard].values = own[shard].values;
  }
  assign(images);
}

// As another process of the same worker would.
void PsUpdater::look_again() {
  if (!client_->is_lost()) return;
  arriving_.reset();
  client_.reset();  // its threads are gone before others come
  client_ = std::make_unique<ps::PsClient>(layout_.plan(), client_options_);
  gives_anew_ = gives_anew_ || begun_;
  begun_ = false;
}

void PsUpdater::assign(const std::vector<ps::ShardImage>& images) {
  client_->assign(images, static_cast<std::uint64_t>(global_step_), kAnswerPatience);
}

// Of the first replica, which all are equal to.
std::vector<ps::ShardImage> PsUpdater::own_images() const {
  std::vector<at::Tensor> values;
  for (int group = 0; group < static_cast<int>(buffers_.groups().size()); ++group) {
    values.push_back(buffers_.parameters(0, group).to(at::kCPU));
  }
  std::vector<ps::ShardImage> images(layout_.plan().shards().size());
  for (std::size_t shard = 0; shard < layout_.num_slot_shards(); ++shard) {
    const auto bytes = layout_.bytes(values, shard);
    images[shard].values.assign(bytes.begin(), bytes.end());
  }
  for (std::size_t slot = 0; slot < buffers_.slots().size(); ++slot) {
    const auto found = first_state_.find(buffers_.slots()[slot].name);
    if (found != first_state_.end()) layout_.set_state(slot, found->second, images);
  }
  return images;
}

void PsUpdater::reduce(int replica) {
  if (buffers_.replicas() == 1) return;
  for (int group = 0; group < static_cast<int>(sums_.size()); ++group) {
    std::vector<at::Tensor> sources;
    for (int r = 0; r < buffers_.replicas(); ++r) sources.push_back(buffers_.host_gradients(r, group));
    const at::Tensor& sum = sums_[static_cast<std::size_t>(group)];
    const auto [begin, end] = share_of(sum.numel(), replica, buffers_.replicas());
    sum_range(sources, {sum}, begin, end);
  }
}

// Over all lookups of all replicas.
void PsUpdater::sum_rows() {
  row_sums_.assign(variables_->tables().size(), std::nullopt);
  for (std::size_t number = 0; number < row_sums_.size(); ++number) {
    std::vector<RowGradient> all;
    for (int replica = 0; replica < buffers_.replicas(); ++replica) {
      auto& mine = variables_->tables(replica)[number]->gradients;
      all.insert(all.end(), mine.begin(), mine.end());
      mine.clear();
    }
    if (!all.empty()) row_sums_[number] = sum_of(all);
  }
}

// A table, or a part of it, of which no row was looked up is left out.
void PsUpdater::add_rows(std::vector<ps::Gradient>& gradients) {
  pushed_rows_.clear();
  for (std::size_t number = 0; number < row_sums_.size(); ++number) {
    const auto& sum = row_sums_[number];
    if (!sum) continue;
    std::size_t shard = layout_.first_shard_of_table(number);
    for (const ps::Shard& part : layout_.shards_of_table(number)) {
      const RowsOfShard& mine = pushed_rows_.emplace_back(rows_of_shard(sum->rows, part));
      if (!mine.ids.empty()) {
        gradients.push_back({.shard = shard,
                             .values = bytes_of_rows(sum->values, mine.begin, mine.ids.size()),
                             .row_ids = mine.ids});
      }
      ++shard;
    }
  }
}

// On replica 0's thread, while the others wait.
void PsUpdater::push() {
  // The first step of a custom loop whose optimizer was not bound before. Gradients of values that are not
  // those of the ps tasks are of no use: this step only brings them.
  if (!begun_ && !begin()) return;
  sum_rows();
  if (global_clipnorm_ > 0) {
    double all = 0;
    for (const auto& sum : row_sums_) {
      if (sum) all += sum->values.square().sum(at::kDouble).item<double>();
    }
    for (int group = 0; group < static_cast<int>(sums_.size()); ++group) {
      all += squares(sums_[static_cast<std::size_t>(group)], group, 0,
                     sums_[static_cast<std::size_t>(group)].numel());
    }
    if (const double factor = clip_factor(all); factor != 1) {
      for (const at::Tensor& sum : sums_) sum.mul_(factor);
      for (const auto& sum : row_sums_) {
        if (sum) sum->values.mul_(factor);
      }
    }
  }
  std::vector<ps::Gradient> gradients;
  for (std::size_t shard = 0; shard < layout_.num_slot_shards(); ++shard) {
    if (has_gradient(layout_.slot_of(shard))) {
      gradients.push_back({.shard = shard, .values = layout_.bytes(sums_, shard)});
    }
  }
  add_rows(gradients);
  ps::PushOrder order = session_->next_push();
  order.step = step_;
  order.learning_rate = learning_rate();
  const ps::PsOutcome outcome = client_->push_async(order, gradients).wait(kAnswerPatience);
  if (outcome.status == ps::Status::kRejected && rejected_++ == 0) {
    log_warning("{}: gradients that are not finite were left out ({}); more may be, without a word",
                session_->name(), outcome.message);
  }
  count_steps(static_cast<std::int64_t>(outcome.global_step));
  step_ = std::max(step_ + 1, outcome.next_step);
  arriving_ = pull(step_);
}

ps::PsHandle PsUpdater::pull(std::uint64_t step) {
  std::vector<ps::PullTarget> targets;
  for (std::size_t shard = 0; shard < layout_.num_slot_shards(); ++shard) {
    targets.push_back({.shard = shard, .values = layout_.bytes(pulled_, shard)});
  }
  return client_->pull_async(step, targets);
}

at::Tensor PsUpdater::pull_rows(std::size_t table, const at::Tensor& rows, bool for_step) {
  if (!begun_) {
    throw FailedPrecondition(
        fmt::format("the rows of {} can be looked up in Strategy::run(), fit(), evaluate() and predict()",
                    variables_->tables()[table]->name));
  }
  const auto lookup = std::make_shared<Lookup>();
  lookup->values = at::empty({rows.numel(), variables_->tables()[table]->columns});
  std::vector<ps::PullTarget> targets;
  std::size_t shard = layout_.first_shard_of_table(table);
  for (const ps::Shard& part : layout_.shards_of_table(table)) {
    RowsOfShard& mine = lookup->parts.emplace_back(rows_of_shard(rows, part));
    if (!mine.ids.empty()) {  // none would mean all
      targets.push_back({.shard = shard,
                         .values = bytes_of_rows(lookup->values, mine.begin, mine.ids.size()),
                         .row_ids = mine.ids});
    }
    ++shard;
  }
  std::optional<ps::PsHandle> handle;
  {
    const std::lock_guard lock(asking_);
    handle = client_->pull_async(for_step ? step_ : 0, targets);
  }
  try {
    handle->wait(kAnswerPatience);
  } catch (...) {
    const std::lock_guard lock(asking_);
    failed_lookups_.push_back(lookup);
    throw;
  }
  return lookup->values;
}

OptimizerState PsUpdater::state() const {
  if (!begun_) return first_state_;
  const torch::NoGradGuard no_grad;
  const std::vector<ps::ShardImage> images = client_->read_shards(kAnswerPatience);
  OptimizerState state;
  for (std::size_t slot = 0; slot < buffers_.slots().size(); ++slot) {
    auto of_slot = layout_.state_of(slot, images);
    if (!of_slot.empty()) state[buffers_.slots()[slot].name] = std::move(of_slot);
  }
  return state;
}

void PsUpdater::load_state(const OptimizerState& state) {
  const torch::NoGradGuard no_grad;
  check_state(state);
  if (!begun_) {
    first_state_ = state;
    return;
  }
  if (!session_->is_chief()) return;
  std::vector<ps::ShardImage> images = client_->read_shards(kAnswerPatience);
  for (ps::ShardImage& image : images) image.state.clear();
  for (std::size_t slot = 0; slot < buffers_.slots().size(); ++slot) {
    const auto found = state.find(buffers_.slots()[slot].name);
    if (found != state.end()) layout_.set_state(slot, found->second, images);
  }
  assign(images);
}

}  // namespace

std::unique_ptr<Updater> make_ps_updater(std::shared_ptr<Variables> variables, const OptimizerSpec& spec,
                                         const MeetingPlace& place, std::shared_ptr<PsSession> session,
                                         PsUpdaterOptions options) {
  return std::make_unique<PsUpdater>(std::move(variables), spec, place, std::move(session), options);
}

}  // namespace tandem::internal
