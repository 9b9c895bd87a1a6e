#include <fmt/format.h>
#include <torch/csrc/jit/frontend/tracer.h>
#include <torch/script.h>

#include <algorithm>
#include <cctype>
#include <sstream>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "base/files.h"
#include "cluster/text.h"
#include "strategy/strategy_impl.h"
#include "tandem/error.h"
#include "tandem/model.h"
#include "train/chief_does.h"
#include "train/evaluation.h"
#include "train/model_state.h"

namespace tandem {
namespace {

bool is_identifier(std::string_view text) {
  return !text.empty() && !std::isdigit(static_cast<unsigned char>(text[0])) &&
         std::ranges::all_of(text, [](unsigned char c) { return std::isalnum(c) || c == '_'; });
}

// What Python would call the class: "Conv2d" for torch::nn::Conv2dImpl.
std::string class_name(const torch::nn::Module& module) {
  std::string name = module.name();
  name.resize(std::min(name.find('<'), name.size()));
  name.erase(0, name.rfind(':') + 1);
  if (name.ends_with("Impl")) name.resize(name.size() - 4);
  return is_identifier(name) ? name : "Module";
}

// A tree of script modules beside that of a libtorch module, with the same names and, until the trace is
// done, the very same tensors: by them the tracer knows that an operation reads "conv1.weight".
class ScriptTree {
 public:
  torch::jit::Module of(const torch::nn::Module& module) {
    if (const auto known = twins_.find(&module); known != twins_.end()) return known->second;
    torch::jit::Module twin("__torch__." + class_name(module), unit_, /*shouldMangle=*/true);
    twin.register_attribute("training", c10::BoolType::get(), false);
    for (const auto& item : module.named_parameters(/*recurse=*/false)) {
      twin.register_parameter(item.key(), item.value(), /*is_buffer=*/false);
    }
    for (const auto& item : module.named_buffers(/*recurse=*/false)) {
      twin.register_buffer(item.key(), item.value());
    }
    for (const auto& item : module.named_children()) twin.register_module(item.key(), of(*item.value()));
    twins_.emplace(&module, twin);
    return twin;
  }

  // Copies in place of the model's tensors, which are views of larger buffers, in strides of their own. Tied
  // weights stay tied.
  void take_copies() {
    std::unordered_map<const c10::TensorImpl*, at::Tensor> copies;
    for (auto& [module, twin] : twins_) {
      for (const auto& attribute : twin.named_attributes(/*recurse=*/false)) {
        if (!attribute.value.isTensor()) continue;
        const at::Tensor tensor = attribute.value.toTensor();
        at::Tensor& copy = copies[tensor.unsafeGetTensorImpl()];
        if (!copy.defined()) {
          copy = tensor.detach().to(at::kCPU).clone(at::MemoryFormat::Contiguous);
          copy.set_requires_grad(tensor.requires_grad());
        }
        twin.setattr(attribute.name, copy);
      }
    }
  }

 private:
  std::shared_ptr<torch::jit::CompilationUnit> unit_ = std::make_shared<torch::jit::CompilationUnit>();
  std::unordered_map<const torch::nn::Module*, torch::jit::Module> twins_;
};

// The arguments of the script's forward(): the tensor, or the named ones in the order of their names.
struct Arguments {
  explicit Arguments(const Tensors& x) {
    if (x.is_map()) {
      for (const auto& [name, tensor] : x.map()) {
        if (!is_identifier(name)) {
          throw InvalidArgument(
              fmt::format("the input {} cannot be an argument of a TorchScript function: expected letters, "
                          "digits and underscores",
                          internal::quote(name)));
        }
        names.push_back(name);
        values.emplace_back(tensor);
      }
    } else {
      names.emplace_back("x");
      values.emplace_back(x.tensor());
    }
  }

  static Tensors back(const Tensors& like, const torch::jit::Stack& values) {
    if (!like.is_map()) return values.at(0).toTensor();
    Tensors::Map named;
    std::size_t i = 0;
    for (const auto& [name, tensor] : like.map()) named[name] = values.at(i++).toTensor();
    return named;
  }

  std::vector<std::string> names;
  torch::jit::Stack values;
};

std::string first_line(std::string_view text) {
  return std::string(text.substr(0, text.find('\n')));
}

// Calls fn; what libtorch throws in it becomes `what`, a colon and its first line.
template <typename Fn>
auto explained(const std::string& what, Fn fn) {
  try {
    return fn();
  } catch (const Error&) {
    throw;
  } catch (const c10::Error& error) {
    throw InvalidArgument(fmt::format("{}: {}", what, first_line(error.what_without_backtrace())));
  } catch (const std::exception& error) {
    throw InvalidArgument(fmt::format("{}: {}", what, first_line(error.what())));
  }
}

// A file's contents.
std::string traced(const Network& network, const Tensors& example) {
  ScriptTree tree;
  torch::jit::Module script = tree.of(network.module());
  const Arguments arguments(example);
  const auto run = [&](torch::jit::Stack values) -> torch::jit::Stack {
    return {network(Arguments::back(example, values))};
  };
  const auto no_names = [](const at::Tensor&) { return std::string(); };
  const auto trace = torch::jit::tracer::trace(arguments.values, run, no_names, /*strict=*/true,
                                               /*force_outplace=*/false, &script, arguments.names);
  const auto unit = script._ivalue()->compilation_unit();
  script.type()->addMethod(
      unit->create_function(c10::QualifiedName(*script.type()->name(), "forward"), trace.first->graph));
  tree.take_copies();
  std::ostringstream out;
  script.save(out);
  return std::move(out).str();
}

// Equal up to the order in which a kernel adds.
bool alike(const at::Tensor& actual, const at::Tensor& expected) {
  if (actual.sizes() != expected.sizes() || actual.scalar_type() != expected.scalar_type()) return false;
  if (expected.numel() == 0) return true;
  const double tolerance = expected.element_size() < 4 ? 2e-2 : 1e-4;
  const at::Tensor a = actual.to(at::kCPU, at::kDouble), b = expected.to(at::kCPU, at::kDouble);
  const double scale = at::nan_to_num(b).abs().max().item<double>();
  return at::allclose(a, b, /*rtol=*/0, /*atol=*/tolerance * scale, /*equal_nan=*/true);
}

constexpr const char* kBakedIn =
    "the trace has kept the batch size of the example: in the model's forward write x.flatten(1) instead of "
    "x.view({x.size(0), ...}), and no other number that depends on x.size(0)";

// Reads the contents as a user would, and runs them beside the model: on the example, and on a row more.
void check_against_model(const std::string& contents, const Network& network, const Tensors& example,
                         const std::string& path) {
  std::istringstream in(contents);
  torch::jit::Module script = torch::jit::load(in);
  const auto run = [&](const Tensors& x) {
    const auto on_cpu = x.transform([](const at::Tensor& one) { return one.to(at::kCPU); });
    return script.forward(Arguments(on_cpu).values).toTensor();
  };
  const std::string cannot = fmt::format("cannot export the model to {}", internal::quote(path));
  const at::Tensor same = explained(cannot, [&] { return run(example); });
  if (!alike(same, network(example))) {
    throw InvalidArgument(
        fmt::format("{}: called twice on the example it gives different values; it must not draw random "
                    "numbers or change "
                    "its own state in evaluation",
                    cannot));
  }
  const Tensors larger = example.transform([](const at::Tensor& one) {
    return at::cat({one, one.narrow(0, 0, 1)}).flip(0).contiguous();
  });
  const at::Tensor expected = explained(fmt::format("{}: it cannot compute {} rows", cannot, larger.rows()),
                                        [&] { return network(larger); });
  const std::string differs =
      fmt::format("{}: with {} rows in place of {}, {}", cannot, larger.rows(), example.rows(), kBakedIn);
  if (!alike(explained(differs, [&] { return run(larger); }), expected)) throw InvalidArgument(differs);
}

}  // namespace

void Model::save_torchscript(const std::string& path, const Tensors& example) {
  const internal::Evaluation evaluation(*state_);
  internal::chief_does(state_->strategy.impl(), "save_torchscript", [&] {
    if (!example.defined() || example.rows() < 1) {
      throw InvalidArgument("save_torchscript() needs an example: a batch of one row or more");
    }
    const torch::NoGradGuard no_grad;
    const Network& network = state_->networks.front();
    const auto parameters = network.module().parameters();
    const at::Device device = parameters.empty() ? at::Device(at::kCPU) : parameters.front().device();
    const Tensors x =
        example.transform([&](const at::Tensor& one) { return one.detach().to(device).contiguous(); });
    const std::string contents =
        explained(fmt::format("cannot trace the model for {}", internal::quote(path)),
                  [&] { return traced(network, x); });
    check_against_model(contents, network, x, path);
    internal::replace_file(path, contents);
  });
}

}  // namespace tandem
