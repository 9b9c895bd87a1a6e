#include "train/chief_does.h"

#include <fmt/format.h>
#include <torch/torch.h>

#include <exception>

#include "base/throw_error.h"
#include "strategy/strategy_impl.h"
#include "tandem/error.h"

namespace tandem::internal {

void chief_does(StrategyImpl& strategy, const std::string& what, const std::function<void()>& fn) {
  SyncGroup* tasks = strategy.tasks();
  if (!tasks) {
    if (strategy.is_chief()) fn();
    return;
  }
  std::exception_ptr error;
  std::int64_t code = 0;
  std::string message;
  strategy.or_stop_all([&] {
    try {
      if (tasks->is_chief()) fn();
    } catch (const Error& thrown) {
      error = std::current_exception();
      code = static_cast<std::int64_t>(thrown.code());
      message = thrown.what();
    }
    const at::Tensor outcome = at::scalar_tensor(code, at::kLong);
    tasks->broadcast(what + " (outcome)", outcome);
    code = outcome.item<std::int64_t>();
    if (code != 0) message = tasks->broadcast_text(what + " (error)", message);
  });
  if (error) std::rethrow_exception(error);
  if (code != 0) {
    throw_error(static_cast<ErrorCode>(code), fmt::format("{}: {}", tasks->member(0), message));
  }
}

}  // namespace tandem::internal
