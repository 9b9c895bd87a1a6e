#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "checkpoint/file_system.h"

namespace tandem::testing_support {

// The machine has lost its power: thrown by the call during which it did, and by all that come after. No
// Error, since nothing may handle it.
struct Crash {};

// A disk in memory that keeps only what was synced, and does with the rest what a real one may: lose it, keep
// it, or keep some of it. Names are kept apart from contents: a file that was synced is lost with its name if
// its folder was not.
class MemoryDisk final : public internal::FileSystem {
 public:
  enum class Call { kCreateFile, kAppend, kSync, kCreateFolder, kSyncFolder, kRename, kExchange, kRemove };

  MemoryDisk();

  // Calls that change something, so far.
  int calls() const { return calls_; }
  // The machine stops after that many more calls.
  void crash_after(int calls) { crash_at_ = calls_ + calls; }
  // Asked before each call, with its number; a reason makes it fail, after half of an append.
  void set_fault(std::function<int(Call, int number)> fault) { fault_ = std::move(fault); }
  void refuse_exchange() { can_exchange_ = false; }

  enum class Unsynced { kLost, kKept, kSome };
  // What is found when the machine starts again. kSome: whatever the seed says.
  std::shared_ptr<MemoryDisk> after_crash(Unsynced unsynced, std::uint64_t seed = 0) const;

  // To look at and to damage.
  std::string& contents(const std::string& path);
  bool exists(const std::string& path) const;

  std::unique_ptr<internal::WritableFile> create_file(const std::string& path) override;
  std::unique_ptr<internal::ReadableFile> open_file(const std::string& path) override;
  void create_folder(const std::string& path) override;
  void sync_folder(const std::string& path) override;
  void rename(const std::string& from, const std::string& to) override;
  bool exchange(const std::string& a, const std::string& b) override;
  void remove_file(const std::string& path) override;
  void remove_folder(const std::string& path) override;
  std::vector<internal::FolderEntry> list(const std::string& path) override;

 private:
  struct Node;
  using NodePtr = std::shared_ptr<Node>;
  using Entries = std::map<std::string, NodePtr>;
  // Names that change together; null: the name goes.
  using Change = std::vector<std::pair<std::string, NodePtr>>;
  struct Node {
    bool is_folder = false;
    std::string data = {};
    std::string synced_data = {};
    Entries entries = {};
    Entries synced_entries = {};
    std::vector<Change> unsynced = {};
  };
  struct Place {
    NodePtr folder;
    std::string name;
  };
  class Writer;
  class Reader;

  // Every call that changes something goes through here: `effect` happens unless a fault is due.
  void call(Call kind, const std::string& path, const std::function<void()>& effect,
            const std::function<void()>& half = {});
  NodePtr find(const std::string& path) const;
  NodePtr get(const char* what, const std::string& path) const;
  Place place(const char* what, const std::string& path) const;
  static void apply(Entries& entries, const Change& change);
  static void change(const NodePtr& folder, Change change);

  NodePtr root_;
  int calls_ = 0;
  int crash_at_ = -1;
  bool crashed_ = false;
  bool can_exchange_ = true;
  std::function<int(Call, int)> fault_;
};

}  // namespace tandem::testing_support
