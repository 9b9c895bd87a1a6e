#include <torch/torch.h>

#include <algorithm>

#include "comm/local/shared_memory.h"
#include "strategy/optimizer_slots.h"
#include "strategy/updater.h"

namespace tandem::internal {
namespace {

constexpr const char* kName = "minimize";

// A range of one group's buffer that the optimizer sees as one tensor. At first a replica has one per group:
// its shard. A parameter without a gradient must be left out of a step (a zero gradient is not a missing one:
// decay and momentum would still move it), so a segment in which some have one and some do not is cut in
// pieces, state and all, and stays so.
struct Segment {
  int group = 0;
  std::int64_t begin = 0;
  std::int64_t end = 0;
  at::Tensor parameter;  // a view of this replica's parameters; its gradient is a view of the sum
};

// Tells slots apart that may not share a segment.
using SlotKey = std::function<std::string(const Slot&, std::size_t index)>;

class ShardedUpdater final : public Updater {
 public:
  ShardedUpdater(std::shared_ptr<Variables> variables, const OptimizerSpec& spec, const MeetingPlace& place)
      : Updater(std::move(variables), spec, place), meeting_(place.meeting), shards_(times_.size()) {
    for (int replica = 0; replica < buffers_.replicas(); ++replica) make_shard(replica, spec);
  }

  void apply(int replica) override {
    const torch::NoGradGuard no_grad;
    UpdateTimes& times = times_[static_cast<std::size_t>(replica)];
    if (exchange_) {
      timed("exchange", times.exchange, [&] { exchange_->finish(replica); });
    } else {
      timed("reduce", times.reduce, [&] { buffers_.stage_gradients(replica); });
      timed("wait for replicas", times.wait,
            [&] { meeting_.arrive(replica, kName); });  // every replica's gradients are complete
    }
    bool skip = false;
    timed("reduce", times.reduce, [&] {
      choose_segments(replica);
      if (!exchange_) reduce(replica);
      skip = !scales_.empty() && !unscale(replica);
      if (global_clipnorm_ > 0 && !skip) clip(replica);
    });
    timed("update", times.update, [&] {
      if (skip) return;
      optimizer(replica).step();
      hand_out(replica);
    });
    timed("wait for replicas", times.wait,
          [&] { meeting_.arrive(replica, kName); });  // every shard is written
  }

  OptimizerState state() const override;
  void load_state(const OptimizerState& state) override;

 private:
  struct Shard {
    std::vector<Segment> segments;
    std::vector<std::pair<std::int64_t, std::int64_t>> ranges;  // by group
    std::vector<at::Tensor> sums;                               // by group; only its range is used
    bool left_out = false;                                      // whether a segment has no gradient now
    double squares = 0;                                         // of its range, where gradients are clipped
    bool finite = true;                                         // its range, where losses are scaled
  };

  Shard& shard(int replica) { return shards_[static_cast<std::size_t>(replica)]; }
  const Shard& shard(int replica) const { return shards_[static_cast<std::size_t>(replica)]; }

  void make_shard(int replica, const OptimizerSpec& spec);
  Segment make_segment(int replica, int group, std::int64_t begin, std::int64_t end);
  void choose_segments(int replica);
  void cut(int replica, const SlotKey& key);
  void give_to_optimizer(int replica);
  void reduce(int replica);
  bool unscale(int replica);
  void clip(int replica);
  // The gradients of its range.
  void multiply(int replica, double factor);
  void hand_out(int replica);
  // The slot whose elements a segment begins with (or with the gap behind it).
  std::size_t slot_at(int group, std::int64_t element) const;

  Meeting& meeting_;
  std::vector<Shard> shards_;
};

void ShardedUpdater::make_shard(int replica, const OptimizerSpec& spec) {
  Shard& mine = shard(replica);
  std::vector<std::vector<at::Tensor>> by_option(static_cast<std::size_t>(spec.option_groups));
  for (int group = 0; group < static_cast<int>(buffers_.groups().size()); ++group) {
    const FlatGroup& flat = buffers_.groups()[static_cast<std::size_t>(group)];
    const auto [begin, end] = share_of(flat.elements, replica, buffers_.replicas());
    mine.ranges.emplace_back(begin, end);
    if (exchange_) {
      mine.sums.push_back(exchange_->sum(group));
    } else {
      // A lone replica's sum is its gradient.
      mine.sums.push_back(buffers_.replicas() == 1 ? buffers_.host_gradients(0, group)
                                                   : at::empty_like(buffers_.host_gradients(replica, group)));
    }
    if (begin == end) continue;
    mine.segments.push_back(make_segment(replica, group, begin, end));
    by_option[static_cast<std::size_t>(flat.option_group)].push_back(mine.segments.back().parameter);
  }
  optimizers_.push_back(spec.make(std::move(by_option)));
}

Segment ShardedUpdater::make_segment(int replica, int group, std::int64_t begin, std::int64_t end) {
  const torch::NoGradGuard no_grad;
  Segment segment{group, begin, end, buffers_.home(replica, group).slice(0, begin, end).detach()};
  segment.parameter.mutable_grad() =
      shard(replica).sums[static_cast<std::size_t>(group)].slice(0, begin, end);
  return segment;
}

std::size_t ShardedUpdater::slot_at(int group, std::int64_t element) const {
  std::size_t found = 0;
  for (std::size_t i = 0; i < buffers_.slots().size(); ++i) {
    if (buffers_.slots()[i].group == group && buffers_.slots()[i].begin <= element) found = i;
  }
  return found;
}

// Leaves segments without a gradient out of this step.
void ShardedUpdater::choose_segments(int replica) {
  Shard& mine = shard(replica);
  const bool all = all_have_gradients();
  if (all && !mine.left_out) return;
  if (!all) cut(replica, [&](const Slot&, std::size_t i) { return has_gradient(i) ? "with" : "without"; });
  mine.left_out = false;
  for (Segment& segment : mine.segments) {
    const bool present = all || has_gradient(slot_at(segment.group, segment.begin));
    const at::Tensor& sum = mine.sums[static_cast<std::size_t>(segment.group)];
    segment.parameter.mutable_grad() = present ? sum.slice(0, segment.begin, segment.end) : at::Tensor();
    mine.left_out = mine.left_out || !present;
  }
}

// Cuts the segments wherever two neighbouring slots have different keys.
void ShardedUpdater::cut(int replica, const SlotKey& key) {
  Shard& mine = shard(replica);
  std::vector<Segment> cut_up;
  for (const Segment& segment : mine.segments) {
    std::vector<std::int64_t> ends;
    std::string current =
        key(buffers_.slots()[slot_at(segment.group, segment.begin)], slot_at(segment.group, segment.begin));
    for (std::size_t i = 0; i < buffers_.slots().size(); ++i) {
      const Slot& slot = buffers_.slots()[i];
      if (slot.group != segment.group || slot.begin <= segment.begin || slot.begin >= segment.end) continue;
      if (std::string next = key(slot, i); next != current) {
        ends.push_back(slot.begin);
        current = std::move(next);
      }
    }
    if (ends.empty()) {
      cut_up.push_back(segment);
      continue;
    }
    ends.push_back(segment.end);
    const OptimizerSlots whole = get_slots(optimizer(replica), segment.parameter);
    set_slots(optimizer(replica), segment.parameter, {});
    std::int64_t begin = segment.begin;
    for (const std::int64_t end : ends) {
      Segment piece = make_segment(replica, segment.group, begin, end);
      OptimizerSlots part{.tensors = {}, .counters = whole.counters};
      for (const auto& [name, tensor] : whole.tensors) {
        part.tensors[name] = tensor.slice(0, begin - segment.begin, end - segment.begin).clone();
      }
      set_slots(optimizer(replica), piece.parameter, part);
      cut_up.push_back(std::move(piece));
      begin = end;
    }
  }
  mine.segments = std::move(cut_up);
  give_to_optimizer(replica);
}

void ShardedUpdater::give_to_optimizer(int replica) {
  auto& groups = optimizer(replica).param_groups();
  for (auto& group : groups) group.params().clear();
  for (const Segment& segment : shard(replica).segments) {
    const int option = buffers_.groups()[static_cast<std::size_t>(segment.group)].option_group;
    groups[static_cast<std::size_t>(option)].params().push_back(segment.parameter);
  }
}

void ShardedUpdater::reduce(int replica) {
  if (buffers_.replicas() == 1) return;
  Shard& mine = shard(replica);
  for (int group = 0; group < static_cast<int>(mine.ranges.size()); ++group) {
    const auto [begin, end] = mine.ranges[static_cast<std::size_t>(group)];
    std::vector<at::Tensor> sources;
    for (int r = 0; r < buffers_.replicas(); ++r) sources.push_back(buffers_.host_gradients(r, group));
    sum_range(sources, {mine.sums[static_cast<std::size_t>(group)]}, begin, end);
  }
}

// False if a gradient is not finite, in whatever range: the replicas meet to know. The sums, and so the
// answer, are the same on all tasks.
bool ShardedUpdater::unscale(int replica) {
  Shard& mine = shard(replica);
  mine.finite = true;
  for (int group = 0; group < static_cast<int>(mine.ranges.size()); ++group) {
    const auto [begin, end] = mine.ranges[static_cast<std::size_t>(group)];
    mine.finite = mine.finite && finite(mine.sums[static_cast<std::size_t>(group)], group, begin, end);
  }
  meeting_.arrive(replica, kName);
  const bool all = std::ranges::all_of(shards_, &Shard::finite);
  if (all) multiply(replica, 1 / loss_scale(replica));
  scales_[static_cast<std::size_t>(replica)].settle(all);
  return all;
}

// The norm is of all ranges, so the replicas meet once more.
void ShardedUpdater::clip(int replica) {
  Shard& mine = shard(replica);
  mine.squares = 0;
  for (int group = 0; group < static_cast<int>(mine.ranges.size()); ++group) {
    const auto [begin, end] = mine.ranges[static_cast<std::size_t>(group)];
    mine.squares += squares(mine.sums[static_cast<std::size_t>(group)], group, begin, end);
  }
  meeting_.arrive(replica, kName);
  double all = 0;
  for (const Shard& each : shards_) all += each.squares;
  const double factor = clip_factor(all);
  if (factor != 1) multiply(replica, factor);
}

void ShardedUpdater::multiply(int replica, double factor) {
  for (Segment& segment : shard(replica).segments) {
    if (segment.parameter.grad().defined()) segment.parameter.mutable_grad().mul_(factor);
  }
}

void ShardedUpdater::hand_out(int replica) {
  Shard& mine = shard(replica);
  for (int group = 0; group < static_cast<int>(mine.ranges.size()); ++group) {
    const auto [begin, end] = mine.ranges[static_cast<std::size_t>(group)];
    const at::Tensor& home = buffers_.home(replica, group);
    std::vector<at::Tensor> others;
    for (int r = 0; r < buffers_.replicas(); ++r) {
      const at::Tensor& theirs = buffers_.parameters(r, group);
      if (theirs.is_same(home)) continue;  // its own, or the one copy of central storage
      if (theirs.is_cpu()) {
        others.push_back(theirs);
      } else {
        theirs.slice(0, begin, end).copy_(home.slice(0, begin, end));
      }
    }
    if (!others.empty()) sum_range({home}, others, begin, end);
  }
}

OptimizerState ShardedUpdater::state() const {
  const torch::NoGradGuard no_grad;
  // First the slots as whole buffers like the parameters', pieced together from the segments of all shards.
  std::vector<std::map<std::string, at::Tensor>> whole(buffers_.groups().size());
  OptimizerState state;
  for (int replica = 0; replica < buffers_.replicas(); ++replica) {
    for (const Segment& segment : shard(replica).segments) {
      const OptimizerSlots slots = get_slots(optimizer(replica), segment.parameter);
      auto& group = whole[static_cast<std::size_t>(segment.group)];
      for (const auto& [name, tensor] : slots.tensors) {
        auto [buffer, is_new] = group.try_emplace(name);
        if (is_new) buffer->second = at::zeros_like(buffers_.parameters(0, segment.group));
        buffer->second.slice(0, segment.begin, segment.end).copy_(tensor);
      }
      for (const Slot& slot : buffers_.slots()) {
        if (slot.group != segment.group || slot.begin < segment.begin || slot.begin >= segment.end) continue;
        for (const auto& [name, value] : slots.counters)
          state[slot.name][name] = at::scalar_tensor(value, at::kLong);
        for (const auto& [name, tensor] : slots.tensors) state[slot.name][name] = at::Tensor();
      }
    }
  }
  for (const Slot& slot : buffers_.slots()) {
    const auto found = state.find(slot.name);
    if (found == state.end()) continue;
    for (auto& [name, tensor] : found->second) {
      if (tensor.defined()) continue;
      const at::Tensor& flat = whole[static_cast<std::size_t>(slot.group)].at(name);
      tensor = buffers_.view(flat, slot).clone(at::MemoryFormat::Contiguous);
    }
  }
  return state;
}

void ShardedUpdater::load_state(const OptimizerState& state) {
  const torch::NoGradGuard no_grad;
  check_state(state);
  // A segment has one set of counters, so parameters that have been updated a different number of times part
  // ways here.
  const auto key = [&](const Slot& slot, std::size_t) {
    std::string text;
    const auto found = state.find(slot.name);
    if (found == state.end()) return text;
    for (const auto& [name, tensor] : found->second) {
      text += name + (is_counter(tensor) ? "=" + std::to_string(tensor.item<std::int64_t>()) : "") + ";";
    }
    return text;
  };
  for (int replica = 0; replica < buffers_.replicas(); ++replica) {
    cut(replica, key);
    for (const Segment& segment : shard(replica).segments) {
      OptimizerSlots slots;
      for (const Slot& slot : buffers_.slots()) {
        const auto found = state.find(slot.name);
        if (slot.group != segment.group || slot.end <= segment.begin || slot.begin >= segment.end ||
            found == state.end()) {
          continue;
        }
        for (const auto& [name, tensor] : found->second) {
          if (is_counter(tensor)) {
            slots.counters[name] = tensor.item<std::int64_t>();
            continue;
          }
          // The whole slot in storage order, of which the segment may hold only a part.
          const at::Tensor stored = at::empty_strided(slot.sizes, slot.strides, segment.parameter.options());
          stored.copy_(tensor);
          const at::Tensor line = stored.as_strided({slot.end - slot.begin}, {1});
          auto [buffer, is_new] = slots.tensors.try_emplace(name);
          if (is_new) buffer->second = at::zeros_like(segment.parameter);
          const std::int64_t begin = std::max(slot.begin, segment.begin);
          const std::int64_t end = std::min(slot.end, segment.end);
          buffer->second.slice(0, begin - segment.begin, end - segment.begin)
              .copy_(line.slice(0, begin - slot.begin, end - slot.begin));
        }
      }
      // Without a saved state a segment keeps the one it began with (Adagrad's is not empty).
      if (!slots.empty()) set_slots(optimizer(replica), segment.parameter, slots);
    }
  }
}

}  // namespace

std::unique_ptr<Updater> make_sharded_updater(std::shared_ptr<Variables> variables, const OptimizerSpec& spec,
                                              const MeetingPlace& place) {
  return std::make_unique<ShardedUpdater>(std::move(variables), spec, place);
}

}  // namespace tandem::internal
