#include <fmt/format.h>
#include <fmt/ranges.h>
#include <torch/torch.h>

#include <set>

#include "strategy/strategy_impl.h"
#include "tandem/model.h"
#include "train/model_state.h"

namespace tandem {
namespace {

// Values and bytes of some parameters, each tensor counted once.
struct Size {
  std::int64_t values = 0;
  std::int64_t bytes = 0;

  void add(const at::Tensor& tensor) {
    values += tensor.numel();
    bytes += static_cast<std::int64_t>(tensor.nbytes());
  }
};

std::string in_mib(std::int64_t bytes) {
  return fmt::format("{:.2f} MiB", static_cast<double>(bytes) / (1 << 20));
}

// "torch::nn::Conv2dImpl" to "Conv2d".
std::string kind_of(const torch::nn::Module& module) {
  std::string kind = module.name();
  if (const auto at = kind.rfind("::"); at != std::string::npos) kind = kind.substr(at + 2);
  if (kind.ends_with("Impl")) kind.resize(kind.size() - 4);
  return kind;
}

// Distinct places in memory that the replicas' copies of the parameters occupy.
std::int64_t stored_bytes(const internal::Variables& variables) {
  std::set<const void*> seen;
  Size size;
  for (int r = 0; r < variables.replicas(); ++r) {
    for (const auto& [name, tensor] : variables.copy(r).parameters) {
      if (seen.insert(tensor.data_ptr()).second) size.add(tensor);
    }
  }
  return size.bytes;
}

}  // namespace

std::string Model::summary() const {
  const State& state = *state_;
  std::string text = fmt::format("{:<36} {:<20} {:<24} {:>12}\n", "Layer", "Kind", "Weights", "Parameters");
  std::set<const void*> seen;
  Size trainable;
  Size frozen;
  for (const auto& item : state.networks.front().module().named_modules()) {
    Size own;
    std::string weights;
    for (const auto& parameter : item.value()->named_parameters(/*recurse=*/false)) {
      const at::Tensor& tensor = parameter.value();
      if (!seen.insert(tensor.data_ptr()).second) continue;  // tied: counted where it came first
      own.add(tensor);
      (tensor.requires_grad() ? trainable : frozen).add(tensor);
      weights += fmt::format("{}[{}]", weights.empty() ? "" : " ", fmt::join(tensor.sizes(), ", "));
    }
    if (own.values == 0) continue;
    text += fmt::format("{:<36} {:<20} {:<24} {:>12}\n", item.key().empty() ? "(self)" : item.key(),
                        kind_of(*item.value()), weights, own.values);
  }
  const int replicas = state.variables->replicas();
  text += fmt::format("{} parameters: {} trainable ({}), {} frozen ({})\n", trainable.values + frozen.values,
                      trainable.values, in_mib(trainable.bytes), frozen.values, in_mib(frozen.bytes));
  text += fmt::format("{} strategy, {} replica{}: {} of parameters in memory\n", state.strategy.name(),
                      replicas, replicas == 1 ? "" : "s", in_mib(stored_bytes(*state.variables)));
  return text;
}

}  // namespace tandem
