#include "ps/plan.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <nlohmann/json.hpp>
#include <numeric>
#include <optional>
#include <unordered_set>

#include "base/json_limits.h"
#include "base/sha256.h"
#include "base/text_table.h"
#include "base/utf8.h"
#include "checkpoint/safetensors.h"
#include "cluster/text.h"
#include "ps/limits.h"
#include "tandem/error.h"

namespace tandem::internal::ps {
namespace {

using Json = nlohmann::json;

constexpr const char* kFormat = "tandem-ps-plan-1";
constexpr std::size_t kLongestJson = std::size_t{256} << 20;
constexpr int kDeepest = 6;
constexpr int kMostOptionGroups = 1 << 20;

std::string fault_of(const PlanVariable& variable) {
  if (variable.name.empty()) return "has no name";
  if (variable.name.size() > kLongestVariableName) {
    return fmt::format("has a name of more than {} bytes", kLongestVariableName);
  }
  if (!is_printable_text(variable.name)) return "has a name with characters that cannot be printed";
  if (variable.option_group < 0 || variable.option_group >= kMostOptionGroups) {
    return fmt::format("is in option group {}: expected a number from 0", variable.option_group);
  }
  const auto element = dtype_bytes(variable.dtype);
  if (!element) return fmt::format("has the unknown dtype {}", quote(variable.dtype));
  const auto bytes = tensor_bytes(variable.dtype, variable.shape);
  if (variable.shape.size() > kMostDimensions || !bytes || *bytes / *element > kMostElements) {
    return fmt::format("cannot have the shape [{}]: expected sizes from 0 and at most 2^40 elements",
                       fmt::join(variable.shape, ", "));
  }
  if (variable.is_table() && variable.shape.size() != 2) {
    return fmt::format("is a table of shape [{}]: expected rows and columns",
                       fmt::join(variable.shape, ", "));
  }
  if (variable.is_table() &&
      !(std::isfinite(variable.first_values->stddev) && variable.first_values->stddev >= 0)) {
    return fmt::format("begins with a stddev of {}: expected 0 or more", variable.first_values->stddev);
  }
  return {};
}

// How many parts the partitioner wants.
std::int64_t parts_of(const PlanVariable& variable, const Partitioner& partitioner) {
  if (!partitioner || variable.shape.empty()) return 1;
  const auto parts = partitioner(variable.shape, static_cast<int>(*dtype_bytes(variable.dtype)));
  const auto one = [](std::int64_t count) { return count == 1; };
  const bool sensible = parts.size() == variable.shape.size() &&
                        std::all_of(parts.begin() + 1, parts.end(), one) && parts[0] >= 1 &&
                        parts[0] <= std::max<std::int64_t>(variable.rows(), 1);
  if (!sensible) {
    throw InvalidArgument(fmt::format(
        "the partitioner cuts variable {} of shape [{}] into [{}]: expected 1 to {} parts along the "
        "first axis and 1 along the others",
        quote(variable.name), fmt::join(variable.shape, ", "), fmt::join(parts, ", "),
        std::max<std::int64_t>(variable.rows(), 1)));
  }
  return parts[0];
}

void check_num_ps(int num_ps) {
  if (num_ps < 1 || num_ps > kMostPs) {
    throw InvalidArgument(fmt::format("a plan for {} ps tasks: expected 1 to {}", num_ps, kMostPs));
  }
}

std::string human_bytes(std::uint64_t bytes) {
  if (bytes < 1024) return fmt::format("{} B", bytes);
  double size = static_cast<double>(bytes);
  constexpr std::array kUnits{"KiB", "MiB", "GiB", "TiB", "PiB", "EiB"};
  std::size_t unit = 0;
  for (size /= 1024; size >= 1024 && unit + 1 < kUnits.size(); ++unit) size /= 1024;
  return fmt::format("{:.1f} {}", size, kUnits[unit]);
}

// The parsed text, or InvalidArgument.
Json parse_json(std::string_view text) {
  if (text.size() > kLongestJson) {
    throw InvalidArgument(
        fmt::format("a placement plan of {} bytes: expected at most {}", text.size(), kLongestJson));
  }
  std::string fault;
  try {
    JsonLimits<Json> limits(kDeepest);
    return Json::parse(
        text, [&](int depth, Json::parse_event_t event, Json& value) { return limits(depth, event, value); });
  } catch (const JsonTooDeep&) {
    fault = fmt::format("nested more than {} deep", kDeepest);
  } catch (const JsonKeyTwice& twice) {
    fault = fmt::format("the key {} is there twice", quote(twice.key));
  } catch (const Json::parse_error& error) {
    fault = fmt::format("not JSON at byte {}", error.byte);
  } catch (const Json::exception&) {
    fault = "a number is too large";
  }
  throw InvalidArgument(fmt::format("placement plan: {}", fault));
}

InvalidArgument wrong(const std::string& where, const char* key, const std::string& expected) {
  return InvalidArgument(fmt::format("placement plan: \"{}\" of {} is not {}", key, where, expected));
}

const Json& field(const Json& json, const std::string& where, const char* key) {
  if (!json.is_object()) throw InvalidArgument(fmt::format("placement plan: {} is not an object", where));
  const auto found = json.find(key);
  if (found == json.end()) throw InvalidArgument(fmt::format("placement plan: {} has no \"{}\"", where, key));
  return *found;
}

std::int64_t whole_number(const Json& value, const std::string& where, const char* key, std::int64_t most) {
  if (!value.is_number_unsigned() || value.get<std::uint64_t>() > static_cast<std::uint64_t>(most)) {
    throw wrong(where, key, fmt::format("a whole number from 0 to {}", most));
  }
  return value.get<std::int64_t>();
}

const Json& array(const Json& json, const std::string& where, const char* key, std::size_t most) {
  const Json& value = field(json, where, key);
  if (!value.is_array() || value.size() > most) {
    throw wrong(where, key, fmt::format("an array of at most {} entries", most));
  }
  return value;
}

const std::string& text_field(const Json& json, const std::string& where, const char* key) {
  const Json& value = field(json, where, key);
  if (!value.is_string()) throw wrong(where, key, "text");
  return value.get_ref<const std::string&>();
}

NormalValues normal_values(const Json& json, const std::string& where) {
  const Json& stddev = field(json, where, "stddev");
  const Json& seed = field(json, where, "seed");
  if (!stddev.is_number()) throw wrong(where, "stddev", "a number");
  if (!seed.is_number_unsigned()) throw wrong(where, "seed", "a whole number from 0");
  return {.stddev = stddev.get<double>(), .seed = seed.get<std::uint64_t>()};
}

}  // namespace

std::vector<std::int64_t> split_rows(std::int64_t rows, std::int64_t parts) {
  std::vector<std::int64_t> begins{0};
  for (std::int64_t part = 0; part < parts; ++part) {
    begins.push_back(begins.back() + rows / parts + (part < rows % parts ? 1 : 0));
  }
  return begins;
}

PlacementPlan::PlacementPlan(std::vector<PlanVariable> variables, const PlanOptions& options)
    : num_ps_(options.num_ps), variables_(std::move(variables)) {
  check_num_ps(num_ps_);
  check_variables();
  PsStrategy strategy = options.ps_strategy ? options.ps_strategy : PsStrategy(RoundRobin(num_ps_));
  for (std::size_t i = 0; i < variables_.size(); ++i) {
    const PlanVariable& variable = variables_[i];
    const std::int64_t parts = parts_of(variable, options.partitioner);
    first_shard_.push_back(shards_.size());
    if (parts > static_cast<std::int64_t>(kMostShards - shards_.size())) {
      throw InvalidArgument(fmt::format("variable {} in {} parts: a plan has at most {} shards",
                                        quote(variable.name), parts, kMostShards));
    }
    const auto begins = split_rows(variable.rows(), parts);
    for (std::size_t part = 0; part + 1 < begins.size(); ++part) {
      add_shard(i, {.part = static_cast<int>(part),
                    .parts = static_cast<int>(parts),
                    .row_begin = begins[part],
                    .row_end = begins[part + 1]});
      Shard& shard = shards_.back();
      const std::string name = shard_name(shards_.size() - 1);
      shard.ps = strategy({.name = name, .bytes = shard.bytes});
      if (shard.ps < 0 || shard.ps >= num_ps_) {
        throw InvalidArgument(fmt::format("ps_strategy puts {} on ps task {}: expected a number from 0 to {}",
                                          quote(name), shard.ps, num_ps_ - 1));
      }
    }
  }
  first_shard_.push_back(shards_.size());
  check_shard_names();
}

void PlacementPlan::check_variables() const {
  if (variables_.size() > kMostShards) {
    throw InvalidArgument(
        fmt::format("a plan of {} variables: expected at most {}", variables_.size(), kMostShards));
  }
  for (const PlanVariable& variable : variables_) {
    if (const std::string fault = fault_of(variable); !fault.empty()) {
      throw InvalidArgument(fmt::format("variable {} {}", quote(variable.name), fault));
    }
  }
}

void PlacementPlan::check_shard_names() const {
  std::unordered_set<std::string> names;
  const auto add = [&](std::string name) {
    const auto [at, is_new] = names.insert(std::move(name));
    if (!is_new) throw InvalidArgument(fmt::format("two variables or parts have the name {}", quote(*at)));
  };
  for (const PlanVariable& variable : variables_) add(variable.name);
  for (std::size_t i = 0; i < shards_.size(); ++i) {
    if (shards_[i].parts > 1) add(shard_name(i));
  }
}

void PlacementPlan::add_shard(std::size_t variable, Shard shard) {
  shard.variable = static_cast<int>(variable);
  shards_.push_back(shard);
  shards_.back().bytes = *tensor_bytes(variables_[variable].dtype, shard_shape(shards_.size() - 1));
}

std::string PlacementPlan::shard_name(std::size_t shard) const {
  const Shard& one = shards_.at(shard);
  const std::string& name = variables_[static_cast<std::size_t>(one.variable)].name;
  return one.parts == 1 ? name : fmt::format("{}/part_{}", name, one.part);
}

std::vector<std::int64_t> PlacementPlan::shard_shape(std::size_t shard) const {
  const Shard& one = shards_.at(shard);
  std::vector<std::int64_t> shape = variables_[static_cast<std::size_t>(one.variable)].shape;
  if (!shape.empty()) shape[0] = one.rows();
  return shape;
}

const PlanVariable& PlacementPlan::variable_of(std::size_t shard) const {
  return variables_[static_cast<std::size_t>(shards_.at(shard).variable)];
}

std::span<const Shard> PlacementPlan::shards_of(std::size_t variable) const {
  const std::size_t begin = first_shard_.at(variable);
  return std::span(shards_).subspan(begin, first_shard_.at(variable + 1) - begin);
}

std::vector<std::size_t> PlacementPlan::shards_on(int ps) const {
  std::vector<std::size_t> ids;
  for (std::size_t i = 0; i < shards_.size(); ++i) {
    if (shards_[i].ps == ps) ids.push_back(i);
  }
  return ids;
}

std::uint64_t PlacementPlan::bytes_on(int ps) const {
  return std::accumulate(
      shards_.begin(), shards_.end(), std::uint64_t{0},
      [&](std::uint64_t sum, const Shard& shard) { return sum + (shard.ps == ps ? shard.bytes : 0); });
}

std::uint64_t PlacementPlan::bytes() const {
  return std::accumulate(shards_.begin(), shards_.end(), std::uint64_t{0},
                         [](std::uint64_t sum, const Shard& shard) { return sum + shard.bytes; });
}

std::vector<int> PlacementPlan::idle_ps() const {
  std::vector<bool> busy(static_cast<std::size_t>(num_ps_));
  for (const Shard& shard : shards_) busy[static_cast<std::size_t>(shard.ps)] = true;
  std::vector<int> idle;
  for (int ps = 0; ps < num_ps_; ++ps) {
    if (!busy[static_cast<std::size_t>(ps)]) idle.push_back(ps);
  }
  return idle;
}

std::string PlacementPlan::table() const {
  struct Load {
    std::size_t shards = 0;
    std::size_t parts = 0;
    std::uint64_t bytes = 0;
  };
  std::vector<Load> loads(static_cast<std::size_t>(num_ps_));
  for (const Shard& shard : shards_) {
    Load& load = loads[static_cast<std::size_t>(shard.ps)];
    ++load.shards;
    load.parts += shard.parts > 1;
    load.bytes += shard.bytes;
  }
  const std::uint64_t all = bytes();
  const auto share = [&](std::uint64_t bytes) {
    return all == 0 ? "-"
                    : fmt::format("{:.1f} %", 100.0 * static_cast<double>(bytes) / static_cast<double>(all));
  };
  std::vector<std::vector<std::string>> rows{{"PS", "SHARDS", "PARTS", "BYTES", "SIZE", "SHARE"}};
  const auto add = [&](std::string name, const Load& load) {
    rows.push_back({std::move(name), fmt::to_string(load.shards), fmt::to_string(load.parts),
                    fmt::to_string(load.bytes), human_bytes(load.bytes), share(load.bytes)});
  };
  Load sum;
  for (std::size_t ps = 0; ps < loads.size(); ++ps) {
    add(fmt::to_string(ps), loads[ps]);
    sum = {sum.shards + loads[ps].shards, sum.parts + loads[ps].parts, sum.bytes + loads[ps].bytes};
  }
  add("all", sum);
  std::string text = align_columns(rows, {false, true, true, true, true, true});
  for (const int ps : idle_ps()) {
    text += fmt::format("ps {} gets nothing: {} shards for {} ps tasks\n", ps, shards_.size(), num_ps_);
  }
  return text;
}

// Names come last in their lines and hold no line break, so no two plans give the same text.
std::string PlacementPlan::canonical() const {
  std::string text = fmt::format("{} ps {}\n", kFormat, num_ps_);
  for (std::size_t i = 0; i < shards_.size(); ++i) {
    const Shard& shard = shards_[i];
    const PlanVariable& variable = variables_[static_cast<std::size_t>(shard.variable)];
    text += fmt::format(
        "shard {} ps {} rows {} to {} of {} [{}] group {} part {} of {} of {} {}\n", i, shard.ps,
        shard.row_begin, shard.row_end, variable.dtype, fmt::join(variable.shape, ", "),
        variable.option_group, shard.part, shard.parts,
        variable.is_table() ? fmt::format("table with stddev {}", variable.first_values->stddev) : "variable",
        variable.name);
  }
  return text;
}

std::string PlacementPlan::digest() const {
  const std::string text = canonical();
  Sha256 digest;
  digest.update(text.data(), text.size());
  return digest.hex();
}

std::string PlacementPlan::to_json() const {
  Json json{{"format", kFormat}, {"num_ps", num_ps_}, {"variables", Json::array()}};
  for (std::size_t i = 0; i < variables_.size(); ++i) {
    const PlanVariable& variable = variables_[i];
    Json parts = Json::array();
    for (const Shard& shard : shards_of(i)) {
      parts.push_back({{"rows", {shard.row_begin, shard.row_end}}, {"ps", shard.ps}});
    }
    json["variables"].push_back({{"name", variable.name},
                                 {"dtype", variable.dtype},
                                 {"shape", variable.shape},
                                 {"option_group", variable.option_group},
                                 {"parts", std::move(parts)}});
    if (const auto& first = variable.first_values) {
      json["variables"].back()["first_values"] = {{"stddev", first->stddev}, {"seed", first->seed}};
    }
  }
  return json.dump();
}

PlacementPlan PlacementPlan::from_json(std::string_view text) {
  const Json json = parse_json(text);
  const std::string whole = "the plan";
  if (text_field(json, whole, "format") != kFormat)
    throw wrong(whole, "format", fmt::format("\"{}\"", kFormat));
  PlacementPlan plan;
  plan.num_ps_ = static_cast<int>(whole_number(field(json, whole, "num_ps"), whole, "num_ps", kMostPs));
  check_num_ps(plan.num_ps_);
  const Json& variables = array(json, whole, "variables", kMostShards);
  for (const Json& one : variables) {
    const std::string& name = text_field(one, "a variable", "name");
    const std::string where = fmt::format("variable {}", quote(name));
    PlanVariable variable{.name = name, .dtype = text_field(one, where, "dtype"), .shape = {}};
    for (const Json& size : array(one, where, "shape", kMostDimensions)) {
      variable.shape.push_back(whole_number(size, where, "shape", static_cast<std::int64_t>(kMostElements)));
    }
    variable.option_group = static_cast<int>(
        whole_number(field(one, where, "option_group"), where, "option_group", kMostOptionGroups - 1));
    if (const auto first = one.find("first_values"); first != one.end()) {
      variable.first_values = normal_values(*first, fmt::format("the first values of {}", where));
    }
    plan.variables_.push_back(std::move(variable));
  }
  plan.check_variables();
  for (std::size_t i = 0; i < plan.variables_.size(); ++i) {
    const PlanVariable& variable = plan.variables_[i];
    const std::string where = fmt::format("variable {}", quote(variable.name));
    const Json& parts = array(variables[i], where, "parts", kMostShards - plan.shards_.size());
    plan.first_shard_.push_back(plan.shards_.size());
    std::int64_t row = 0;
    for (std::size_t part = 0; part < parts.size(); ++part) {
      const Json& range = array(parts[part], where, "rows", 2);
      if (range.size() != 2) throw wrong(where, "rows", "a pair");
      Shard shard{.part = static_cast<int>(part),
                  .parts = static_cast<int>(parts.size()),
                  .row_begin = whole_number(range[0], where, "rows", variable.rows()),
                  .row_end = whole_number(range[1], where, "rows", variable.rows())};
      shard.ps =
          static_cast<int>(whole_number(field(parts[part], where, "ps"), where, "ps", plan.num_ps_ - 1));
      if (shard.row_begin != row || shard.row_end < row || (shard.rows() == 0 && parts.size() > 1)) {
        throw InvalidArgument(
            fmt::format("placement plan: {} has rows {} to {} where those from {} on are due", where,
                        shard.row_begin, shard.row_end, row));
      }
      row = shard.row_end;
      plan.add_shard(i, shard);
    }
    if (row != variable.rows() || parts.empty()) {
      throw InvalidArgument(
          fmt::format("placement plan: {} has {} of its {} rows", where, row, variable.rows()));
    }
  }
  plan.first_shard_.push_back(plan.shards_.size());
  plan.check_shard_names();
  return plan;
}

std::string plan_difference(std::string_view text_a, std::string_view who_a, std::string_view text_b,
                            std::string_view who_b) {
  const auto next_line = [](std::string_view& text) {
    const std::string_view line = text.substr(0, text.find('\n'));
    text.remove_prefix(std::min(line.size() + 1, text.size()));
    return line;
  };
  const auto shown = [](std::string_view line) {
    constexpr std::size_t kLongestLine = 400;  // the texts may be anything
    if (line.empty()) return std::string("nothing more");
    std::string text = to_utf8(line.substr(0, kLongestLine));
    std::ranges::replace_if(
        text, [](char c) { return static_cast<unsigned char>(c) < ' ' || c == 0x7f; }, ' ');
    return fmt::format("\"{}\"", text);
  };
  while (!text_a.empty() || !text_b.empty()) {
    const std::string_view a = next_line(text_a);
    const std::string_view b = next_line(text_b);
    if (a != b) return fmt::format("{} has {}, {} has {}", who_a, shown(a), who_b, shown(b));
  }
  return fmt::format("{} and {} have the same plan", who_a, who_b);
}

}  // namespace tandem::internal::ps
