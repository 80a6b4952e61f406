/* SPDX-License-Identifier: MIT */
/* Fingerprints of words: what kernels add, at every level. */
#include <string.h>

#include "device/cpu/cpu.h"
#include "support/cz_test.h"

/* One word, at its place. */
static void add_word(uint64_t key, uint32_t place, uint32_t x, uint64_t print[2])
{
    const uint32_t u = place * 0x9e3779b1u + (uint32_t)key;
    const uint32_t v = place * 0x85ebca77u + (uint32_t)(key >> 32);
    print[0] += (uint64_t)(x + u) * (x ^ v);
    print[1] += (uint64_t)(x ^ (u + 0x27d4eb2fu)) * (x + (v ^ 0xc2b2ae3du));
}

TEST(fingerprints_are_alike_at_every_level_wherever_words_are_cut)
{
    enum { WORDS = 100 };
    const uint64_t key = UINT64_C(0xfedcba9876543210);
    uint32_t words[WORDS];
    for (int i = 0; i < WORDS; i++)
        words[i] = (uint32_t)i * 2654435761u ^ (i % 3 == 0 ? 0xffffffffu : 0);
    for (int level = 0; level < CZ__CPU_LEVEL_COUNT; level++) {
        const cz__cpu_kernels *kernels = cz__cpu_kernels_at((cz__cpu_level)level);
        for (int begin = 0; kernels && begin < 20; begin++)
            for (int end = begin; end <= WORDS; end++) {
                const uint32_t first = UINT32_MAX - 50 + (uint32_t)begin; /* places wrap around */
                uint64_t wanted[2] = {7, 9}, got[2] = {7, 9};
                for (int i = begin; i < end; i++)
                    add_word(key, first + (uint32_t)(i - begin), words[i], wanted);
                kernels->print(key, first, end - begin, words + begin, got);
                if (memcmp(got, wanted, sizeof got) != 0)
                    fail_msg("%s: words %d to %d", kernels->level, begin, end);
            }
    }
}
