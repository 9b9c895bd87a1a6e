#include "train/heads.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <torch/torch.h>

#include <algorithm>

#include "cluster/text.h"
#include "data/noted_texts.h"
#include "tandem/error.h"
#include "tandem/feature_column.h"

namespace tandem::internal {
namespace {

void check_at_least(const char* name, std::int64_t value, std::int64_t least) {
  if (value < least) {
    throw InvalidArgument(fmt::format("{} is {}: expected {} or more", name, value, least));
  }
}

at::Tensor mean_of_row(const at::Tensor& values) {
  return values.to(at::kDouble).reshape({values.size(0), -1}).mean(1);
}

Metric label_mean() {
  return Metric("label/mean",
                [](const at::Tensor& y_true, const at::Tensor&) { return mean_of_row(y_true); });
}

Metric average_loss(const Loss& loss) {
  return Metric("average_loss", loss.per_example);
}

// How often the more frequent class is right: what a model has to be better than.
Metric accuracy_baseline() {
  return Metric("accuracy_baseline",
                Metric::Sums{.size = 2,
                             .add =
                                 [](const at::Tensor& y_true, const at::Tensor&, const at::Tensor& weight) {
                                   return at::stack({(mean_of_row(y_true) * weight).sum(), weight.sum()});
                                 },
                             .result =
                                 [](const std::vector<double>& sums) {
                                   const double ones = sums[1] == 0 ? 0 : sums[0] / sums[1];
                                   return std::max(ones, 1 - ones);
                                 }});
}

// One score: that of class 1.
Head binary_head() {
  const Loss loss = losses::binary_crossentropy();
  const auto probabilities = [](const at::Tensor& logits) {
    const at::Tensor one = logits.sigmoid();
    return at::cat({1 - one, one}, 1);
  };
  return {.outputs = 1,
          .loss = loss,
          .metrics = {metrics::binary_accuracy(/*threshold=*/0, "accuracy"), accuracy_baseline(),
                      metrics::auc({.from_logits = true}),
                      metrics::auc({.curve = metrics::AucCurve::kPr, .from_logits = true},
                                   "auc_precision_recall"),
                      average_loss(loss), label_mean(), metrics::precision({.from_logits = true}),
                      Metric("prediction/mean",
                             [](const at::Tensor&, const at::Tensor& y_pred) {
                               return mean_of_row(y_pred.sigmoid());
                             }),
                      metrics::recall({.from_logits = true})},
          .predictions = [probabilities](const at::Tensor& logits) {
            return Tensors::Map{{"logits", logits},
                                {"logistic", logits.sigmoid()},
                                {"probabilities", probabilities(logits)},
                                {"class_ids", (logits > 0).to(at::kLong)}};
          }};
}

Head multi_class_head(std::int64_t n_classes) {
  const Loss loss = losses::sparse_categorical_crossentropy();
  return {.outputs = n_classes,
          .loss = loss,
          .metrics = {metrics::accuracy(), average_loss(loss)},
          .predictions = [](const at::Tensor& logits) {
            return Tensors::Map{{"logits", logits},
                                {"probabilities", logits.softmax(1)},
                                {"class_ids", logits.argmax(1, /*keepdim=*/true)}};
          }};
}

// Numbers as they are, if each is a class. For two classes 0.3 will do, too: how likely class 1 is.
at::Tensor checked_labels(const at::Tensor& labels, std::int64_t n_classes) {
  if (labels.numel() == 0) return labels;
  const auto [low, high] = at::aminmax(labels.to(at::kDouble));
  const double lowest = low.item<double>();
  const double highest = high.item<double>();
  if (lowest >= 0 && highest <= static_cast<double>(n_classes - 1)) return labels;
  throw InvalidArgument(fmt::format(
      "label {} is out of range: expected 0 to {}, for n_classes = {} (texts need label_vocabulary)",
      lowest >= 0 ? highest : lowest, n_classes - 1, n_classes));
}

// The places of texts in the vocabulary.
class LabelVocabulary {
 public:
  explicit LabelVocabulary(std::vector<std::string> texts)
      : texts_(std::move(texts)), column_(categorical_column_with_vocabulary_list(kName, texts_)) {}

  at::Tensor look_up(const at::Tensor& labels) const {
    if (!at::isIntegralType(labels.scalar_type(), /*includeBool=*/false)) {
      throw InvalidArgument(fmt::format(
          "the labels hold {}: expected texts (data::csv, data::string_tensor), for label_vocabulary",
          c10::toString(labels.scalar_type())));
    }
    const at::Tensor classes = column_.ids({{kName, labels}}).reshape(labels.sizes());
    const at::Tensor unknown = classes < 0;
    if (unknown.any().item<bool>()) throw refusal(labels.masked_select(unknown)[0].item<std::int64_t>());
    return classes;
  }

 private:
  static constexpr const char* kName = "label_vocabulary";

  InvalidArgument refusal(std::int64_t fingerprint) const {
    const auto text = fingerprint == 0 ? std::string() : noted_text(fingerprint);
    return InvalidArgument(fmt::format(
        "label {} is not in label_vocabulary{}: it has {}", text ? quote(*text) : std::to_string(fingerprint),
        text ? did_you_mean(*text, texts_) : " (texts come from data::csv or data::string_tensor)",
        fmt::join(texts_, ", ")));
  }

  std::vector<std::string> texts_;
  FeatureColumn column_;
};

}  // namespace

Head regression_head(std::int64_t label_dimension) {
  check_at_least("label_dimension", label_dimension, 1);
  const Loss loss = losses::mean_squared_error();
  return {
      .outputs = label_dimension,
      .loss = loss,
      .metrics = {average_loss(loss), label_mean(),
                  Metric("prediction/mean",
                         [](const at::Tensor&, const at::Tensor& y_pred) { return mean_of_row(y_pred); })},
      .predictions = [](const at::Tensor& output) {
        return Tensors::Map{{"predictions", output}};
      }};
}

Head classification_head(std::int64_t n_classes, const std::vector<std::string>& vocabulary) {
  check_at_least("n_classes", n_classes, 2);
  if (!vocabulary.empty() && std::ssize(vocabulary) != n_classes) {
    throw InvalidArgument(fmt::format("label_vocabulary has {} texts, and n_classes is {}: expected as many",
                                      vocabulary.size(), n_classes));
  }
  Head head = n_classes == 2 ? binary_head() : multi_class_head(n_classes);
  if (vocabulary.empty()) {
    head.labels = [n_classes](const at::Tensor& labels) { return checked_labels(labels, n_classes); };
  } else {
    head.labels = [known = LabelVocabulary(vocabulary)](const at::Tensor& labels) {
      return known.look_up(labels);
    };
  }
  return head;
}

}  // namespace tandem::internal
