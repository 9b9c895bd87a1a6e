#include "summary/hparams.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "base/sha256.h"
#include "summary/hparams.pb.h"
#include "tandem/error.h"

namespace tandem::internal {
namespace {

struct SetValue {
  events::Value& out;
  void operator()(bool value) { out.set_bool_value(value); }
  void operator()(std::int64_t value) { out.set_number_value(static_cast<double>(value)); }
  void operator()(double value) { out.set_number_value(value); }
  void operator()(const std::string& value) { out.set_string_value(value); }
};

void set_value(events::Value& out, const HParam& value) {
  std::visit(SetValue{out}, value);
}

events::HParamInfo::Type type_of(const HParam& value) {
  if (std::holds_alternative<bool>(value)) return events::HParamInfo::BOOL;
  if (std::holds_alternative<std::string>(value)) return events::HParamInfo::STRING;
  return events::HParamInfo::FLOAT64;
}

void set_domain(events::HParamInfo& out, const HParamInfo& info) {
  if (!info.values.empty() && info.interval) {
    throw InvalidArgument(fmt::format(
        "hyper-parameter \"{}\" has both values and an interval: expected one of the two", info.name));
  }
  if (info.interval) {
    out.set_type(events::HParamInfo::FLOAT64);
    out.mutable_domain_interval()->set_min_value(info.interval->first);
    out.mutable_domain_interval()->set_max_value(info.interval->second);
  }
  for (const auto& value : info.values) {
    if (type_of(value) != type_of(info.values.front())) {
      throw InvalidArgument(
          fmt::format("hyper-parameter \"{}\" has values of several types: expected only texts, only numbers "
                      "or only bools",
                      info.name));
    }
    out.set_type(type_of(value));
    set_value(*out.mutable_domain_discrete()->add_values(), value);
  }
}

}  // namespace

std::string encode_session_start_info(const HParams& values, const std::string& group, double start_time) {
  events::HParamsData data;
  events::SessionStart& start = *data.mutable_session_start_info();
  for (const auto& [name, value] : values) {
    auto& entry = *start.add_hparams();
    entry.set_key(name);
    set_value(*entry.mutable_value(), value);
  }
  start.set_group_name(group);
  start.set_start_time_secs(start_time);
  return data.SerializeAsString();
}

std::string encode_session_end_info(TrialStatus status, double end_time) {
  events::HParamsData data;
  auto& end = *data.mutable_session_end_info();
  end.set_status(status == TrialStatus::kSuccess ? events::SessionEnd::SUCCESS : events::SessionEnd::FAILURE);
  end.set_end_time_secs(end_time);
  return data.SerializeAsString();
}

std::string encode_experiment(const HParamsConfig& config, double time_created) {
  events::HParamsData data;
  events::Experiment& experiment = *data.mutable_experiment();
  experiment.set_time_created_secs(time_created);
  for (const auto& info : config.hparams) {
    events::HParamInfo& out = *experiment.add_hparam_infos();
    out.set_name(info.name);
    out.set_display_name(info.display_name);
    out.set_description(info.description);
    set_domain(out, info);
  }
  for (const auto& metric : config.metrics) {
    events::MetricInfo& out = *experiment.add_metric_infos();
    out.mutable_name()->set_group(metric.group);
    out.mutable_name()->set_tag(metric.tag);
    out.set_display_name(metric.display_name);
  }
  return data.SerializeAsString();
}

std::string group_of(const HParams& values) {
  nlohmann::json json = nlohmann::json::object();
  for (const auto& [name, value] : values) {
    std::visit([&json, &name = name](const auto& held) { json[name] = held; }, value);
  }
  const std::string text = json.dump(-1, ' ', /*ensure_ascii=*/true);
  Sha256 digest;
  digest.update(text.data(), text.size());
  return digest.hex();
}

}  // namespace tandem::internal
