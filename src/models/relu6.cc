#include "models/relu6.h"

#include <ATen/Parallel.h>
#include <torch/torch.h>

#include <cstdint>

namespace tandem::models {
namespace {

// The bits of a bfloat16 between 0 and 6 are in the order of its values: those of 0 are 0, those of 6 are
// these.
constexpr std::uint16_t kBitsOfSix = 0x40C0;

// Where y is greater than 0 and less than 6: grad; elsewhere 0.
void mask(const std::uint16_t* __restrict grad, const std::uint16_t* __restrict y,
          std::uint16_t* __restrict result, std::int64_t count) {
  // One comparison, for 0 less 1 is greater than all; and no branch, which half of the values would go the
  // other way.
  const auto one = [=](std::int64_t i) {
    const bool inside = static_cast<std::uint16_t>(y[i] - 1) < kBitsOfSix - 1;
    result[i] = static_cast<std::uint16_t>(grad[i] & -static_cast<int>(inside));
  };
  constexpr std::int64_t kBlock = 64;  // of a number that the compiler knows, it makes vectors
  std::int64_t i = 0;
  for (; i + kBlock <= count; i += kBlock) {
    for (std::int64_t j = 0; j < kBlock; ++j) one(i + j);
  }
  for (; i < count; ++i) one(i);
}

at::Tensor backward_in_bfloat16(const at::Tensor& grad, const at::Tensor& y) {
  constexpr std::int64_t kGrain = 1 << 15;
  const at::MemoryFormat format = y.suggest_memory_format();
  const at::Tensor dense_grad = grad.contiguous(format), dense_y = y.contiguous(format);
  at::Tensor result = at::empty_like(dense_y);
  const auto* grads = static_cast<const std::uint16_t*>(dense_grad.data_ptr());
  const auto* values = static_cast<const std::uint16_t*>(dense_y.data_ptr());
  auto* out = static_cast<std::uint16_t*>(result.data_ptr());
  at::parallel_for(0, result.numel(), kGrain, [=](std::int64_t begin, std::int64_t end) {
    mask(grads + begin, values + begin, out + begin, end - begin);
  });
  return result;
}

class Relu6 : public torch::autograd::Function<Relu6> {
 public:
  static at::Tensor forward(torch::autograd::AutogradContext* context, at::Tensor x) {
    x.clamp_(0, 6);
    context->mark_dirty({x});
    context->save_for_backward({x});
    return x;
  }

  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* context,
                                                 torch::autograd::variable_list grads) {
    const at::Tensor y = context->get_saved_variables().front();
    if (y.is_cpu() && y.scalar_type() == at::kBFloat16) {
      return {backward_in_bfloat16(grads.front(), y)};
    }
    return {at::hardtanh_backward(grads.front(), y, 0, 6)};
  }
};

}  // namespace

at::Tensor relu6_(const at::Tensor& x) {
  return Relu6::apply(x);
}

}  // namespace tandem::models
