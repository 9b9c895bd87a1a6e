#include "rpc/guests.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>

#include "rpc/limits.h"

namespace tandem::internal {
namespace {

// A process that was heard within this is alive, even if it is about to be found dead.
constexpr std::chrono::milliseconds kAlive{500};

}  // namespace

template <typename Predicate>
std::vector<std::shared_ptr<IncomingLink>> Guests::those(Predicate predicate) const {
  std::vector<std::shared_ptr<IncomingLink>> found;
  const std::lock_guard lock(mutex_);
  std::ranges::copy_if(links_, std::back_inserter(found), predicate);
  return found;
}

void Guests::opened(const std::shared_ptr<IncomingLink>& link) {
  {
    const std::lock_guard lock(mutex_);
    links_.insert(link);
  }
  const auto half_open = those([](const auto& other) { return other->half_open(); });
  if (half_open.size() <= kHalfOpenLinks) return;
  // The oldest goes: a task of the cluster needs a few milliseconds, a stranger who waits keeps nobody out.
  const auto oldest =
      std::ranges::min_element(half_open, {}, [](const auto& other) { return other->opened_at(); });
  (*oldest)->close("too many handshakes at once");
}

std::optional<rpc::Refusal> Guests::admit(const IncomingLink& link) {
  if (!link.task()) return std::nullopt;
  const std::lock_guard lock(mutex_);
  const auto [known, is_new] =
      present_.try_emplace(*link.task(), Present{link.incarnation(), Clock::now(), 0});
  if (!is_new && known->second.incarnation != link.incarnation()) {
    if (Clock::now() - known->second.heard < kAlive) {
      rpc::Refusal refusal;
      refusal.set_reason(rpc::Refusal::TAKEN);
      refusal.set_message(
          fmt::format("another process is {} already, and it is alive: two have the same task index",
                      link.task()->name()));
      return refusal;
    }
    known->second = {link.incarnation(), Clock::now(), 0};
  }
  ++known->second.links;
  return std::nullopt;
}

std::map<TaskId, Guests::Present>::iterator Guests::present(const IncomingLink& link) {
  const auto known = present_.find(*link.task());
  return known != present_.end() && known->second.incarnation == link.incarnation() ? known : present_.end();
}

void Guests::heard(const IncomingLink& link) {
  const std::lock_guard lock(mutex_);
  if (const auto known = present(link); known != present_.end()) known->second.heard = Clock::now();
}

bool Guests::closed(const IncomingLink& link) {
  const std::lock_guard lock(mutex_);
  std::erase_if(links_, [&](const auto& other) { return other.get() == &link; });
  if (!link.admitted() || !link.task()) return false;
  const auto known = present(link);
  if (known == present_.end() || --known->second.links > 0) return false;
  present_.erase(known);
  return true;
}

void Guests::drop_slow() {
  const auto now = Clock::now();
  for (const auto& link : those([&](const auto& other) {
         return !other->admitted() && now - other->opened_at() > kHandshakePatience;
       })) {
    link->close("the handshake took too long");
  }
}

std::vector<std::shared_ptr<IncomingLink>> Guests::observers() const {
  return those([](const auto& link) { return link->admitted() && !link->task(); });
}

}  // namespace tandem::internal
