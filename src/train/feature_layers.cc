#include "tandem/feature_layers.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "cluster/text.h"
#include "tandem/error.h"

namespace tandem {
namespace {

std::vector<FeatureColumn> by_name(std::vector<FeatureColumn> columns) {
  if (columns.empty()) throw InvalidArgument("no feature columns: expected one or more");
  std::ranges::sort(columns, {}, &FeatureColumn::name);
  for (std::size_t i = 1; i < columns.size(); ++i) {
    if (columns[i].name() == columns[i - 1].name()) {
      throw InvalidArgument(
          fmt::format("two feature columns are named {}", internal::quote(columns[i].name())));
    }
  }
  return columns;
}

// libtorch has dots between modules.
std::string parameter_name(const FeatureColumn& column, const char* what) {
  std::string name = column.name();
  std::ranges::replace(name, '.', '_');
  return name + what;
}

// The table of an embedding: a normal distribution, cut at two deviations. Undefined for other columns.
at::Tensor make_table(torch::nn::Module& module, const FeatureColumn& column) {
  if (!column.embedded()) return {};
  const at::Tensor table = at::empty({column.embedded()->num_buckets(), column.width()});
  const double deviation = 1 / std::sqrt(static_cast<double>(column.width()));
  const torch::NoGradGuard no_grad;
  table.normal_(0, deviation).clamp_(-2 * deviation, 2 * deviation);
  return module.register_parameter(parameter_name(column, "_table"), table);
}

at::Tensor numbers(const FeatureColumn& column, const at::Tensor& table,
                   const std::map<std::string, at::Tensor>& features) {
  return table.defined() ? column.look_up(table, features) : column.values(features);
}

}  // namespace

DenseFeaturesImpl::DenseFeaturesImpl(std::vector<FeatureColumn> columns)
    : columns_(by_name(std::move(columns))) {
  for (const FeatureColumn& column : columns_) {
    if (column.width() == 0) {
      throw InvalidArgument(
          fmt::format("DenseFeatures: column {} gives categories: wrap it in "
                      "indicator_column() or embedding_column()",
                      internal::quote(column.name())));
    }
    tables_.push_back(make_table(*this, column));
  }
}

at::Tensor DenseFeaturesImpl::forward(const std::map<std::string, at::Tensor>& features) {
  std::vector<at::Tensor> parts;
  for (std::size_t i = 0; i < columns_.size(); ++i)
    parts.push_back(numbers(columns_[i], tables_[i], features));
  return at::cat(parts, 1);
}

std::int64_t DenseFeaturesImpl::width() const {
  std::int64_t sum = 0;
  for (const FeatureColumn& column : columns_) sum += column.width();
  return sum;
}

LinearModelImpl::LinearModelImpl(std::vector<FeatureColumn> columns, LinearModelOptions options)
    : columns_(by_name(std::move(columns))) {
  if (options.units < 1) {
    throw InvalidArgument(fmt::format("LinearModel: {} units: expected 1 or more", options.units));
  }
  for (const FeatureColumn& column : columns_) {
    tables_.push_back(make_table(*this, column));
    const std::int64_t rows = column.num_buckets() > 0 ? column.num_buckets() : column.width();
    weights_.push_back(
        register_parameter(parameter_name(column, "_weights"), at::zeros({rows, options.units})));
  }
  bias_ = register_parameter("bias", at::zeros({options.units}));
}

at::Tensor LinearModelImpl::forward(const std::map<std::string, at::Tensor>& features) {
  at::Tensor sum = bias_;
  for (std::size_t i = 0; i < columns_.size(); ++i) {
    const FeatureColumn& column = columns_[i];
    sum = sum + (column.num_buckets() > 0 ? column.look_up(weights_[i], features)
                                          : numbers(column, tables_[i], features).matmul(weights_[i]));
  }
  return sum;
}

}  // namespace tandem
