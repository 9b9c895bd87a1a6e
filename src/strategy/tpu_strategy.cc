#include "tandem/tpu_strategy.h"

#include <fmt/format.h>

#include "tandem/error.h"

namespace tandem {
namespace {

[[noreturn]] std::shared_ptr<internal::StrategyImpl> refuse_tpu(const std::string& tpu) {
  throw Unimplemented(
      fmt::format("TPUStrategy{} is not built, this version has no TPU devices: use MirroredStrategy "
                  "(--distribution_strategy mirrored) on one machine, MultiWorkerMirroredStrategy "
                  "(multi_worker_mirrored) on several",
                  tpu.empty() ? "" : fmt::format(" for \"{}\"", tpu)));
}

}  // namespace

TPUStrategy::TPUStrategy(const std::string& tpu) : Strategy(refuse_tpu(tpu)) {}

}  // namespace tandem
