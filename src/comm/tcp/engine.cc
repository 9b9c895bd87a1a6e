#include <gloo/context.h>
#include <signal.h>

#include <memory>
#include <mutex>
#include <optional>

#include "comm/backends.h"
#include "comm/gloo_algorithms.h"
#include "comm/tcp/forming.h"
#include "comm/tcp/mesh.h"
#include "tandem/error.h"

namespace tandem::internal::tcp {
namespace {

// A Gloo context over a mesh that stands already.
class MeshContext final : public ::gloo::Context {
 public:
  MeshContext(const std::shared_ptr<Mesh>& mesh, int first_slot) : ::gloo::Context(mesh->rank, mesh->size) {
    transportContext_ = mesh;
    slot_ = first_slot;
  }
};

std::vector<std::string> names_of(const std::vector<Member>& members) {
  std::vector<std::string> names;
  for (const Member& member : members) names.push_back(member.name);
  return names;
}

// Gloo's algorithms over connections that know who is at the other end, can be aborted and check what
// arrives.
class TcpEngine final : public Engine {
 public:
  explicit TcpEngine(GroupSetup setup)
      : several_hosts_(on_several_hosts(setup.members)),
        mesh_(std::make_shared<Mesh>(setup.rank, names_of(setup.members), form_group(setup))),
        algorithms_(
            mesh_->rank, mesh_->size, GlooAlgorithms::Bound::kToCallersMemory,
            [mesh = mesh_](int first_slot) { return std::make_shared<MeshContext>(mesh, first_slot); }) {}

  ~TcpEngine() override {
    if (!failed_) mesh_->say_goodbye();
  }

  std::string name() const override { return "tcp"; }
  int rank() const override { return mesh_->rank; }
  int size() const override { return mesh_->size; }
  std::string member_name(int rank) const override { return mesh_->name(rank); }
  bool several_hosts() const override { return several_hosts_; }

  void run(const Operation& operation) override {
    const std::lock_guard running(running_);
    if (const auto reason = aborted_because()) throw Aborted(*reason);
    mesh_->begin(operation);
    try {
      algorithms_.run(operation);
    } catch (const Error& error) {
      const auto reason = aborted_because();
      give_up(reason ? ErrorCode::kAborted : error.code(), reason.value_or(error.what()));
      if (reason) throw Aborted(*reason);
      throw;
    }
  }

  void abort(const std::string& reason) override {
    {
      const std::lock_guard lock(reason_mutex_);
      if (!reason_) reason_ = reason;
    }
    mesh_->interrupt();
    // Whoever is in run() tells the others; if nobody is, that is for us to do.
    const std::unique_lock running(running_, std::try_to_lock);
    if (running && !failed_) give_up(ErrorCode::kAborted, *aborted_because());
  }

  Traffic traffic() const override { return mesh_->traffic(); }

 private:
  std::optional<std::string> aborted_because() const {
    const std::lock_guard lock(reason_mutex_);
    return reason_;
  }

  void give_up(ErrorCode code, const std::string& reason) {
    failed_ = true;
    mesh_->give_up(code, reason);
    algorithms_.clear();
  }

  const bool several_hosts_;
  const std::shared_ptr<Mesh> mesh_;
  std::mutex running_;
  GlooAlgorithms algorithms_;
  bool failed_ = false;
  mutable std::mutex reason_mutex_;
  std::optional<std::string> reason_;
};

}  // namespace

bool available() {
  return true;
}

std::unique_ptr<Engine> create(GroupSetup setup) {
  // OpenSSL writes without MSG_NOSIGNAL: a peer that dies would take this process along.
  if (setup.encrypt) {
    struct sigaction current {};
    sigaction(SIGPIPE, nullptr, &current);
    if (current.sa_handler == SIG_DFL) signal(SIGPIPE, SIG_IGN);
  }
  return std::make_unique<TcpEngine>(std::move(setup));
}

}  // namespace tandem::internal::tcp
