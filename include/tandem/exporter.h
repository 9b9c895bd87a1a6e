#pragma once

#include <functional>
#include <memory>
#include <string>

#include "tandem/estimator.h"

namespace tandem {

// What train_and_evaluate() exports, and when. Derive, or use one of those below.
class Exporter {
 public:
  virtual ~Exporter() = default;
  // The folder in model_dir/export.
  virtual const std::string& name() const = 0;

  struct Evaluated {
    std::string export_path;      // model_dir/export/<name>
    std::string checkpoint_path;  // what was evaluated
    Logs result;
    bool is_the_final_export = false;
    Tensors example;  // features of one row
  };
  // After each evaluation. Returns where it exported to; empty: it did not.
  virtual std::string export_model(Estimator& estimator, const Evaluated& evaluated) = 0;
};

// After each evaluation; of older ones so many are kept.
std::shared_ptr<Exporter> LatestExporter(std::string name, int exports_to_keep = 5);

// Once, at the end.
std::shared_ptr<Exporter> FinalExporter(std::string name);

struct BestExporterOptions {
  // Whether the second is better. Empty: the one with the smaller "loss".
  std::function<bool(const Logs& best, const Logs& current)> compare_fn = {};
  int exports_to_keep = 5;
};
// Whenever the result is the best so far. It is kept in "best.json" beside the exports, so that a program
// that is started again knows it; remove the file to begin anew. Throws DataLoss if somebody else has written
// it.
std::shared_ptr<Exporter> BestExporter(std::string name, BestExporterOptions options = {});

}  // namespace tandem
