#include "strategy/optimizer_slots.h"

#include <torch/torch.h>

#include <memory>
#include <tuple>

#include "strategy/ftrl.h"
#include "strategy/optimizer_state_key.h"
#include "tandem/error.h"

namespace tandem::internal {
namespace {

namespace optim = torch::optim;

// Calls field(name, reference) for each field of a state.
template <typename Field>
void visit(optim::SGDParamState& state, Field field) {
  field("momentum_buffer", state.momentum_buffer());
}
template <typename State, typename Field>
void visit_adam(State& state, Field field) {
  field("step", state.step());
  field("exp_avg", state.exp_avg());
  field("exp_avg_sq", state.exp_avg_sq());
  field("max_exp_avg_sq", state.max_exp_avg_sq());
}
template <typename Field>
void visit(optim::AdamParamState& state, Field field) {
  visit_adam(state, field);
}
template <typename Field>
void visit(optim::AdamWParamState& state, Field field) {
  visit_adam(state, field);
}
template <typename Field>
void visit(optim::RMSpropParamState& state, Field field) {
  field("step", state.step());
  field("square_avg", state.square_avg());
  field("momentum_buffer", state.momentum_buffer());
  field("grad_avg", state.grad_avg());
}
template <typename Field>
void visit(optim::AdagradParamState& state, Field field) {
  field("step", state.step());
  field("sum", state.sum());
}

template <typename Field>
void visit(FtrlParamState& state, Field field) {
  field("accumulator", state.accumulator());
  field("linear", state.linear());
}

// Which state belongs to which optimizer.
template <typename Optimizer, typename State>
struct Kind {
  using optimizer_type = Optimizer;
  using state_type = State;
};
struct Sgd : Kind<optim::SGD, optim::SGDParamState> {
  static constexpr const char* name = "SGD";
};
struct Adam : Kind<optim::Adam, optim::AdamParamState> {
  static constexpr const char* name = "Adam";
};
struct AdamW : Kind<optim::AdamW, optim::AdamWParamState> {
  static constexpr const char* name = "AdamW";
};
struct RmsProp : Kind<optim::RMSprop, optim::RMSpropParamState> {
  static constexpr const char* name = "RMSprop";
};
struct Adagrad : Kind<optim::Adagrad, optim::AdagradParamState> {
  static constexpr const char* name = "Adagrad";
};
struct OurFtrl : Kind<Ftrl, FtrlParamState> {
  static constexpr const char* name = "Ftrl";
};
using Kinds = std::tuple<Sgd, Adam, AdamW, RmsProp, Adagrad, OurFtrl>;

// Calls fn(Kind) for the optimizer's own kind; false if it is none of them.
template <typename Fn>
bool with_kind(const optim::Optimizer& optimizer, Fn fn) {
  return std::apply(
      [&](auto... kind) {
        return ((dynamic_cast<const typename decltype(kind)::optimizer_type*>(&optimizer) ? (fn(kind), true)
                                                                                          : false) ||
                ...);
      },
      Kinds());
}

}  // namespace

bool is_element_wise(const optim::Optimizer& optimizer) {
  return with_kind(optimizer, [](auto) {});
}

std::string kind_of(const optim::Optimizer& optimizer) {
  std::string name;
  with_kind(optimizer, [&](auto kind) { name = decltype(kind)::name; });
  return name;
}

bool needs_closure(const optim::Optimizer& optimizer) {
  return dynamic_cast<const optim::LBFGS*>(&optimizer) != nullptr;
}

OptimizerSlots get_slots(optim::Optimizer& optimizer, const at::Tensor& parameter) {
  OptimizerSlots slots;
  const auto found = optimizer.state().find(state_key(optimizer, parameter));
  if (found == optimizer.state().end()) return slots;
  const auto take = [&](const char* name, auto& field) {
    if constexpr (std::is_same_v<std::decay_t<decltype(field)>, at::Tensor>) {
      if (field.defined()) slots.tensors[name] = field;
    } else {
      slots.counters[name] = field;
    }
  };
  with_kind(optimizer,
            [&](auto kind) { visit(static_cast<decltype(kind)::state_type&>(*found->second), take); });
  return slots;
}

void set_slots(optim::Optimizer& optimizer, const at::Tensor& parameter, const OptimizerSlots& slots) {
  const auto key = state_key(optimizer, parameter);
  optimizer.state().erase(key);
  if (slots.empty()) return;
  const auto put = [&](const char* name, auto& field) {
    if constexpr (std::is_same_v<std::decay_t<decltype(field)>, at::Tensor>) {
      const auto found = slots.tensors.find(name);
      if (found != slots.tensors.end()) field = found->second;
    } else {
      const auto found = slots.counters.find(name);
      if (found != slots.counters.end()) field = found->second;
    }
  };
  with_kind(optimizer, [&](auto kind) {
    auto state = std::make_unique<typename decltype(kind)::state_type>();
    visit(*state, put);
    optimizer.state()[key] = std::move(state);
  });
}

}  // namespace tandem::internal
