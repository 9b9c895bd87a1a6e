#pragma once

namespace tandem::internal {

// Whether this CPU multiplies bfloat16 numbers itself (x86: AVX512_BF16 or AMX_BF16; ARM: BF16). Without,
// libraries do it in float32 with conversions around, which is slower than float32 alone.
bool has_bfloat16_instructions();

}  // namespace tandem::internal
