#pragma once

#include <string>

namespace tandem::internal {

// A folder of mode 0700 in the making, beside the place where it will be: filled first, then put there in one
// step. Goes away with its contents if it never was.
class NewFolder {
 public:
  // The parent of `final_path` must exist. Throws NotFound with the system's reason if it cannot be written.
  explicit NewFolder(const std::string& final_path);
  ~NewFolder();
  NewFolder(const NewFolder&) = delete;
  NewFolder& operator=(const NewFolder&) = delete;

  std::string file(const std::string& name) const { return path_ + "/" + name; }

  // Once, one of the two. Throws InvalidArgument if something other than an empty folder has the name.
  void put_in_place();
  // The folder that has the name is replaced, in one step where the file system can do that, and removed.
  void replace();

 private:
  std::string final_path_;
  std::string path_;
};

}  // namespace tandem::internal
