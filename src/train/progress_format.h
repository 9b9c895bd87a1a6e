#pragma once

#include <cstdint>
#include <string>

#include "tandem/callbacks.h"

namespace tandem::internal {

// How far an epoch is.
struct Progress {
  std::int64_t steps = 0;
  std::int64_t total = -1;  // -1: not known
  double seconds = 0;       // since the epoch began
  double seconds_per_step = 0;
  bool finished = false;
};

// The text of Keras's progress bar, letter for letter.

// "4s", "1:05", "1:01:05".
std::string format_eta(double seconds);
// "5s/step", "5ms/step" or "5us/step".
std::string format_duration(double seconds, const std::string& unit);
// " - loss: 0.1234 - accuracy: 5.0000e-04"; nothing for empty logs.
std::string format_logs(const Logs& logs);

// The line that is drawn again and again:
//    35/938 [>.............................] - ETA: 4s - loss: 0.1234
//   938/938 [==============================] - 5s 5ms/step - loss: 0.1234
//        35/Unknown - 1s 5ms/step - loss: 0.1234
std::string bar_line(const Progress& progress, const Logs& logs);

// One line for a finished epoch:
//   938/938 - 5s - loss: 0.1234 - 5s/epoch - 5ms/step
std::string epoch_line(const Progress& progress, const Logs& logs);

// At most so many bytes of it, without a part of a character at the end.
std::string cut_to(std::string line, std::size_t most);

}  // namespace tandem::internal
