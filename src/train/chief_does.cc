#include "train/chief_does.h"

#include <fmt/format.h>
#include <torch/torch.h>

#include <cstring>
#include <exception>

#include "strategy/strategy_impl.h"
#include "tandem/error.h"

namespace tandem::internal {
namespace {

[[noreturn]] void throw_error(ErrorCode code, const std::string& message) {
  switch (code) {
    case ErrorCode::kInvalidArgument:
      throw InvalidArgument(message);
    case ErrorCode::kNotFound:
      throw NotFound(message);
    case ErrorCode::kDataLoss:
      throw DataLoss(message);
    default:
      throw Error(code, message);
  }
}

}  // namespace

void chief_does(StrategyImpl& strategy, const std::string& what, const std::function<void()>& fn) {
  SyncGroup* tasks = strategy.tasks();
  if (!tasks) return fn();
  std::exception_ptr error;
  std::string message;
  const at::Tensor outcome =
      at::zeros({2}, at::kLong);  // the code, 0 if all went well, and the text's length
  if (tasks->is_chief()) {
    try {
      fn();
    } catch (const Error& thrown) {
      error = std::current_exception();
      message = thrown.what();
      outcome[0] = static_cast<std::int64_t>(thrown.code());
      outcome[1] = static_cast<std::int64_t>(message.size());
    }
  }
  tasks->broadcast(what + " (outcome)", outcome);
  const auto code = static_cast<ErrorCode>(outcome[0].item<std::int64_t>());
  if (code == ErrorCode{}) return;
  const at::Tensor text = at::zeros({outcome[1].item<std::int64_t>()}, at::kByte);
  std::memcpy(text.data_ptr(), message.data(), message.size());
  tasks->broadcast(what + " (error)", text);
  if (error) std::rethrow_exception(error);
  throw_error(code, fmt::format("{}: {}", tasks->member(0),
                                std::string(static_cast<const char*>(text.data_ptr()), text.nbytes())));
}

}  // namespace tandem::internal
