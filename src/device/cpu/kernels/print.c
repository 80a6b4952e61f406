/* SPDX-License-Identifier: MIT */
/* Of each word w at place n two terms are added, which are products of sums of w, n and the key that
 * wrap around, after the NH hash (Black et al., "UMAC", CRYPTO 1999). So what is added up does not
 * depend on the order, and every word has a term of its own. */
#include "device/cpu/kernels/kernel.h"

CZ_PRINT_KERNEL
{
    uint32_t u = first * 0x9e3779b1u + (uint32_t)key;
    uint32_t v = first * 0x85ebca77u + (uint32_t)(key >> 32);
    uint64_t s = 0, t = 0;
    for (int64_t i = 0; i < count; i++) {
        const uint32_t a = words[i] + u, b = words[i] ^ v;
        const uint64_t p = (uint64_t)a * b;
        s += p;
        t += (uint64_t)((uint32_t)p ^ (uint32_t)(p >> 32)) * (a ^ 0xc2b2ae3du);
        u += 0x9e3779b1u;
        v += 0x85ebca77u;
    }
    print[0] += s;
    print[1] += t;
}
