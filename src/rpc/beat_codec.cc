#include "rpc/beat_codec.h"

#include <cmath>

#include "rpc/handshake.h"

namespace tandem::internal {
namespace {

bool is_phase(std::uint32_t value) {
  return value <= static_cast<std::uint32_t>(Phase::kStopped);
}

bool is_evidence(std::uint32_t value) {
  return value <= static_cast<std::uint32_t>(Evidence::kStalled);
}

}  // namespace

void encode(const Beat& beat, rpc::Beat& message) {
  message.set_sequence(beat.sequence);
  message.set_generation(beat.generation);
  message.set_abandoned(beat.abandoned);
  message.set_phase(static_cast<std::uint32_t>(beat.phase));
  message.set_view(beat.view);
  message.set_step(beat.step);
  message.set_examples_per_second(beat.examples_per_second);
  message.set_rounds(beat.rounds);
  for (const Sighting& sighting : beat.sightings) {
    rpc::Sighting& entry = *message.add_sightings();
    if (sighting.incarnation) entry.set_incarnation(bytes_of(sighting.incarnation));
    entry.set_phase(static_cast<std::uint32_t>(sighting.phase));
    entry.set_lost(static_cast<std::uint32_t>(sighting.lost));
    entry.set_silence_ms(sighting.silence == Time::max() ? -1 : sighting.silence.count());
  }
  if (beat.decision) {
    rpc::Loss& loss = *message.mutable_decision();
    loss.set_task(beat.decision->task);
    loss.set_incarnation(bytes_of(beat.decision->incarnation));
    loss.set_evidence(static_cast<std::uint32_t>(beat.decision->evidence));
    loss.set_step(beat.decision->step);
    loss.set_decided_by(beat.decision->decided_by);
  }
}

std::optional<Beat> decode(const rpc::Beat& message, int tasks, int from, const Incarnation& incarnation) {
  if (message.sightings_size() != tasks || !is_phase(message.phase())) return std::nullopt;
  Beat beat{
      .from = from,
      .incarnation = incarnation,
      .sequence = message.sequence(),
      .generation = message.generation(),
      .abandoned = message.abandoned(),
      .phase = static_cast<Phase>(message.phase()),
      .view = message.view(),
      .step = message.step(),
      .examples_per_second = std::isfinite(message.examples_per_second()) ? message.examples_per_second() : 0,
      .rounds = message.rounds()};
  beat.sightings.reserve(static_cast<std::size_t>(tasks));
  for (const rpc::Sighting& entry : message.sightings()) {
    if (!is_phase(entry.phase()) || !is_evidence(entry.lost())) return std::nullopt;
    beat.sightings.push_back({.incarnation = incarnation_of(entry.incarnation()),
                              .phase = static_cast<Phase>(entry.phase()),
                              .lost = static_cast<Evidence>(entry.lost()),
                              .silence = entry.silence_ms() < 0 ? Time::max() : Time(entry.silence_ms())});
  }
  if (message.has_decision()) {
    const rpc::Loss& loss = message.decision();
    if (!is_evidence(loss.evidence()) || loss.task() < 0 || loss.task() >= tasks) return std::nullopt;
    beat.decision = Loss{.task = loss.task(),
                         .incarnation = incarnation_of(loss.incarnation()),
                         .evidence = static_cast<Evidence>(loss.evidence()),
                         .step = loss.step(),
                         .decided_by = loss.decided_by()};
  }
  return beat;
}

}  // namespace tandem::internal
