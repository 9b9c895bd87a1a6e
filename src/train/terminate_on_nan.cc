#include <cmath>

#include "base/log.h"
#include "tandem/callbacks.h"
#include "tandem/model.h"

namespace tandem {
namespace internal {
namespace {

class TerminateOnNaNCallback final : public Callback {
 public:
  // The mean over the epoch so far stays no number once one loss was none, so that none is missed between two
  // calls.
  void on_train_batch_end(const TrainStep& step, const Logs& logs) override {
    const double loss = logs.at("loss");
    if (std::isfinite(loss)) return;
    if (model().strategy().is_chief()) {
      log_warning("the loss is {} after step {} of epoch {}: training ends", loss, step.step + 1,
                  step.epoch + 1);
    }
    model().stop_training();
  }
};

}  // namespace
}  // namespace internal

std::shared_ptr<Callback> TerminateOnNaN() {
  return std::make_shared<internal::TerminateOnNaNCallback>();
}

}  // namespace tandem
