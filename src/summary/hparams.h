#pragma once

#include <string>

#include "tandem/summary.h"

namespace tandem::internal {

// What the plugin "hparams" reads in the metadata of these tags. Names and texts must be UTF-8.
inline constexpr const char* kExperimentTag = "_hparams_/experiment";
inline constexpr const char* kSessionStartTag = "_hparams_/session_start_info";
inline constexpr const char* kSessionEndTag = "_hparams_/session_end_info";

std::string encode_session_start_info(const HParams& values, const std::string& group, double start_time);
std::string encode_session_end_info(TrialStatus status, double end_time);
// Throws InvalidArgument for one that has both values and an interval, or values of several types.
std::string encode_experiment(const HParamsConfig& config, double time_created);

// The group that TensorFlow gives to these values: a digest of them as JSON.
std::string group_of(const HParams& values);

}  // namespace tandem::internal
