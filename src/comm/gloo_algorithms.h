#pragma once

#include <gloo/context.h>

#include <functional>
#include <memory>

#include "comm/engine.h"

namespace tandem::internal {

// Gloo's algorithms, one for each operation, over any transport.
//
// Those that work on buffers bound to a partner are costly to make, so they are made once for each name, size
// and type, and kept: an operation that comes in every step should always have the same name.
class GlooAlgorithms {
 public:
  // context(first_slot) gives a Gloo context over the transport whose slots begin there.
  using MakeContext = std::function<std::shared_ptr<::gloo::Context>(int first_slot)>;
  // What those are bound to. The caller's memory may be another one the next time: then they are made again,
  // which needs a transport that keeps back what a partner sends for an operation that has not begun here.
  // Over any other one they get memory of their own, and data is copied.
  enum class Bound { kToCallersMemory, kToOwnMemory };

  GlooAlgorithms(int rank, int size, Bound bound, MakeContext make_context);
  ~GlooAlgorithms();

  // Throws what the transport throws.
  void run(const Operation& operation);
  // After a failure: lets go of what it keeps.
  void clear();

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace tandem::internal
