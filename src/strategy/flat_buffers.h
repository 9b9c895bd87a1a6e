#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "strategy/variables.h"

namespace tandem::internal {

// Where one parameter lies in its group's buffer. The element at `end` is no parameter's: see
// gradient_exchange.h.
struct Slot {
  std::string name;
  int group = 0;
  std::int64_t begin = 0;  // in elements
  std::int64_t end = 0;
  std::vector<std::int64_t> sizes;
  std::vector<std::int64_t> strides;  // dense; channels-last stays channels-last
};

// Parameters of one dtype that the optimizer treats alike.
struct FlatGroup {
  at::ScalarType dtype = at::kFloat;
  int option_group = 0;
  std::int64_t elements = 0;
  int storage = 0;
  std::int64_t begin = 0;  // in its storage
};

// All groups of one dtype, one behind the other.
struct FlatStorage {
  at::ScalarType dtype = at::kFloat;
  std::int64_t elements = 0;
};

// Makes every trainable parameter of every replica a view into one contiguous buffer per group, and its
// gradient a view into a twin of it, so that reductions and the optimizer run over a few large ranges. Slots
// lie in the order of the parameters, each begins at a cache line, and the gaps hold zeros.
class FlatBuffers {
 public:
  // option_group(name, parameter) tells which of the optimizer's option groups a parameter belongs to.
  // `gradients_on_host`: GPU replicas get a place on the CPU for a copy of their gradients; see
  // stage_gradients(). Throws InvalidArgument if no parameter is trainable and there is no table either.
  FlatBuffers(std::shared_ptr<Variables> variables,
              const std::function<int(const std::string&, const at::Tensor&)>& option_group,
              bool gradients_on_host = false);
  ~FlatBuffers();
  FlatBuffers(const FlatBuffers&) = delete;
  FlatBuffers& operator=(const FlatBuffers&) = delete;

  int replicas() const { return variables_->replicas(); }
  bool central() const { return variables_->placement() == Placement::kCentral; }
  const std::vector<Slot>& slots() const { return slots_; }
  const std::vector<FlatGroup>& groups() const { return groups_; }
  const std::vector<FlatStorage>& storages() const { return storages_; }

  // A group's whole buffer on the replica's device. With central storage the CPU replicas have one and the
  // same.
  const at::Tensor& parameters(int replica, int group) const;
  const at::Tensor& gradients(int replica, int group) const;

  // The buffer that a replica's shard of the update is done in: its own, or with central storage the one copy
  // on the CPU.
  const at::Tensor& home(int replica, int group) const;
  // A replica's gradients as the CPU sees them: for a GPU replica, what stage_gradients() copied last.
  const at::Tensor& host_gradients(int replica, int group) const;
  // The same of all groups of one dtype.
  const at::Tensor& host_gradient_storage(int replica, int storage) const;
  void stage_gradients(int replica);

  // One parameter of one replica (the leaf tensor of the module).
  const at::Tensor& parameter(int replica, std::size_t slot) const;

  // On the replica's thread, before backward: zeroes its gradients and attaches them again where something
  // replaced them. Throws FailedPrecondition, naming it, if a parameter no longer lies in its slot.
  void begin_step(int replica);

  // Whether backward reached the parameter on this replica since begin_step(), as far as it has come.
  bool was_reached(int replica, std::size_t slot) const;
  // The same on any replica. Only while no replica is in backward.
  bool has_gradient(std::size_t slot) const;
  bool all_have_gradients() const;

  // `flat` (a group's buffer or one like it) seen as this slot's parameter.
  at::Tensor view(const at::Tensor& flat, const Slot& slot) const;

 private:
  struct Replica {
    std::vector<at::Tensor> leaves;          // by slot
    std::vector<at::Tensor> gradient_views;  // by slot
    std::vector<at::Tensor> parameters;      // by group
    std::vector<at::Tensor> gradients;       // by group
    std::vector<at::Tensor> staged;          // by group; of a GPU replica whose gradients go to the CPU
    std::vector<at::Tensor> host_gradients;  // by storage
    std::vector<std::uint8_t> reached;       // by slot; written by hooks on the replica's thread
    std::vector<unsigned> hooks;             // by slot
  };

  void lay_out(const std::function<int(const std::string&, const at::Tensor&)>& option_group);
  void attach(int replica, bool gradients_on_host);
  std::vector<at::Tensor> make_storages(const c10::Device& device) const;
  // The groups in them.
  std::vector<at::Tensor> cut_in_groups(const std::vector<at::Tensor>& storages) const;

  std::shared_ptr<Variables> variables_;
  std::vector<std::size_t> places_;  // by slot, in the variables' parameters
  std::vector<Slot> slots_;
  std::vector<FlatGroup> groups_;
  std::vector<FlatStorage> storages_;
  std::vector<Replica> replicas_;
  std::vector<at::Tensor> central_;  // by group; empty unless storage is central
};

}  // namespace tandem::internal
