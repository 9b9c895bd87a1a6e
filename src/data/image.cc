#include <ATen/ops/empty.h>
#include <fmt/format.h>

#include <algorithm>
#include <span>

#include "data/image_options.h"
#include "tandem/error.h"

namespace tandem::internal {
namespace {

Bilinear bilinear_of(data::ResizeMethod method) {
  switch (method) {
    case data::ResizeMethod::kTensorFlow:
      return Bilinear::kTensorFlow;
    case data::ResizeMethod::kTorch:
      return Bilinear::kTorch;
    case data::ResizeMethod::kTorchAntialias:
      return Bilinear::kTorchAntialias;
  }
  throw InvalidArgument(fmt::format("resize method {}: there is no such method", static_cast<int>(method)));
}

void set_channels(const char* what, const std::vector<float>& values, int channels,
                  std::array<float, 4>& out) {
  if (values.empty()) return;
  if (std::ssize(values) != channels) {
    throw InvalidArgument(
        fmt::format("pictures with {} channels and {} values of {}: expected one for each, "
                    "or none",
                    channels, values.size(), what));
  }
  std::copy_n(values.begin(), std::min(values.size(), out.size()), out.begin());
}

}  // namespace

PrepareOptions prepare_options(const data::ImageOptions& options) {
  PrepareOptions prepare{.height = options.height,
                         .width = options.width,
                         .channels = options.channels,
                         .bilinear = bilinear_of(options.resize),
                         .min_crop_area = options.min_crop_area,
                         .random_flip = options.random_flip,
                         .jitter = {.brightness = options.brightness,
                                    .contrast = options.contrast,
                                    .saturation = options.saturation},
                         .max_pixels = options.max_pixels};
  set_channels("the mean", options.mean, options.channels, prepare.mean);
  set_channels("the deviation", options.deviation, options.channels, prepare.deviation);
  check(prepare);
  return prepare;
}

at::Tensor prepared_tensor(std::string_view bytes, const std::string& name, const PrepareOptions& options,
                           ExampleRandom& random) {
  at::Tensor out = at::empty({options.channels, options.height, options.width}, at::kFloat);
  prepare_picture(
      bytes, name, options, [&random] { return random.uniform(); },
      std::span(out.data_ptr<float>(), static_cast<std::size_t>(out.numel())));
  return out;
}

}  // namespace tandem::internal

namespace tandem::data {

ImageOptions image_net_options() {
  return {.resize = ResizeMethod::kTorchAntialias,
          .mean = {0.485f, 0.456f, 0.406f},
          .deviation = {0.229f, 0.224f, 0.225f}};
}

at::Tensor decode_image(std::string_view bytes, const std::string& name, const ImageOptions& options,
                        ExampleRandom& random) {
  return internal::prepared_tensor(bytes, name, internal::prepare_options(options), random);
}

}  // namespace tandem::data
