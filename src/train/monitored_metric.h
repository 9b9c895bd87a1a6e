#pragma once

#include <optional>
#include <string>

#include "tandem/callbacks.h"

namespace tandem::internal {

// The metric that a callback goes by.
class MonitoredMetric {
 public:
  // `who`: the callback, as warnings call it.
  MonitoredMetric(std::string who, std::string name);

  // Its value; nothing where there is none, as in an epoch without validation. The first time of a training
  // that is said in the log of the chief.
  std::optional<double> in(const Logs& logs, const Model& model);

  void on_train_begin() { warned_ = false; }

 private:
  std::string who_;
  std::string name_;
  bool warned_ = false;
};

// A number that a callback has remembered, or nothing.
std::optional<double> remembered(const CallbackState& state, const std::string& name);

}  // namespace tandem::internal
