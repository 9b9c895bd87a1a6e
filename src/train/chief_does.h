#pragma once

#include <functional>
#include <string>

namespace tandem::internal {

class StrategyImpl;

// Something that one task does for all, such as writing a file: the chief calls fn, and every task returns
// when it has. An Error that it throws is thrown on every task, and the group is none the worse. A
// collective.
void chief_does(StrategyImpl& strategy, const std::string& what, const std::function<void()>& fn);

}  // namespace tandem::internal
