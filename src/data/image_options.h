#pragma once

#include <ATen/core/Tensor.h>

#include <string>
#include <string_view>

#include "data/image/prepare.h"
#include "tandem/data/image.h"

namespace tandem::internal {

// The public options as the torch-free code has them. Throws InvalidArgument for what cannot work.
PrepareOptions prepare_options(const data::ImageOptions& options);

// prepare_picture() into a new tensor.
at::Tensor prepared_tensor(std::string_view bytes, const std::string& name, const PrepareOptions& options,
                           ExampleRandom& random);

}  // namespace tandem::internal
