#include "strategy/model_agreement.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <torch/torch.h>

#include <algorithm>
#include <sstream>

#include "base/sha256.h"
#include "tandem/error.h"

namespace tandem::internal {
namespace {

// One line per tensor.
std::string describe(const ReplicaTensors& model) {
  std::string text;
  const auto add = [&](const char* kind, const std::vector<NamedTensor>& tensors) {
    for (const auto& [name, tensor] : tensors) {
      text += fmt::format("{} \"{}\" {} [{}]{}\n", kind, name, c10::toString(tensor.scalar_type()),
                          fmt::join(tensor.sizes(), ", "),
                          kind[0] == 'p' && !tensor.requires_grad() ? " (frozen)" : "");
    }
  };
  add("parameter", model.parameters);
  add("buffer", model.buffers);
  return text;
}

at::Tensor as_tensor(const std::string& text) {
  const at::Tensor bytes = at::empty({static_cast<std::int64_t>(text.size())}, at::kByte);
  std::ranges::copy(text, bytes.data_ptr<std::uint8_t>());
  return bytes;
}

std::vector<std::string> lines_of(const at::Tensor& bytes) {
  std::istringstream text(
      std::string(reinterpret_cast<const char*>(bytes.data_ptr()), static_cast<std::size_t>(bytes.numel())));
  std::vector<std::string> lines;
  for (std::string line; std::getline(text, line);) lines.push_back(line);
  return lines;
}

std::string first_difference(const std::vector<std::string>& a, const std::string& who_a,
                             const std::vector<std::string>& b, const std::string& who_b) {
  const auto line = [](const std::vector<std::string>& lines, std::size_t i) {
    return i < lines.size() ? lines[i] : std::string("nothing more");
  };
  std::size_t i = 0;
  while (i < a.size() && i < b.size() && a[i] == b[i]) ++i;
  return fmt::format("{} has {}, {} has {}", who_a, line(a, i), who_b, line(b, i));
}

}  // namespace

void check_same_model(SyncGroup& tasks, const ReplicaTensors& model) {
  const std::string text = describe(model);
  Sha256 digest;
  digest.update(text.data(), text.size());
  const std::vector<at::Tensor> digests = tasks.all_gather("model digest", as_tensor(digest.hex()));
  const auto other =
      std::ranges::find_if(digests, [&](const at::Tensor& their) { return !their.equal(digests[0]); });
  if (other == digests.end()) return;
  const std::vector<at::Tensor> texts = tasks.all_gather_any("model description", as_tensor(text));
  const auto rank = static_cast<std::size_t>(other - digests.begin());
  throw InvalidArgument(
      fmt::format("the tasks made different models: {}; every task must build the same one",
                  first_difference(lines_of(texts[0]), tasks.member(0), lines_of(texts[rank]),
                                   tasks.member(static_cast<int>(rank)))));
}

}  // namespace tandem::internal
