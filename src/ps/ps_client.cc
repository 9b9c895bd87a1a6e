#include "ps/ps_client.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cassert>

#include "base/crc32c.h"
#include "base/hmac.h"
#include "base/log.h"
#include "checkpoint/safetensors.h"
#include "ps/limits.h"
#include "ps/ps_link.h"
#include "ps/shard_store.h"
#include "ps/wire_values.h"
#include "tandem/error.h"

namespace tandem::internal::ps {
namespace {

// A pull is asked for in pieces: the ps copies the next one while this one is on its way.
constexpr std::size_t kPullPiece = std::size_t{4} << 20;

// For a ps that is gone when this worker has finished.
constexpr std::chrono::milliseconds kFarewell{2000};
constexpr std::chrono::milliseconds kFarewellLook{50};

// A shard with its state, by name, in the caller's memory.
struct ShardView {
  std::span<const std::byte> values = {};
  std::vector<StateTensor> state = {};
};

std::vector<ShardView> views_of(std::span<const ShardImage> images) {
  std::vector<ShardView> views;
  for (const ShardImage& image : images) {
    ShardView& view = views.emplace_back(ShardView{.values = image.values});
    for (const StateImage& state : image.state) {
      view.state.push_back({state.name, state.dtype, state.shape, state.bytes});
    }
    std::ranges::sort(view.state, {}, &StateTensor::name);
  }
  return views;
}

}  // namespace

PsLocator at_addresses(std::vector<std::string> addresses, std::string key) {
  return [addresses = std::move(addresses), key = std::move(key)](
             int ps, std::string& why) -> std::optional<PsEndpoint> {
    const auto index = static_cast<std::size_t>(ps);
    if (index < addresses.size()) return PsEndpoint{addresses[index], key};
    why = fmt::format("there are {} addresses", addresses.size());
    return std::nullopt;
  };
}

bool PsHandle::done() const {
  const std::lock_guard lock(operation_->mutex);
  return operation_->missing.empty();
}

PsOutcome PsHandle::wait(std::chrono::milliseconds timeout) {
  std::unique_lock lock(operation_->mutex);
  const auto over = [&] { return operation_->missing.empty() || operation_->error; };
  if (!operation_->changed.wait_for(lock, timeout, over)) {
    std::vector<std::string> who;
    for (const auto& [name, count] : operation_->missing) who.push_back(name);
    throw DeadlineExceeded(fmt::format("no answer from {} within {:.1f} s", fmt::join(who, ", "),
                                       std::chrono::duration<double>(timeout).count()));
  }
  if (operation_->error) std::rethrow_exception(operation_->error);
  return operation_->outcome;
}

struct PsClient::Impl {
  Impl(PlacementPlan the_plan, PsClientOptions the_options)
      : plan(std::move(the_plan)), options(std::move(the_options)) {
    assert(options.locate);
    if (!options.incarnation) random_bytes(&options.incarnation, sizeof options.incarnation);
    for (const Shard& shard : plan.shards()) {
      const auto& variable = plan.variables()[static_cast<std::size_t>(shard.variable)];
      const auto type = wire_type_of(variable.dtype);
      if (!type) {
        throw InvalidArgument(fmt::format("variable {} is {}: parameter servers hold F32, F64 and BF16",
                                          variable.name, variable.dtype));
      }
      types.push_back(*type);
    }
    for (int ps = 0; ps < plan.num_ps(); ++ps) {
      shards_on.push_back(plan.shards_on(ps));
      links.push_back(std::make_unique<PsLink>(ps, plan, options));
    }
  }

  WireType wire_type(std::size_t shard) const {
    return options.bfloat16 && types[shard] == WireType::kFloat32 ? WireType::kBfloat16 : types[shard];
  }

  // Throws InvalidArgument unless shards ascend and sizes are the plan's.
  void check(const char* what, std::size_t shard, std::size_t bytes, std::span<const std::int64_t> row_ids,
             std::optional<std::size_t> before) const {
    if (shard >= plan.shards().size() || (before && *before >= shard)) {
      throw InvalidArgument(fmt::format("a {} of shard {}: expected ascending numbers below {}", what, shard,
                                        plan.shards().size()));
    }
    const Shard& there = plan.shards()[shard];
    std::uint64_t expected = there.bytes;
    if (!row_ids.empty()) {
      expected = there.bytes / static_cast<std::uint64_t>(there.rows()) * row_ids.size();
      const std::string fault = fault_of_rows(row_ids, there.rows());
      if (!fault.empty()) throw InvalidArgument(fmt::format("{}: {}", plan.shard_name(shard), fault));
    }
    if (bytes != expected) {
      throw InvalidArgument(
          fmt::format("a {} of {} has {} bytes: expected {}", what, plan.shard_name(shard), bytes, expected));
    }
  }

  // The same for all shards; state must have names of its own, and the sizes that it says.
  void check(std::span<const ShardView> shards) const {
    if (shards.size() != plan.shards().size()) {
      throw InvalidArgument(
          fmt::format("values of {} shards: the plan has {}", shards.size(), plan.shards().size()));
    }
    for (std::size_t shard = 0; shard < shards.size(); ++shard) {
      if (plan.is_table(shard)) {
        if (shards[shard].values.empty() && shards[shard].state.empty()) continue;
        throw InvalidArgument(
            fmt::format("values of {}: a table is filled by its ps, and pushed and pulled by row",
                        plan.shard_name(shard)));
      }
      check("value", shard, shards[shard].values.size(), {}, {});
      const StateTensor* before = nullptr;
      for (const StateTensor& state : shards[shard].state) {
        const std::string name = fmt::format("state \"{}\" of {}", state.name, plan.shard_name(shard));
        const std::string fault = fault_of_tensor_name(state.name);
        if (!fault.empty()) throw InvalidArgument(fmt::format("{}: its name {}", name, fault));
        if (state.name.size() > kLongestStateName || state.shape.size() > kMostDimensions) {
          throw InvalidArgument(fmt::format("{}: its name or shape is too long", name));
        }
        if (before && before->name == state.name) throw InvalidArgument(name + " comes twice");
        if (tensor_bytes(state.dtype, state.shape) != state.bytes.size()) {
          throw InvalidArgument(fmt::format("{} has {} bytes: not those of {} [{}]", name, state.bytes.size(),
                                            state.dtype, fmt::join(state.shape, ", ")));
        }
        before = &state;
      }
    }
  }

  // Adds what is sent of these shards to one ps to the payload.
  std::vector<ShardTensor> add_tensors(PsLink::Request& request, std::size_t ps,
                                       std::span<const ShardView> shards) const {
    std::vector<ShardTensor> tensors;
    const auto add = [&](std::size_t shard, const StateTensor& tensor) {
      tensors.push_back({.shard = static_cast<std::uint32_t>(shard),
                         .name = tensor.name,
                         .dtype = tensor.dtype,
                         .shape = tensor.shape,
                         .crc = crc32c(tensor.bytes.data(), tensor.bytes.size())});
      request.payloads.push_back({.values = tensor.bytes});
    };
    for (const std::size_t shard : shards_on[ps]) {
      const PlanVariable& variable = plan.variable_of(shard);
      if (variable.is_table()) continue;
      add(shard, {{}, variable.dtype, plan.shard_shape(shard), shards[shard].values});
      for (const StateTensor& state : shards[shard].state) add(shard, state);
    }
    return tensors;
  }

  int initialise(const std::string& optimizer, std::span<const ShardView> shards, std::uint64_t global_step);

  PsLink& link_of(std::size_t shard) const {
    return *links[static_cast<std::size_t>(plan.shards().at(shard).ps)];
  }

  std::unique_ptr<PsLink::Request> request(MessageKind kind,
                                           const std::shared_ptr<PsHandle::Operation>& operation) const {
    auto made = std::make_unique<PsLink::Request>();
    made->kind = kind;
    made->operation = operation;
    return made;
  }

  const PlacementPlan plan;
  PsClientOptions options;
  std::vector<WireType> types;  // by shard
  std::vector<std::vector<std::size_t>> shards_on;
  std::vector<std::unique_ptr<PsLink>> links;
};

PsClient::PsClient(PlacementPlan plan, PsClientOptions options)
    : impl_(std::make_unique<Impl>(std::move(plan), std::move(options))) {}

PsClient::~PsClient() = default;

int PsClient::initialise(const std::string& optimizer, std::span<const std::span<const std::byte>> values) {
  std::vector<ShardView> shards;
  for (const std::span<const std::byte> of_shard : values) shards.push_back({.values = of_shard});
  return impl_->initialise(optimizer, shards, 0);
}

int PsClient::initialise(const std::string& optimizer, std::span<const ShardImage> images,
                         std::uint64_t global_step) {
  return impl_->initialise(optimizer, views_of(images), global_step);
}

int PsClient::Impl::initialise(const std::string& optimizer, std::span<const ShardView> shards,
                               std::uint64_t global_step) {
  check(shards);
  const std::string plan_text = plan.to_json();
  const auto operation = std::make_shared<PsHandle::Operation>();
  for (std::size_t ps = 0; ps < links.size(); ++ps) {
    auto made = request(MessageKind::kInitialise, operation);
    made->texts = plan_text + optimizer;
    made->initialise = {.worker = static_cast<std::uint32_t>(options.worker),
                        .incarnation = options.incarnation,
                        .global_step = global_step,
                        .plan_bytes = static_cast<std::uint32_t>(plan_text.size()),
                        .optimizer_bytes = static_cast<std::uint32_t>(optimizer.size()),
                        .texts_crc = crc32c(made->texts.data(), made->texts.size()),
                        .entries = add_tensors(*made, ps, shards)};
    operation->expect(links[ps]->name());
    links[ps]->ask(std::move(made));
  }
  {
    // The links have a deadline of their own. All must be done with the caller's memory.
    std::unique_lock lock(operation->mutex);
    operation->changed.wait(lock, [&] { return operation->missing.empty(); });
    if (operation->error) std::rethrow_exception(operation->error);
  }
  for (const auto& link : links) link->wait_until_ready();
  return operation->initialised_before;
}

void PsClient::wait_until_ready() {
  for (const auto& link : impl_->links) link->wait_until_ready();
}

std::uint64_t PsClient::first_step() const {
  std::optional<std::uint64_t> first;
  for (std::size_t ps = 0; ps < impl_->links.size(); ++ps) {
    if (impl_->shards_on[ps].empty()) continue;
    const std::uint64_t step = impl_->links[ps]->first_step();
    first = std::min(first.value_or(step), step);
  }
  return first.value_or(0);
}

std::uint64_t PsClient::global_step() const {
  return impl_->links.front()->global_step();
}

PsHandle PsClient::push_async(const PushOrder& order, std::span<const Gradient> gradients) {
  std::optional<std::size_t> before;
  for (const Gradient& gradient : gradients) {
    impl_->check("gradient", gradient.shard, gradient.values.size(), gradient.row_ids, before);
    before = gradient.shard;
  }
  const auto operation = std::make_shared<PsHandle::Operation>();
  std::vector<std::unique_ptr<PsLink::Request>> requests(impl_->links.size());
  for (std::size_t ps = 0; ps < impl_->links.size(); ++ps) {
    if (impl_->shards_on[ps].empty()) continue;
    auto request = impl_->request(MessageKind::kPush, operation);
    request->push = {.worker = static_cast<std::uint32_t>(impl_->options.worker),
                     .incarnation = impl_->options.incarnation,
                     .seq = 1,
                     .closure = order.closure,
                     .closure_push = order.closure_push,
                     .closures_settled = order.closures_settled,
                     .step = order.step,
                     .learning_rate = order.learning_rate};
    auto next = gradients.begin();
    for (const std::size_t shard : impl_->shards_on[ps]) {
      next = std::find_if(next, gradients.end(), [&](const Gradient& g) { return g.shard >= shard; });
      Push::Entry& entry = request->push.entries.emplace_back();
      PayloadSpans& payload = request->payloads.emplace_back();
      entry.shard = static_cast<std::uint32_t>(shard);
      if (next == gradients.end() || next->shard != shard) continue;
      entry.kind = next->row_ids.empty() ? PayloadKind::kDense : PayloadKind::kRows;
      entry.type = impl_->wire_type(shard);
      entry.rows = next->row_ids.size();
      entry.count = next->values.size() / wire_type_bytes(impl_->types[shard]);
      payload = {.row_ids = std::as_bytes(next->row_ids), .values = next->values};
    }
    operation->expect(impl_->links[ps]->name());
    requests[ps] = std::move(request);
  }
  for (std::size_t ps = 0; ps < requests.size(); ++ps) {
    if (requests[ps]) impl_->links[ps]->ask(std::move(requests[ps]));
  }
  return PsHandle(operation);
}

PsHandle PsClient::pull_async(std::uint64_t step, std::span<const PullTarget> targets) {
  std::optional<std::size_t> before;
  for (const PullTarget& target : targets) {
    impl_->check("pull", target.shard, target.values.size(), target.row_ids, before);
    before = target.shard;
  }
  const auto operation = std::make_shared<PsHandle::Operation>();
  std::vector<std::pair<std::size_t, std::unique_ptr<PsLink::Request>>> requests;
  std::vector<PsLink::Request*> open(impl_->links.size());  // the piece that may grow, by ps
  std::vector<std::size_t> open_bytes(impl_->links.size());
  for (const PullTarget& target : targets) {
    const auto ps = static_cast<std::size_t>(impl_->plan.shards()[target.shard].ps);
    if (!open[ps] || open_bytes[ps] + target.values.size() > kPullPiece) {
      auto request = impl_->request(MessageKind::kPull, operation);
      request->pull = {.worker = static_cast<std::uint32_t>(impl_->options.worker),
                       .incarnation = impl_->options.incarnation,
                       .step = step};
      open[ps] = request.get();
      open_bytes[ps] = 0;
      operation->expect(impl_->links[ps]->name());
      requests.emplace_back(ps, std::move(request));
    }
    open_bytes[ps] += target.values.size();
    open[ps]->targets.push_back(target);
    open[ps]->pull.entries.push_back(
        {.shard = static_cast<std::uint32_t>(target.shard),
         .kind = target.row_ids.empty() ? PayloadKind::kDense : PayloadKind::kRows,
         .type = impl_->wire_type(target.shard),
         .rows = target.row_ids.size()});
  }
  for (auto& [ps, request] : requests) impl_->links[ps]->ask(std::move(request));
  return PsHandle(operation);
}

std::vector<ShardImage> PsClient::read_shards(std::chrono::milliseconds timeout) {
  const auto operation = std::make_shared<PsHandle::Operation>();
  std::vector<std::shared_ptr<ShardImage>> read;  // shared: after a timeout they may still be filled
  std::vector<std::unique_ptr<PsLink::Request>> requests;
  for (std::size_t shard = 0; shard < impl_->plan.shards().size(); ++shard) {
    read.push_back(std::make_shared<ShardImage>());
    if (impl_->plan.is_table(shard)) continue;
    auto& request = requests.emplace_back(impl_->request(MessageKind::kRead, operation));
    request->read = {.worker = static_cast<std::uint32_t>(impl_->options.worker),
                     .incarnation = impl_->options.incarnation,
                     .shard = static_cast<std::uint32_t>(shard)};
    request->image = read.back();
    operation->expect(impl_->link_of(shard).name());
  }
  for (auto& request : requests) {
    PsLink& link = impl_->link_of(request->read.shard);
    link.ask(std::move(request));
  }
  PsHandle(operation).wait(timeout);
  std::vector<ShardImage> images;
  for (const auto& image : read) images.push_back(std::move(*image));
  return images;
}

void PsClient::assign(std::span<const ShardImage> images, std::optional<std::uint64_t> global_step,
                      std::chrono::milliseconds timeout) {
  const std::vector<ShardView> shards = views_of(images);
  impl_->check(shards);
  const auto operation = std::make_shared<PsHandle::Operation>();
  for (std::size_t ps = 0; ps < impl_->links.size(); ++ps) {
    auto request = impl_->request(MessageKind::kAssign, operation);
    request->assign = {.worker = static_cast<std::uint32_t>(impl_->options.worker),
                       .incarnation = impl_->options.incarnation,
                       .has_global_step = global_step.has_value(),
                       .global_step = global_step.value_or(0),
                       .entries = impl_->add_tensors(*request, ps, shards)};
    operation->expect(impl_->links[ps]->name());
    impl_->links[ps]->ask(std::move(request));
  }
  try {
    PsHandle(operation).wait(timeout);
  } catch (...) {
    // The images are the caller's: none may be on its way when they are gone.
    for (const auto& link : impl_->links) link->close();
    throw;
  }
}

bool PsClient::is_lost() const {
  return std::ranges::any_of(impl_->links, [](const auto& link) { return link->is_lost(); });
}

std::uint64_t PsClient::lost_updates(std::size_t shard) const {
  return impl_->link_of(shard).lost(shard);
}

std::uint64_t PsClient::lost_updates() const {
  std::uint64_t lost = 0;
  for (const auto& link : impl_->links) lost += link->lost_at_worst();
  return lost;
}

void PsClient::finish(std::chrono::milliseconds timeout) {
  const auto operation = std::make_shared<PsHandle::Operation>();
  for (const auto& link : impl_->links) {
    auto request = impl_->request(MessageKind::kFinished, operation);
    request->push.worker = static_cast<std::uint32_t>(impl_->options.worker);
    request->push.incarnation = impl_->options.incarnation;
    operation->expect(link->name());
    link->ask(std::move(request));
  }
  const auto begin = std::chrono::steady_clock::now();
  std::unique_lock lock(operation->mutex);
  while (!operation->missing.empty()) {
    const auto waited = std::chrono::steady_clock::now() - begin;
    // One that is not there may be on its way back; one that is there gets all the time.
    const bool any_there = std::ranges::any_of(impl_->links, [&](const auto& link) {
      return operation->missing.contains(link->name()) && link->is_connected();
    });
    if (waited >= (any_there ? timeout : std::min(timeout, kFarewell))) break;
    operation->changed.wait_for(lock, kFarewellLook);
  }
  for (const auto& [name, count] : operation->missing) {
    log_warning("worker {}: {} was not told that this worker has finished", impl_->options.worker, name);
  }
}

}  // namespace tandem::internal::ps
