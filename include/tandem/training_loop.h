#pragma once

#include <cstdint>
#include <functional>
#include <utility>

#include "tandem/strategy.h"

namespace tandem {

// TensorFlow's train_steps(iterator, steps), the loop inside a tf.function: calls step(replica, piece) for
// each of the next `steps` batches on the replicas' own threads, which do not come back in between. Returns
// how many there were: fewer at the data's end.
//
//   auto step = [&](tandem::ReplicaContext& replica, const tandem::Batch& piece) {
//     at::Tensor loss;  // a piece may have no rows
//     if (piece.rows() > 0) loss = replica.scale(cross_entropy(model.on(replica)(piece.x),
//     piece.y.tensor())); optimizer.minimize(replica, loss);
//   };
//   while (tandem::train_steps(strategy, batches, 100, step) > 0) { checkpoints.save(); ... }
//
// Choose `steps` by how often the program has something else to do: save, write a summary, evaluate. What
// step throws on one replica stops the others, and is thrown here. Where tasks train in sync, a collective.
template <std::invocable<ReplicaContext&, const Batch&> Step>
std::int64_t train_steps(const Strategy& strategy, DistributedDataset& batches, std::int64_t steps,
                         Step&& step) {
  return strategy.run_steps(batches, steps, std::ref(step));
}

}  // namespace tandem
