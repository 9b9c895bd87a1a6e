#pragma once

#include <gtest/gtest.h>

#include <string>
#include <utility>

namespace tandem::testing_support {

// What the ErrorType that fn throws says.
template <typename ErrorType, typename Fn>
std::string message_of(Fn&& fn) {
  try {
    std::forward<Fn>(fn)();
  } catch (const ErrorType& error) {
    return error.what();
  }
  ADD_FAILURE() << "nothing was thrown";
  return {};
}

}  // namespace tandem::testing_support
