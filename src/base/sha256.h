#pragma once

#include <cstddef>
#include <memory>
#include <string>

struct evp_md_ctx_st;

namespace tandem::internal {

class Sha256 {
 public:
  Sha256();
  ~Sha256();

  void update(const void* data, std::size_t bytes);

  // Once: the digest in lower-case hexadecimal.
  std::string hex();

 private:
  struct Free {
    void operator()(evp_md_ctx_st* context) const;
  };
  std::unique_ptr<evp_md_ctx_st, Free> context_;
};

}  // namespace tandem::internal
