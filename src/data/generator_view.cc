#include <fmt/format.h>

#include <string>
#include <utility>

#include "data/views.h"
#include "tandem/error.h"

namespace tandem::internal {
namespace {

using Generator = std::function<std::optional<Batch>()>;

std::string describe(std::int64_t cardinality) {
  return cardinality == Dataset::kInfinite ? "elements without an end"
                                           : fmt::format("{} elements", cardinality);
}

class GeneratorIterator final : public ElementIterator {
 public:
  GeneratorIterator(const std::function<Generator()>& make, std::int64_t cardinality, std::int64_t epoch)
      : make_(make), cardinality_(cardinality), epoch_(epoch) {}

  bool next(Element& element) override {
    if (ended_) return false;
    if (!generator_) generator_ = make_();
    std::optional<Batch> value = generator_();
    if (!value) {
      ended_ = true;
      generator_ = nullptr;
    }
    check(value.has_value());
    if (ended_) return false;
    element = {std::move(*value), epoch_, given_++};
    return true;
  }

 private:
  // Views below rely on what cardinality() says.
  void check(bool more) const {
    if (cardinality_ == Dataset::kUnknown || more == (cardinality_ < 0 || given_ < cardinality_)) return;
    throw FailedPrecondition(fmt::format("from_generator: expected {}, but the generator {}",
                                         describe(cardinality_),
                                         more ? "gave more" : fmt::format("ended after {}", given_)));
  }

  const std::function<Generator()>& make_;
  std::int64_t cardinality_;
  std::int64_t epoch_;
  Generator generator_;
  std::int64_t given_ = 0;
  bool ended_ = false;
};

class GeneratorView final : public DatasetView {
 public:
  GeneratorView(std::function<Generator()> make, std::int64_t cardinality)
      : make_(std::move(make)), cardinality_(cardinality) {}

  std::unique_ptr<ElementIterator> make_iterator(std::uint64_t, std::int64_t epoch) const override {
    return std::make_unique<GeneratorIterator>(make_, cardinality_, epoch);
  }

  std::int64_t cardinality() const override { return cardinality_; }

 private:
  std::function<Generator()> make_;
  std::int64_t cardinality_;
};

}  // namespace

View generator_view(std::function<Generator()> make, std::int64_t cardinality) {
  if (cardinality < 0 && cardinality != Dataset::kInfinite && cardinality != Dataset::kUnknown) {
    throw InvalidArgument(fmt::format(
        "from_generator: cardinality {}: expected 0 or more, Dataset::kInfinite or Dataset::kUnknown",
        cardinality));
  }
  return std::make_shared<GeneratorView>(std::move(make), cardinality);
}

}  // namespace tandem::internal
