#include "ps/shard_intake.h"

namespace tandem::internal::ps {
namespace {

// Whoever takes them may use them as numbers.
constexpr std::size_t kAlignment = 64;

}  // namespace

void ShardIntake::begin(std::vector<ShardTensor> tensors) {
  tensors_ = std::move(tensors);
  first_ = 0;
  lay_out();
}

void ShardIntake::lay_out() {
  at_ = first_;
  room_ = {};
  has_room_ = false;
  offsets_.assign(1, 0);
  for (std::size_t i = first_; i < tensors_.size() && tensors_[i].shard == tensors_[first_].shard; ++i) {
    const std::size_t end = offsets_.back() + tensors_[i].payload_bytes();
    offsets_.push_back((end + kAlignment - 1) / kAlignment * kAlignment);
  }
}

void ShardIntake::set_room(Staging::Buffer room) {
  room_ = std::move(room);
  has_room_ = true;
}

std::span<std::byte> ShardIntake::part(std::size_t index) const {
  return room_.bytes().subspan(offsets_[index], tensors_[first_ + index].payload_bytes());
}

std::span<std::byte> ShardIntake::memory() const {
  return part(at_ - first_);
}

bool ShardIntake::advance() {
  ++at_;
  return at_ - first_ + 1 == offsets_.size();
}

std::vector<StateTensor> ShardIntake::state() const {
  std::vector<StateTensor> state;
  for (std::size_t i = first_ + 1; i < at_; ++i) {
    state.push_back({tensors_[i].name, tensors_[i].dtype, tensors_[i].shape, part(i - first_)});
  }
  return state;
}

void ShardIntake::next_shard() {
  first_ = at_;
  lay_out();
}

std::uint64_t ShardIntake::rest() const {
  std::uint64_t bytes = 0;
  for (std::size_t i = at_; i < tensors_.size(); ++i) bytes += tensors_[i].payload_bytes();
  return bytes;
}

}  // namespace tandem::internal::ps
