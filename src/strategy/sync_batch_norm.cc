#include "tandem/sync_batch_norm.h"

#include <fmt/format.h>
#include <torch/library.h>

#include "tandem/error.h"
#include "tandem/replica.h"

namespace tandem {
namespace {

thread_local bool scope_is_on = false;

// What a set of rows says about each feature: how many values, their mean, and the sum of squares around it.
struct Moments {
  double count = 0;
  at::Tensor mean;
  at::Tensor m2;
};

// Every dimension but the features'.
std::vector<std::int64_t> reduced_dims(const at::Tensor& x) {
  std::vector<std::int64_t> dims = {0};
  for (std::int64_t d = 2; d < x.dim(); ++d) dims.push_back(d);
  return dims;
}

// A value per feature, shaped to broadcast over x.
at::Tensor per_feature(const at::Tensor& values, const at::Tensor& x) {
  std::vector<std::int64_t> shape(static_cast<std::size_t>(x.dim()), 1);
  shape[1] = values.numel();
  return values.view(shape);
}

Moments local_moments(const at::Tensor& x) {
  const auto options = x.options();
  if (x.numel() == 0) return {0, at::zeros({x.size(1)}, options), at::zeros({x.size(1)}, options)};
  const auto [variance, mean] = at::var_mean(x, reduced_dims(x), /*unbiased=*/false);
  const double count = static_cast<double>(x.numel() / x.size(1));
  return {count, mean, variance * count};
}

// Chan's rule, which loses no digits where E[x^2] - E[x]^2 would.
Moments combine(const Moments& a, const Moments& b) {
  if (a.count == 0) return b;
  if (b.count == 0) return a;
  const double count = a.count + b.count;
  const at::Tensor delta = b.mean - a.mean;
  return {count, a.mean + delta * (b.count / count),
          a.m2 + b.m2 + delta * delta * (a.count * b.count / count)};
}

// The sum of a tensor over the replicas, in their order; the tensor itself outside run().
at::Tensor over_replicas(const at::Tensor& tensor) {
  ReplicaContext* replica = get_replica_context();
  return replica ? replica->all_reduce(ReduceOp::kSum, tensor) : tensor;
}

// All replicas' moments, combined in replica order. Each puts its own in a row of a table of zeros: the sum
// of the tables has every row, exactly.
Moments global_moments(const Moments& local) {
  const ReplicaContext* replica = get_replica_context();
  if (!replica || replica->num_replicas_in_sync() == 1) return local;
  const std::int64_t features = local.mean.numel();
  at::Tensor table = at::zeros({replica->num_replicas_in_sync(), 2 * features + 1}, local.mean.options());
  table[replica->id()].copy_(
      at::cat({local.mean, local.m2, at::full({1}, local.count, local.mean.options())}));
  table = over_replicas(table);
  Moments all;
  for (std::int64_t r = 0; r < table.size(0); ++r) {
    all = combine(all, {table[r][2 * features].item<double>(), table[r].slice(0, 0, features),
                        table[r].slice(0, features, 2 * features)});
  }
  return all;
}

struct Normalize : torch::autograd::Function<Normalize> {
  static at::Tensor forward(torch::autograd::AutogradContext* context, const at::Tensor& x,
                            const at::Tensor& weight, const at::Tensor& bias, const at::Tensor& mean,
                            const at::Tensor& inv_std, double count) {
    context->save_for_backward({x, weight, mean, inv_std});
    context->saved_data["count"] = count;
    const at::Tensor scale = weight.defined() ? inv_std * weight : inv_std;
    const at::Tensor shift = bias.defined() ? bias - mean * scale : -mean * scale;
    return at::addcmul(per_feature(shift, x), x, per_feature(scale, x));
  }

  // With u = x - mean and s = 1 / std:  dx = s w (dy - sum(dy) / n - u s^2 sum(dy u) / n), the sums over all
  // replicas.
  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* context,
                                                 torch::autograd::variable_list gradients) {
    const auto saved = context->get_saved_variables();
    const at::Tensor &x = saved[0], &weight = saved[1], &mean = saved[2], &inv_std = saved[3];
    const double count = context->saved_data["count"].toDouble();
    const at::Tensor& dy = gradients[0];
    const auto dims = reduced_dims(x);
    const at::Tensor centered = x - per_feature(mean, x);
    const at::Tensor sum_dy = dy.sum(dims);
    const at::Tensor sum_dy_u = (dy * centered).sum(dims);
    const at::Tensor sums = over_replicas(at::cat({sum_dy, sum_dy_u}));
    const at::Tensor mean_dy = sums.slice(0, 0, sum_dy.numel()) / count;
    const at::Tensor slope = inv_std * inv_std * sums.slice(0, sum_dy.numel()) / count;
    at::Tensor dx = dy - per_feature(mean_dy, x) - centered * per_feature(slope, x);
    dx *= per_feature(weight.defined() ? inv_std * weight : inv_std, x);
    return {dx,
            weight.defined() ? sum_dy_u * inv_std : at::Tensor(),
            weight.defined() ? sum_dy : at::Tensor(),
            {},
            {},
            {}};
  }
};

at::Tensor sync_batch_norm(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias,
                           const at::Tensor& running_mean, const at::Tensor& running_var, double momentum,
                           double eps) {
  // Under a policy of half precision (see Policy) x comes out of a convolution with few digits: the
  // statistics have more.
  if (x.scalar_type() == at::kBFloat16 || x.scalar_type() == at::kHalf) {
    return sync_batch_norm(x.to(at::kFloat), weight, bias, running_mean, running_var, momentum, eps)
        .to(x.scalar_type());
  }
  Moments all;
  at::Tensor inv_std;
  {
    const torch::NoGradGuard no_grad;
    all = global_moments(local_moments(x.detach()));
    if (all.count < 2) {
      throw InvalidArgument(fmt::format(
          "synchronised batch norm needs more than {:.0f} value per channel in training", all.count));
    }
    inv_std = at::rsqrt(all.m2 / all.count + eps);
    if (running_mean.defined()) {
      running_mean.mul_(1 - momentum).add_(all.mean, momentum);
      running_var.mul_(1 - momentum).add_(all.m2 / (all.count - 1), momentum);
    }
  }
  return Normalize::apply(x, weight, bias, all.mean, inv_std, all.count);
}

at::Tensor value_or_undefined(const c10::optional<at::Tensor>& tensor) {
  return tensor ? *tensor : at::Tensor();
}

// aten::batch_norm on a thread with the key of replica_random.h. Anything but training in a
// SyncBatchNormScope goes on as usual.
at::Tensor batch_norm_or_sync(const at::Tensor& x, const c10::optional<at::Tensor>& weight,
                              const c10::optional<at::Tensor>& bias,
                              const c10::optional<at::Tensor>& running_mean,
                              const c10::optional<at::Tensor>& running_var, bool training, double momentum,
                              double eps, bool cudnn_enabled) {
  if (scope_is_on && training) {
    return sync_batch_norm(x, value_or_undefined(weight), value_or_undefined(bias),
                           value_or_undefined(running_mean), value_or_undefined(running_var), momentum, eps);
  }
  const c10::impl::ExcludeDispatchKeyGuard without(c10::DispatchKey::TESTING_ONLY_GenericMode);
  return at::batch_norm(x, weight, bias, running_mean, running_var, training, momentum, eps, cudnn_enabled);
}

}  // namespace

TORCH_LIBRARY_IMPL(aten, TESTING_ONLY_GenericMode, library) {
  library.impl("batch_norm", &batch_norm_or_sync);
}

SyncBatchNormScope::SyncBatchNormScope(bool on) : outer_(scope_is_on) {
  scope_is_on = on;
}
SyncBatchNormScope::~SyncBatchNormScope() {
  scope_is_on = outer_;
}

SyncBatchNormImpl::SyncBatchNormImpl(SyncBatchNormOptions options) : options_(options) {
  if (options_.num_features < 1) {
    throw InvalidArgument(
        fmt::format("SyncBatchNorm: num_features is {}: expected 1 or more", options_.num_features));
  }
  if (options_.affine) {
    weight_ = register_parameter("weight", at::ones({options_.num_features}));
    bias_ = register_parameter("bias", at::zeros({options_.num_features}));
  }
  running_mean_ = register_buffer("running_mean", at::zeros({options_.num_features}));
  running_var_ = register_buffer("running_var", at::ones({options_.num_features}));
  num_batches_tracked_ = register_buffer("num_batches_tracked", at::zeros({}, at::kLong));
}

at::Tensor SyncBatchNormImpl::forward(const at::Tensor& x) {
  if (x.dim() < 2 || x.size(1) != options_.num_features) {
    throw InvalidArgument(
        fmt::format("SyncBatchNorm: x has {} dimensions and {} features: expected [rows, {}, ...]", x.dim(),
                    x.dim() > 1 ? x.size(1) : 0, options_.num_features));
  }
  if (!is_training()) {
    return at::batch_norm(x, weight_, bias_, running_mean_, running_var_, false, options_.momentum,
                          options_.eps, false);
  }
  num_batches_tracked_ += 1;
  return sync_batch_norm(x, weight_, bias_, running_mean_, running_var_, options_.momentum, options_.eps);
}

}  // namespace tandem
