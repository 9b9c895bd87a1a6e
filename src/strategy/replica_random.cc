#include "strategy/replica_random.h"

#include <torch/library.h>
#include <torch/torch.h>

namespace tandem::internal {
namespace {

constexpr auto kKey = c10::DispatchKey::TESTING_ONLY_GenericMode;

thread_local at::Generator* current_generator = nullptr;

bool on_gpu(const c10::OperatorHandle& op, const torch::jit::Stack& stack) {
  const auto arguments = op.schema().arguments().size();
  for (std::size_t i = 0; i < arguments; ++i) {
    const auto& value = torch::jit::peek(stack, i, arguments);
    if (value.isTensor() && value.toTensor().defined() && value.toTensor().is_cuda()) return true;
  }
  return false;
}

// Fills an empty `Generator? generator` argument, then goes on with the operator as if this key were not
// there. A GPU has a default generator of its own, which only its replica uses.
void supply_generator(const c10::OperatorHandle& op, c10::DispatchKeySet keys, torch::jit::Stack* stack) {
  const auto& arguments = op.schema().arguments();
  if (current_generator && !on_gpu(op, *stack)) {
    for (std::size_t i = 0; i < arguments.size(); ++i) {
      auto& value = torch::jit::peek(*stack, i, arguments.size());
      if (arguments[i].name() == "generator" && value.isNone()) value = c10::IValue(*current_generator);
    }
  }
  op.redispatchBoxed(keys & c10::DispatchKeySet(c10::DispatchKeySet::FULL_AFTER, kKey), stack);
}

}  // namespace

TORCH_LIBRARY_IMPL(_, TESTING_ONLY_GenericMode, library) {
  library.fallback(torch::CppFunction::makeFallthrough());
}

// Every operator that ends in a draw and takes a generator. The others (dropout, randn, randint, ...) are
// built on them.
TORCH_LIBRARY_IMPL(aten, TESTING_ONLY_GenericMode, library) {
  for (const char* name : {"bernoulli",
                           "bernoulli.p",
                           "bernoulli_.float",
                           "bernoulli_.Tensor",
                           "uniform_",
                           "normal_",
                           "random_",
                           "random_.to",
                           "random_.from",
                           "exponential_",
                           "geometric_",
                           "log_normal_",
                           "cauchy_",
                           "multinomial",
                           "poisson",
                           "binomial",
                           "normal.Tensor_float",
                           "normal.float_Tensor",
                           "normal.Tensor_Tensor",
                           "rrelu_with_noise",
                           "rrelu_with_noise_",
                           "randperm.generator",
                           "randperm.generator_out"}) {
    library.impl(name, torch::CppFunction::makeFromBoxedFunction<&supply_generator>());
  }
}

RandomScope::RandomScope(std::uint64_t seed)
    : cpu_(at::detail::createCPUGenerator(seed)), outer_(current_generator), key_(kKey) {
  current_generator = &cpu_;
}

RandomScope::~RandomScope() {
  current_generator = outer_;
}

void RandomScope::reseed(std::uint64_t seed) {
  cpu_.set_current_seed(seed);
}

}  // namespace tandem::internal
