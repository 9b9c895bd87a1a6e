#include "base/cpu_features.h"

#if defined(__x86_64__)
#include <cpuid.h>
#elif defined(__aarch64__) && defined(__linux__)
#include <asm/hwcap.h>
#include <sys/auxv.h>
#endif

namespace tandem::internal {

bool has_bfloat16_instructions() {
#if defined(__x86_64__)
  constexpr unsigned kExtended = 7;
  constexpr unsigned kAmxBf16 = 1u << 22;    // leaf 7, subleaf 0, edx
  constexpr unsigned kAvx512Bf16 = 1u << 5;  // leaf 7, subleaf 1, eax
  unsigned a = 0, b = 0, c = 0, d = 0;
  if (!__get_cpuid_count(kExtended, 0, &a, &b, &c, &d)) return false;
  if (d & kAmxBf16) return true;
  return a >= 1 && __get_cpuid_count(kExtended, 1, &a, &b, &c, &d) && (a & kAvx512Bf16);
#elif defined(__aarch64__) && defined(__linux__) && defined(HWCAP2_BF16)
  return getauxval(AT_HWCAP2) & HWCAP2_BF16;
#else
  return false;
#endif
}

}  // namespace tandem::internal
