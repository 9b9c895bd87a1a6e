#include <torch/torch.h>

#include "base/log.h"
#include "comm/local/board.h"
#include "tandem/cross_device_ops.h"

namespace tandem {
namespace internal {
namespace {

class ReductionToOneDevice final : public CrossDeviceOps {
 public:
  std::string name() const override { return "reduction to one device"; }
  bool shares_memory() const override { return false; }

  void all_reduce(Meeting& meeting, int replica, at::Tensor& tensor) override {
    if (meeting.seats() == 1) return;
    const torch::NoGradGuard no_grad;
    const std::vector<at::Tensor>& tensors = board_.lay_down(meeting, replica, tensor, kName);
    if (replica == 0) {
      for (std::size_t other = 1; other < tensors.size(); ++other)
        tensor.add_(tensors[other].to(tensor.device()));
    }
    meeting.arrive(replica, kName);  // the sum stands
    if (replica != 0) tensor.copy_(tensors[0]);
    meeting.arrive(replica, kName);  // everybody has it
  }

 private:
  static constexpr const char* kName = "all_reduce";

  Board board_;
};

}  // namespace
}  // namespace internal

std::shared_ptr<CrossDeviceOps> reduction_to_one_device() {
  return std::make_shared<internal::ReductionToOneDevice>();
}

std::shared_ptr<CrossDeviceOps> nccl_all_reduce() {
  const bool gpus = torch::cuda::is_available();
  auto instead = gpus ? reduction_to_one_device() : shared_memory_all_reduce();
  internal::log_warning("NCCL was asked for, but {}: gradients meet by {} instead",
                        gpus ? "this build has none" : "there is no CUDA device", instead->name());
  return instead;
}

}  // namespace tandem
