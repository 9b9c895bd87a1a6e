#pragma once

#include <torch/torch.h>

#include <string>

namespace tandem {

// A TorchScript file as a module, to be trained and evaluated as one that is written in C++ is:
//
//   tandem::Model model([] { return tandem::ScriptModule("net.pt"); });
//
// What torch.jit.script() or torch.jit.trace() made in Python and saved, or Model::save_torchscript() here.
// Parameters and buffers keep their names, train() and eval() reach the script, and each replica has a copy
// of its own, since each loads the file. What was traced does always what it did while it was traced: a
// dropout or a batch norm that was traced in evaluation stays so.
//
// A TorchScript file is a program: load only those of people you trust.
class ScriptModuleImpl : public torch::nn::Module {
 public:
  // Throws NotFound if there is no such file, InvalidArgument if libtorch cannot read it.
  explicit ScriptModuleImpl(const std::string& path);

  // The script's own, which must take one tensor and return one.
  at::Tensor forward(const at::Tensor& x);

  void train(bool on = true) override;

 private:
  torch::jit::Module script_;
};
TORCH_MODULE(ScriptModule);

}  // namespace tandem
