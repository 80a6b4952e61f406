/* SPDX-License-Identifier: MIT */
/* Of each word x at place n two products are added, whose factors are sums of x, n and the key that
 * wrap around, in the manner of NH (Black et al., "UMAC", CRYPTO 1999). So the order of words is in
 * no sum, and each has a term of its own. */
#include "device/cpu/kernels/kernel.h"

CZ_PRINT_KERNEL
{
    const uint32_t STEP = 0x9e3779b1u, OTHER_STEP = 0x85ebca77u;
    uint32_t u = first * STEP + (uint32_t)key;
    uint32_t v = first * OTHER_STEP + (uint32_t)(key >> 32);
    uint64_t s = 0, t = 0;
    for (int64_t i = 0; i < count; i++) {
        const uint32_t x = words[i];
        s += (uint64_t)(x + u) * (x ^ v);
        t += (uint64_t)(x ^ (u + 0x27d4eb2fu)) * (x + (v ^ 0xc2b2ae3du));
        u += STEP;
        v += OTHER_STEP;
    }
    print[0] += s;
    print[1] += t;
}
