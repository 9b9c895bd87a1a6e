#include "tandem/exporter.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <optional>
#include <vector>

#include "base/files.h"
#include "base/log.h"
#include "cluster/text.h"
#include "tandem/error.h"

namespace tandem {
namespace {

namespace fs = std::filesystem;

// Of the folders named after times in an export folder, all but the newest `keep` go.
void remove_old(const std::string& export_path, int keep) {
  std::vector<fs::path> exports;
  std::error_code ignored;
  for (const auto& entry : fs::directory_iterator(export_path, ignored)) {
    const std::string name = entry.path().filename().string();
    if (std::ranges::all_of(name, [](unsigned char c) { return std::isdigit(c); }))
      exports.push_back(entry.path());
  }
  std::ranges::sort(exports);
  for (std::size_t i = 0; i + static_cast<std::size_t>(keep) < exports.size(); ++i) {
    fs::remove_all(exports[i], ignored);
    if (ignored) internal::log_warning("cannot remove {}: {}", exports[i].string(), ignored.message());
  }
}

void check(const std::string& name, int keep) {
  if (name.empty() || name.find('/') != std::string::npos) {
    throw InvalidArgument("an exporter's name is " + internal::quote(name) +
                          ": expected the name of a folder");
  }
  if (keep < 1)
    throw InvalidArgument("exporter " + internal::quote(name) + ": exports_to_keep: expected 1 or more");
}

class Latest final : public Exporter {
 public:
  Latest(std::string name, int keep) : name_(std::move(name)), keep_(keep) { check(name_, keep); }
  const std::string& name() const override { return name_; }
  std::string export_model(Estimator& estimator, const Evaluated& evaluated) override {
    const std::string folder =
        estimator.export_model(evaluated.export_path, evaluated.example, evaluated.checkpoint_path);
    remove_old(evaluated.export_path, keep_);
    return folder;
  }

 private:
  std::string name_;
  int keep_;
};

class Final final : public Exporter {
 public:
  explicit Final(std::string name) : name_(std::move(name)) { check(name_, 1); }
  const std::string& name() const override { return name_; }
  std::string export_model(Estimator& estimator, const Evaluated& evaluated) override {
    if (!evaluated.is_the_final_export) return {};
    return estimator.export_model(evaluated.export_path, evaluated.example, evaluated.checkpoint_path);
  }

 private:
  std::string name_;
};

// Numbers as texts: JSON has no infinity.
std::string to_json(const Logs& result) {
  nlohmann::ordered_json json;
  for (const auto& [name, value] : result) json[name] = fmt::format("{}", value);
  return json.dump(2) + "\n";
}

// Nothing if there is no such file.
std::optional<Logs> read_result(const std::string& path) {
  std::ifstream file(path);
  if (!file) return {};
  const auto json = nlohmann::ordered_json::parse(file, nullptr, /*allow_exceptions=*/false);
  Logs result;
  bool good = json.is_object();
  for (const auto& [name, value] : json.items()) {
    double number = 0;
    good = good && value.is_string();
    if (!good) break;
    const std::string text = value;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
    good = error == std::errc() && end == text.data() + text.size();
    result.set(name, number);
  }
  if (!good) {
    throw DataLoss(
        fmt::format("{} is not the best result so far, as BestExporter writes it: remove it to begin anew",
                    internal::quote(path)));
  }
  return result;
}

class Best final : public Exporter {
 public:
  Best(std::string name, BestExporterOptions options) : name_(std::move(name)), options_(std::move(options)) {
    check(name_, options_.exports_to_keep);
    if (!options_.compare_fn) {
      options_.compare_fn = [](const Logs& best, const Logs& current) {
        return current.at("loss") < best.at("loss");
      };
    }
  }

  const std::string& name() const override { return name_; }

  std::string export_model(Estimator& estimator, const Evaluated& evaluated) override {
    const std::string record = evaluated.export_path + "/" + kRecord;
    if (!best_) best_ = read_result(record);
    if (best_ && !options_.compare_fn(*best_, evaluated.result)) return {};
    const std::string folder =
        estimator.export_model(evaluated.export_path, evaluated.example, evaluated.checkpoint_path);
    // After the export: killed in between, the next one may be of the same result once more, but none is
    // lost.
    internal::replace_file(record, to_json(evaluated.result));
    best_ = evaluated.result;
    remove_old(evaluated.export_path, options_.exports_to_keep);
    return folder;
  }

 private:
  static constexpr const char* kRecord = "best.json";

  std::string name_;
  BestExporterOptions options_;
  std::optional<Logs> best_;
};

}  // namespace

std::shared_ptr<Exporter> LatestExporter(std::string name, int exports_to_keep) {
  return std::make_shared<Latest>(std::move(name), exports_to_keep);
}
std::shared_ptr<Exporter> FinalExporter(std::string name) {
  return std::make_shared<Final>(std::move(name));
}
std::shared_ptr<Exporter> BestExporter(std::string name, BestExporterOptions options) {
  return std::make_shared<Best>(std::move(name), std::move(options));
}

}  // namespace tandem
