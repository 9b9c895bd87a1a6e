#include "support/memory_disk.h"

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "base/random.h"

namespace tandem::testing_support {

using internal::Bytes;
using internal::FileError;
using internal::FolderEntry;

class MemoryDisk::Writer final : public internal::WritableFile {
 public:
  Writer(MemoryDisk& disk, NodePtr node, std::string path)
      : disk_(disk), node_(std::move(node)), path_(std::move(path)) {}

  void append(std::span<const Bytes> pieces) override {
    std::string text;
    for (const Bytes piece : pieces) {
      text.append(reinterpret_cast<const char*>(piece.data()), piece.size());
    }
    disk_.call(
        Call::kAppend, path_, [&] { node_->data += text; },
        [&] { node_->data += text.substr(0, text.size() / 2); });
  }
  void sync() override {
    disk_.call(Call::kSync, path_, [&] { node_->synced_data = node_->data; });
  }

 private:
  MemoryDisk& disk_;
  NodePtr node_;
  std::string path_;
};

class MemoryDisk::Reader final : public internal::ReadableFile {
 public:
  explicit Reader(NodePtr node) : node_(std::move(node)) {}

  std::uint64_t size() const override { return node_->data.size(); }
  std::size_t read_at(std::uint64_t offset, std::span<std::byte> bytes) const override {
    if (offset >= node_->data.size()) return 0;
    const std::size_t n = std::min<std::size_t>(bytes.size(), node_->data.size() - offset);
    if (n > 0) std::memcpy(bytes.data(), node_->data.data() + offset, n);
    return n;
  }
  void forget_cached() const override {}

 private:
  NodePtr node_;
};

MemoryDisk::MemoryDisk() : root_(std::make_shared<Node>(Node{.is_folder = true})) {}

void MemoryDisk::call(Call kind, const std::string& path, const std::function<void()>& effect,
                      const std::function<void()>& half) {
  if (crashed_) throw Crash{};
  const int reason = fault_ ? fault_(kind, calls_) : 0;
  ++calls_;
  if (reason != 0) {
    if (half) half();
    throw FileError("write to", path, reason);
  }
  effect();
  if (calls_ == crash_at_) {
    crashed_ = true;
    throw Crash{};
  }
}

MemoryDisk::NodePtr MemoryDisk::find(const std::string& path) const {
  NodePtr node = root_;
  for (std::size_t begin = 0; begin < path.size() && node;) {
    const std::size_t end = std::min(path.find('/', begin), path.size());
    const std::string name = path.substr(begin, end - begin);
    begin = end + 1;
    if (name.empty()) continue;
    const auto found = node->entries.find(name);
    node = found == node->entries.end() ? nullptr : found->second;
  }
  return node;
}

MemoryDisk::NodePtr MemoryDisk::get(const char* what, const std::string& path) const {
  if (crashed_) throw Crash{};
  NodePtr node = find(path);
  if (!node) throw FileError(what, path, ENOENT);
  return node;
}

MemoryDisk::Place MemoryDisk::place(const char* what, const std::string& path) const {
  const std::size_t slash = path.rfind('/');
  const NodePtr folder = get(what, path.substr(0, slash));
  if (!folder->is_folder) throw FileError(what, path, ENOTDIR);
  return {folder, path.substr(slash + 1)};
}

void MemoryDisk::apply(Entries& entries, const Change& change) {
  for (const auto& [name, node] : change) {
    if (node) {
      entries[name] = node;
    } else {
      entries.erase(name);
    }
  }
}

void MemoryDisk::change(const NodePtr& folder, Change change) {
  apply(folder->entries, change);
  folder->unsynced.push_back(std::move(change));
}

std::unique_ptr<internal::WritableFile> MemoryDisk::create_file(const std::string& path) {
  const Place at = place("create", path);
  if (at.folder->entries.contains(at.name)) throw FileError("create", path, EEXIST);
  const auto node = std::make_shared<Node>();
  call(Call::kCreateFile, path, [&] { change(at.folder, {{at.name, node}}); });
  return std::make_unique<Writer>(*this, node, path);
}

std::unique_ptr<internal::ReadableFile> MemoryDisk::open_file(const std::string& path) {
  const NodePtr node = get("open", path);
  if (node->is_folder) throw FileError("open", path, EISDIR);
  return std::make_unique<Reader>(node);
}

void MemoryDisk::create_folder(const std::string& path) {
  const Place at = place("create the folder", path);
  if (at.folder->entries.contains(at.name)) throw FileError("create the folder", path, EEXIST);
  call(Call::kCreateFolder, path, [&] {
    change(at.folder, {{at.name, std::make_shared<Node>(Node{.is_folder = true})}});
  });
}

void MemoryDisk::sync_folder(const std::string& path) {
  const NodePtr node = get("sync the folder", path);
  call(Call::kSyncFolder, path, [&] {
    node->synced_entries = node->entries;
    node->unsynced.clear();
  });
}

void MemoryDisk::rename(const std::string& from, const std::string& to) {
  const Place old_place = place("rename", from);
  const Place new_place = place("rename to", to);
  const NodePtr node = get("rename", from);
  const NodePtr replaced = find(to);
  if (replaced && replaced->is_folder && !replaced->entries.empty()) {
    throw FileError("rename to", to, ENOTEMPTY);
  }
  if (replaced && replaced->is_folder != node->is_folder) {
    throw FileError("rename to", to, node->is_folder ? ENOTDIR : EISDIR);
  }
  if (old_place.folder != new_place.folder) throw FileError("rename to", to, EXDEV);
  call(Call::kRename, to, [&] {
    change(old_place.folder, {{old_place.name, nullptr}, {new_place.name, node}});
  });
}

bool MemoryDisk::exchange(const std::string& a, const std::string& b) {
  if (!can_exchange_) return false;
  const NodePtr node_a = get("rename", a);
  const NodePtr node_b = get("rename", b);
  const Place place_a = place("rename", a);
  const Place place_b = place("rename", b);
  if (place_a.folder != place_b.folder) throw FileError("rename to", b, EXDEV);
  call(Call::kExchange, b, [&] { change(place_a.folder, {{place_a.name, node_b}, {place_b.name, node_a}}); });
  return true;
}

void MemoryDisk::remove_file(const std::string& path) {
  if (get("remove", path)->is_folder) throw FileError("remove", path, EISDIR);
  const Place at = place("remove", path);
  call(Call::kRemove, path, [&] { change(at.folder, {{at.name, nullptr}}); });
}

void MemoryDisk::remove_folder(const std::string& path) {
  const NodePtr node = get("remove the folder", path);
  if (!node->is_folder) throw FileError("remove the folder", path, ENOTDIR);
  if (!node->entries.empty()) throw FileError("remove the folder", path, ENOTEMPTY);
  const Place at = place("remove the folder", path);
  call(Call::kRemove, path, [&] { change(at.folder, {{at.name, nullptr}}); });
}

std::vector<FolderEntry> MemoryDisk::list(const std::string& path) {
  const NodePtr node = get("list", path);
  if (!node->is_folder) throw FileError("list", path, ENOTDIR);
  std::vector<FolderEntry> entries;
  for (const auto& [name, entry] : node->entries) {
    entries.push_back({name, entry->is_folder ? FolderEntry::Kind::kFolder : FolderEntry::Kind::kFile});
  }
  return entries;
}

std::string& MemoryDisk::contents(const std::string& path) {
  return get("open", path)->data;
}

bool MemoryDisk::exists(const std::string& path) const {
  return find(path) != nullptr;
}

std::shared_ptr<MemoryDisk> MemoryDisk::after_crash(Unsynced unsynced, std::uint64_t seed) const {
  const auto random = [&](std::uint64_t below) {
    return internal::mix(seed += internal::kCounterStep) % below;
  };
  // Appended and not synced: gone, there, cut, or there by its length but with holes of zeros.
  const auto surviving_data = [&](const Node& node) {
    if (unsynced == Unsynced::kLost || node.data == node.synced_data) return node.synced_data;
    if (unsynced == Unsynced::kKept) return node.data;
    const std::size_t synced = node.synced_data.size();
    std::string data = node.data.substr(0, synced + random(node.data.size() - synced + 1));
    if (random(2) == 0) std::fill(data.begin() + static_cast<std::ptrdiff_t>(synced), data.end(), '\0');
    return data;
  };
  std::map<const Node*, NodePtr> copies;
  const std::function<NodePtr(const NodePtr&)> survive = [&](const NodePtr& node) {
    NodePtr& copy = copies[node.get()];
    if (copy) return copy;
    copy = std::make_shared<Node>(Node{.is_folder = node->is_folder});
    copy->data = copy->synced_data = surviving_data(*node);
    Entries entries = node->synced_entries;
    for (const Change& change : node->unsynced) {
      const bool kept = unsynced == Unsynced::kKept || (unsynced == Unsynced::kSome && random(2) == 0);
      if (kept) apply(entries, change);
    }
    const NodePtr result = copy;  // the map may move what it holds
    for (const auto& [name, entry] : entries) result->entries[name] = survive(entry);
    result->synced_entries = result->entries;
    return result;
  };
  auto disk = std::make_shared<MemoryDisk>();
  disk->root_ = survive(root_);
  disk->can_exchange_ = can_exchange_;
  return disk;
}

}  // namespace tandem::testing_support
