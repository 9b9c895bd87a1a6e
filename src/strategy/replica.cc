#include "tandem/replica.h"

#include <fmt/format.h>
#include <torch/torch.h>

#include "strategy/strategy_impl.h"
#include "tandem/error.h"
#include "tandem/strategy.h"

namespace tandem {
namespace {

at::Tensor sum_over_replicas(ReplicaContext& replica, const at::Tensor& tensor) {
  at::Tensor sum = tensor.detach().clone(at::MemoryFormat::Contiguous);
  replica.strategy().all_reduce(replica.local_id(), sum);
  return sum;
}

// Backward runs on the replica's own thread, so it finds the replica there.
struct SumOverReplicas : torch::autograd::Function<SumOverReplicas> {
  static at::Tensor forward(torch::autograd::AutogradContext*, const at::Tensor& tensor) {
    return sum_over_replicas(*get_replica_context(), tensor);
  }
  static torch::autograd::variable_list backward(torch::autograd::AutogradContext*,
                                                 torch::autograd::variable_list gradients) {
    return {sum_over_replicas(*get_replica_context(), gradients[0])};
  }
};

struct GatherOverReplicas : torch::autograd::Function<GatherOverReplicas> {
  static at::Tensor forward(torch::autograd::AutogradContext* context, const at::Tensor& tensor,
                            std::int64_t axis) {
    ReplicaContext& replica = *get_replica_context();
    const auto [all, begin] = replica.strategy().all_gather(replica.local_id(), tensor, axis);
    context->saved_data["axis"] = axis;
    context->saved_data["begin"] = begin;
    context->saved_data["length"] = tensor.size(axis);
    return all;
  }
  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* context,
                                                 torch::autograd::variable_list gradients) {
    const at::Tensor sum = sum_over_replicas(*get_replica_context(), gradients[0]);
    return {sum.narrow(context->saved_data["axis"].toInt(), context->saved_data["begin"].toInt(),
                       context->saved_data["length"].toInt()),
            {}};
  }
};

}  // namespace

int ReplicaContext::num_replicas_in_sync() const {
  return strategy_.num_replicas_in_sync();
}

at::Tensor ReplicaContext::scale(const at::Tensor& mean_loss) const {
  if (global_rows_ == 0) {
    throw FailedPrecondition(
        "scale() needs the rows of the step: give run() the DistributedBatch as an argument");
  }
  return mean_loss * (static_cast<double>(local_rows_) / static_cast<double>(global_rows_));
}

at::Tensor ReplicaContext::all_reduce(ReduceOp op, const at::Tensor& tensor) {
  const at::Tensor sum = SumOverReplicas::apply(tensor);
  return op == ReduceOp::kSum ? sum : sum / num_replicas_in_sync();
}

at::Tensor ReplicaContext::all_gather(const at::Tensor& tensor, std::int64_t axis) {
  if (tensor.is_sparse() || tensor.dim() == 0) {
    throw InvalidArgument(
        fmt::format("all_gather() of a {}: expected a dense tensor with a dimension to join along",
                    tensor.is_sparse() ? "sparse tensor" : "scalar"));
  }
  return GatherOverReplicas::apply(tensor, axis);
}

std::shared_ptr<void> ReplicaContext::merge(const void* mine, const Merged& fn) {
  return strategy_.merge(local_id_, mine, [&](const std::vector<const void*>& laid) {
    return fn(Strategy(strategy_.shared_from_this()), laid);
  });
}

ReplicaContext* get_replica_context() {
  return internal::StrategyImpl::current_replica();
}

}  // namespace tandem
