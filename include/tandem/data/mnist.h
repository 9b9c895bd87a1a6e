#pragma once

#include <string>

#include "tandem/data/split.h"
#include "tandem/dataset.h"

namespace tandem::data {

// MNIST's idx files (also Fashion-MNIST's), gzipped or not: train-images-idx3-ubyte[.gz] and its three
// siblings in `dir`. Examples: x uint8 [1, rows, columns], y int64 scalar. Read into memory at once.
//
// Throws NotFound for a missing file, DataLoss (file, offset, what was expected) for a damaged one.
Dataset mnist(const std::string& dir, Split split);

// Where Debian's package dataset-fashion-mnist puts its files.
std::string fashion_mnist_dir();

// uint8 0 to 255 to float32 0 to 1.
Batch prepare_mnist(Batch example);

}  // namespace tandem::data
