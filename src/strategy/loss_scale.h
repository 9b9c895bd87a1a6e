#pragma once

#include <algorithm>
#include <cstdint>

namespace tandem::internal {

// What a loss is multiplied with before backward, so that small gradients survive in float16: as large as
// they allow. Keras's dynamic loss scale.
//
// Every replica keeps one of its own. They see the same sums, and so stay the same.
class LossScale {
 public:
  LossScale(double scale, std::int64_t growth_steps, std::int64_t good_steps = 0)
      : scale_(scale), growth_steps_(growth_steps), good_steps_(good_steps) {}

  double scale() const { return scale_; }
  // Steps with finite gradients since it last changed.
  std::int64_t good_steps() const { return good_steps_; }

  // After the gradients of a step have been summed: whether all of them are finite.
  void settle(bool finite) {
    if (!finite) {
      scale_ = std::max(scale_ / 2, 1.0);
      good_steps_ = 0;
    } else if (++good_steps_ == growth_steps_) {
      // At some height every step overflows; a number beyond float's would only say so later.
      constexpr double kHighest = 0x1p120;
      scale_ = std::min(scale_ * 2, kHighest);
      good_steps_ = 0;
    }
  }

  // As a checkpoint has it.
  void restore(double scale, std::int64_t good_steps) {
    scale_ = std::max(scale, 1.0);
    good_steps_ = std::clamp<std::int64_t>(good_steps, 0, growth_steps_ - 1);
  }

 private:
  double scale_;
  std::int64_t growth_steps_;
  std::int64_t good_steps_;
};

}  // namespace tandem::internal
