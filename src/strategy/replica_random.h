#pragma once

#include <ATen/core/Generator.h>
#include <c10/core/impl/LocalDispatchKeySet.h>

#include <cstdint>

namespace tandem::internal {

// While it lives, libtorch's random operators on this thread draw from a generator of its own instead of the
// process-wide one: dropout, bernoulli_, normal_, rand, ... with unmodified modules.
//
// libtorch's dropout takes no generator and its default one is shared by all threads, so the order in which
// the replicas reach it would decide what each one draws. Kernels registered under a thread-local dispatch
// key supply the generator; operators that are not random fall through that key at no cost.
class RandomScope {
 public:
  explicit RandomScope(std::uint64_t seed = 0);
  ~RandomScope();
  RandomScope(const RandomScope&) = delete;
  RandomScope& operator=(const RandomScope&) = delete;

  void reseed(std::uint64_t seed);

 private:
  at::Generator cpu_;
  at::Generator* outer_;
  c10::impl::IncludeDispatchKeyGuard key_;
};

}  // namespace tandem::internal
