#pragma once

#include <cstdint>
#include <string>

#include "tandem/data/split.h"
#include "tandem/dataset.h"

namespace tandem::data {

// CIFAR-10's binary version: data_batch_1.bin to data_batch_5.bin or test_batch.bin in `dir`, or in
// `dir`/cifar-10-batches-bin. Examples: x uint8 [3, 32, 32], y int64 scalar 0 to 9. Read into memory at once.
//
// The real set has 10,000 records a file; a self-made one may have fewer, but as many in every training file.
//
// Throws NotFound for a missing file, DataLoss (file, offset, what was expected) for one that is truncated,
// shorter than its siblings, or mislabelled.
Dataset cifar10(const std::string& dir, Split split);

// A generated set of the same shapes that a network can learn: each class has a pattern of its own, shifted
// and under noise. Example i is a function of (seed, split, i), made when asked for. Every ten have all ten
// labels.
Dataset synthetic_cifar10(Split split, std::int64_t examples, std::uint64_t seed = 0);

// The usual training augmentation: 4 pixels of padding, a random crop of 32x32, a random flip, then
// standardize_image(). uint8 [3, 32, 32] in, float32 out. Takes a few microseconds.
Batch augment_cifar(Batch example, ExampleRandom& random);

// For evaluation: standardize_image() alone.
Batch prepare_cifar(Batch example);

// TensorFlow's tf.image.per_image_standardization: (x - mean) / max(stddev, 1/sqrt(values)), as float32.
at::Tensor standardize_image(const at::Tensor& image);

}  // namespace tandem::data
