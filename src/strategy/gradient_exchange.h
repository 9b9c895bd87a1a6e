#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>
#include <mutex>
#include <vector>

#include "base/meeting.h"
#include "strategy/flat_buffers.h"
#include "strategy/packs.h"
#include "strategy/sync_group.h"

namespace torch::autograd {
struct Node;
}

namespace tandem::internal {

// Sums the gradients over all replicas of all tasks, each task sending what its replicas add up to once.
//
// Several packs leave while backward goes on: one as soon as all replicas of this task have its gradients and
// those before it have left, so that the order is the same on every task. What backward never reaches goes at
// its end. A single pack leaves after backward, straight from the gradients if there is one replica.
//
// Whether a parameter has a gradient at all must be agreed on, for a parameter without one is left out of the
// update. No message of its own says so: behind each slot lies an element that is no parameter's, in which a
// replica puts 1 if backward reached the slot. It is summed along, and anything but 0 means yes.
class GradientExchange {
 public:
  GradientExchange(FlatBuffers& buffers, SyncGroup& tasks, Meeting& meeting);
  ~GradientExchange();
  GradientExchange(const GradientExchange&) = delete;
  GradientExchange& operator=(const GradientExchange&) = delete;

  // On each replica's thread, before backward.
  void begin_step(int replica);
  // On each replica's thread, after backward: returns when the sums stand. A collective of all replicas of
  // all tasks; throws what Meeting and SyncGroup do.
  void finish(int replica);

  // After finish(), until the replicas meet again: a group's summed gradients, the same memory for all
  // replicas of this task.
  const at::Tensor& sum(int group) const { return sums_[static_cast<std::size_t>(group)]; }
  // Whether backward reached the parameter anywhere.
  bool has_gradient(std::size_t slot) const { return present_[slot] != 0; }
  bool all_have_gradients() const { return all_present_; }

  const std::vector<Pack>& packs() const { return packs_; }

 private:
  class Hook;

  // What a replica's own thread knows of its backward.
  struct Progress {
    bool in_backward = false;
    std::vector<std::uint8_t> arrived;  // by slot
    std::vector<std::size_t> missing;   // by pack
  };
  struct HookPlace {
    std::shared_ptr<torch::autograd::Node> accumulator;  // the variable holds it only weakly
    std::uintptr_t key;
  };

  void install_hooks();
  void arrived(int replica, std::size_t slot);
  void complete(std::size_t pack);
  void launch(std::size_t pack);
  void mark_slots(int replica, const Pack& pack);
  void finish_one_pack(int replica);
  void finish_packs(int replica);
  // The part of the sums, or of what stands for them between the tasks, that a pack is.
  at::Tensor range(const std::vector<at::Tensor>& storages, const Pack& pack) const;
  // After the last pack has come: what the tasks agreed on.
  void take_result();

  FlatBuffers& buffers_;
  SyncGroup& tasks_;
  Meeting& meeting_;
  std::vector<Pack> packs_;
  std::vector<std::size_t> pack_of_;   // by slot
  std::vector<at::Tensor> storages_;   // by storage: sums; a lone CPU replica's are its gradients
  std::vector<at::Tensor> wires_;      // by storage: what travels, if not the sums themselves
  std::vector<at::Tensor> sums_;       // by group, in storages_
  std::vector<std::uint8_t> present_;  // by slot
  bool all_present_ = false;

  std::vector<HookPlace> hooks_;
  std::vector<Progress> progress_;  // by replica

  std::mutex mutex_;
  std::vector<int> ready_;  // by pack: replicas that have it
  std::size_t next_ = 0;    // the pack that leaves next
  bool launching_ = false;
  std::vector<Pending> pending_;  // by pack
};

}  // namespace tandem::internal
