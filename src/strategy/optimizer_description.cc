#include "strategy/optimizer_description.h"

#include <fmt/format.h>
#include <torch/torch.h>

#include <charconv>
#include <nlohmann/json.hpp>
#include <tuple>

#include "strategy/ftrl.h"
#include "tandem/error.h"

namespace tandem::internal {
namespace {

namespace optim = torch::optim;
using Json = nlohmann::json;

// Calls field(name, how to reach it) for each option that changes what a step does.
template <typename Field>
void visit_options(const optim::SGDOptions&, Field field) {
  using Options = optim::SGDOptions;
  field("lr", [](Options& o) -> double& { return o.lr(); });
  field("momentum", [](Options& o) -> double& { return o.momentum(); });
  field("dampening", [](Options& o) -> double& { return o.dampening(); });
  field("weight_decay", [](Options& o) -> double& { return o.weight_decay(); });
  field("nesterov", [](Options& o) -> bool& { return o.nesterov(); });
}
template <typename Options, typename Field>
void visit_adam_options(const Options&, Field field) {
  field("lr", [](Options& o) -> double& { return o.lr(); });
  field("beta_1", [](Options& o) -> double& { return std::get<0>(o.betas()); });
  field("beta_2", [](Options& o) -> double& { return std::get<1>(o.betas()); });
  field("eps", [](Options& o) -> double& { return o.eps(); });
  field("weight_decay", [](Options& o) -> double& { return o.weight_decay(); });
  field("amsgrad", [](Options& o) -> bool& { return o.amsgrad(); });
}
template <typename Field>
void visit_options(const optim::AdamOptions& options, Field field) {
  visit_adam_options(options, field);
}
template <typename Field>
void visit_options(const optim::AdamWOptions& options, Field field) {
  visit_adam_options(options, field);
}
template <typename Field>
void visit_options(const optim::RMSpropOptions&, Field field) {
  using Options = optim::RMSpropOptions;
  field("lr", [](Options& o) -> double& { return o.lr(); });
  field("alpha", [](Options& o) -> double& { return o.alpha(); });
  field("eps", [](Options& o) -> double& { return o.eps(); });
  field("weight_decay", [](Options& o) -> double& { return o.weight_decay(); });
  field("momentum", [](Options& o) -> double& { return o.momentum(); });
  field("centered", [](Options& o) -> bool& { return o.centered(); });
}
template <typename Field>
void visit_options(const optim::AdagradOptions&, Field field) {
  using Options = optim::AdagradOptions;
  field("lr", [](Options& o) -> double& { return o.lr(); });
  field("lr_decay", [](Options& o) -> double& { return o.lr_decay(); });
  field("weight_decay", [](Options& o) -> double& { return o.weight_decay(); });
  field("initial_accumulator_value", [](Options& o) -> double& { return o.initial_accumulator_value(); });
  field("eps", [](Options& o) -> double& { return o.eps(); });
}

template <typename Field>
void visit_options(const FtrlTorchOptions&, Field field) {
  using Options = FtrlTorchOptions;
  field("lr", [](Options& o) -> double& { return o.lr(); });
  field("lr_power", [](Options& o) -> double& { return o.lr_power(); });
  field("initial_accumulator_value", [](Options& o) -> double& { return o.initial_accumulator_value(); });
  field("l1", [](Options& o) -> double& { return o.l1(); });
  field("l2", [](Options& o) -> double& { return o.l2(); });
  field("l2_shrinkage", [](Options& o) -> double& { return o.l2_shrinkage(); });
  field("beta", [](Options& o) -> double& { return o.beta(); });
}

template <typename Optimizer, typename Options>
struct DescribedKind {
  const char* name;
  using optimizer_type = Optimizer;
  using options_type = Options;
};
constexpr auto kDescribedKinds =
    std::make_tuple(DescribedKind<optim::SGD, optim::SGDOptions>{"SGD"},
                    DescribedKind<optim::Adam, optim::AdamOptions>{"Adam"},
                    DescribedKind<optim::AdamW, optim::AdamWOptions>{"AdamW"},
                    DescribedKind<optim::RMSprop, optim::RMSpropOptions>{"RMSprop"},
                    DescribedKind<optim::Adagrad, optim::AdagradOptions>{"Adagrad"},
                    DescribedKind<Ftrl, FtrlTorchOptions>{"Ftrl"});

// Calls fn for the kind that fits; false if none does.
template <typename Fits, typename Fn>
bool with_described_kind(Fits fits, Fn fn) {
  return std::apply([&](const auto&... kind) { return ((fits(kind) ? (fn(kind), true) : false) || ...); },
                    kDescribedKinds);
}

// Every bit of it: JSON numbers promise less.
std::string digits_of(double value) {
  return fmt::format("{}", value);
}

void parse_option(const Json& json, const char* name, double& value) {
  const auto& text = json.at(name).get_ref<const std::string&>();
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size()) {
    throw InvalidArgument(fmt::format("the optimizer's {} is \"{}\": expected a number", name, text));
  }
}
void parse_option(const Json& json, const char* name, bool& value) {
  value = json.at(name).get<bool>();
}

}  // namespace

std::string describe_optimizer(const optim::Optimizer& optimizer) {
  Json description;
  const bool known = with_described_kind(
      [&]<typename Kind>(const Kind&) {
        return dynamic_cast<const typename Kind::optimizer_type*>(&optimizer) != nullptr;
      },
      [&]<typename Kind>(const Kind& kind) {
        description["kind"] = kind.name;
        for (const auto& group : optimizer.param_groups()) {
          auto options = static_cast<const typename Kind::options_type&>(group.options());
          Json& fields = description["groups"].emplace_back();
          visit_options(options, [&](const char* name, auto member) {
            if constexpr (std::is_same_v<decltype(member(options)), double&>) {
              fields[name] = digits_of(member(options));
            } else {
              fields[name] = member(options);
            }
          });
        }
      });
  if (!known) {
    throw InvalidArgument(
        "parameter servers cannot run this optimizer: expected SGD, Adam, AdamW, RMSprop, Adagrad or Ftrl");
  }
  return description.dump();
}

std::unique_ptr<optim::Optimizer> optimizer_from_description(const std::string& description, int group,
                                                             std::vector<at::Tensor> tensors) try {
  const Json json = Json::parse(description);
  const auto& name = json.at("kind").get_ref<const std::string&>();
  const Json& fields = json.at("groups").at(static_cast<std::size_t>(group));
  std::unique_ptr<optim::Optimizer> optimizer;
  const bool known = with_described_kind(
      [&](const auto& kind) { return name == kind.name; },
      [&]<typename Kind>(const Kind&) {
        typename Kind::options_type options(1.0);
        visit_options(options,
                      [&](const char* field, auto member) { parse_option(fields, field, member(options)); });
        optimizer = std::make_unique<typename Kind::optimizer_type>(std::move(tensors), options);
      });
  if (!known) throw InvalidArgument(fmt::format("there is no optimizer \"{}\"", name));
  return optimizer;
} catch (const Json::exception& error) {
  throw InvalidArgument(fmt::format("this is no description of an optimizer: {}", error.what()));
}

}  // namespace tandem::internal
