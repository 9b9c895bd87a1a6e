#include <utility>

#include "tandem/callbacks.h"

namespace tandem {
namespace internal {
namespace {

class CallbackOfFunctions final : public Callback {
 public:
  explicit CallbackOfFunctions(LambdaCallbackOptions functions) : functions_(std::move(functions)) {}

  void on_epoch_begin(std::int64_t epoch) override { call(functions_.on_epoch_begin, epoch); }
  void on_epoch_end(std::int64_t epoch, Logs& logs) override { call(functions_.on_epoch_end, epoch, logs); }
  void on_train_begin(const TrainingPlan& plan) override { call(functions_.on_train_begin, plan); }
  void on_train_end(const Logs& logs) override { call(functions_.on_train_end, logs); }
  void on_train_batch_begin(std::int64_t step) override { call(functions_.on_train_batch_begin, step); }
  void on_train_batch_end(const TrainStep& step, const Logs& logs) override {
    call(functions_.on_train_batch_end, step, logs);
  }

 private:
  template <typename Function, typename... Args>
  static void call(const Function& function, Args&... args) {
    if (function) function(args...);
  }

  const LambdaCallbackOptions functions_;
};

}  // namespace
}  // namespace internal

std::shared_ptr<Callback> LambdaCallback(LambdaCallbackOptions options) {
  return std::make_shared<internal::CallbackOfFunctions>(std::move(options));
}

}  // namespace tandem
