#pragma once

#include <string>

#include "report.h"

namespace tandem::bench {

// Each prints its table and adds its figures and bars to the report.

// ResNet-20 on one and two replicas, and what a step spends on the exchange.
void step_speed(int rounds, Report& report);

// Shuffled, augmented batches of CIFAR-10 on one core. data_dir empty: generated images.
// Throws NotFound or DataLoss for a folder without the data.
void input_speed(int rounds, const std::string& data_dir, Report& report);

// What fit() costs beside the model, for one and for 50 steps per execution.
void fit_overhead(int rounds, Report& report);

// The all-reduce between two replicas beside a plain addition.
void all_reduce_speed(int rounds, Report& report);

// From the start of a process to the end of its first step, and the memory of a replica. Both run this
// program again, with a flag that ends in one of the probes.
void first_step(Report& report);
void memory(Report& report);

// In such a process: what it does, then what it tells on standard output.
inline constexpr const char* kFirstStepProbe = "--first_step_probe";
inline constexpr const char* kMemoryProbe = "--memory_probe";
inline constexpr const char* kCentralProbe = "--central_probe";  // with kMemoryProbe
void first_step_probe();
void memory_probe(int replicas, bool central);

// The process that bench/compare measures, of one variant: two replicas ("mirrored" or "no_exchange"), or one
// of two that each have a process ("multi_worker" or "parameter_server", told by TF_CONFIG which it is, or
// "alone"). Speaks as bench/compare_worker.py tells, and returns when standard input ends.
inline constexpr const char* kStepWorker = "--step_worker";
void step_worker(const std::string& variant);

// The process that bench/collectives measures for the all-reduce between two replicas of one process. Gets
// its orders at that socket; see orders.h.
inline constexpr const char* kAllReduceWorker = "--all_reduce_worker";
void all_reduce_worker(const std::string& orders);

}  // namespace tandem::bench
