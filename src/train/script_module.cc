#include "tandem/script_module.h"

#include <fmt/format.h>
#include <torch/script.h>

#include <algorithm>
#include <filesystem>

#include "cluster/text.h"
#include "tandem/error.h"

namespace tandem {
namespace {

torch::jit::Module load_script(const std::string& path) {
  if (!std::filesystem::exists(path)) {
    throw NotFound(fmt::format("there is no TorchScript file {}", internal::quote(path)));
  }
  try {
    return torch::jit::load(path);
  } catch (const c10::Error& error) {
    std::string why = error.what_without_backtrace();
    why.resize(std::min(why.find('\n'), why.size()));
    throw InvalidArgument(
        fmt::format("{} is no TorchScript file that can be read: {}: expected what "
                    "torch.jit.save writes",
                    internal::quote(path), why));
  }
}

// Gives a module, and modules below it, the very tensors of the script: whoever moves one moves the other.
void adopt_tensors(torch::nn::Module& module, const torch::jit::Module& script) {
  for (const auto& item : script.named_parameters(/*recurse=*/false)) {
    module.register_parameter(item.name, item.value, item.value.requires_grad());
  }
  for (const auto& item : script.named_buffers(/*recurse=*/false)) {
    module.register_buffer(item.name, item.value);
  }
  for (const auto& item : script.named_children()) {
    adopt_tensors(*module.register_module(item.name, std::make_shared<torch::nn::Module>("Script")),
                  item.value);
  }
}

}  // namespace

ScriptModuleImpl::ScriptModuleImpl(const std::string& path) : script_(load_script(path)) {
  adopt_tensors(*this, script_);
}

at::Tensor ScriptModuleImpl::forward(const at::Tensor& x) {
  return script_.forward({x}).toTensor();
}

void ScriptModuleImpl::train(bool on) {
  torch::nn::Module::train(on);
  script_.train(on);
}

}  // namespace tandem
