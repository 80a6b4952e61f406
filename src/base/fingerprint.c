/* SPDX-License-Identifier: MIT */
/* FNV-1a with 64 bits (Fowler, Noll, Vo); over many bytes, four at once of words, as they wait for each other less. */
#include "base/fingerprint.h"

#include <string.h>

static const uint64_t basis = UINT64_C(0xcbf29ce484222325), prime = UINT64_C(0x100000001b3);

uint64_t cz__fingerprint(uint64_t before, const void *bytes, size_t count)
{
    const uint8_t *byte = bytes;
    uint64_t hash = before ^ basis;
    for (size_t i = 0; i < count; i++)
        hash = (hash ^ byte[i]) * prime;
    return hash;
}

/* Of a product the lower bits know nothing of the upper ones of its factors, so these are brought down. */
static uint64_t mix_word(uint64_t hash, uint64_t word)
{
    hash = (hash ^ word) * UINT64_C(0x9e3779b97f4a7c15);
    return hash ^ hash >> 32;
}

uint64_t cz__fingerprint_elements(uint64_t before, const void *bytes, size_t count)
{
    enum { LANES = 4, BLOCK = LANES * sizeof(uint64_t) };
    const uint8_t *byte = bytes;
    uint64_t lanes[LANES], words[LANES];
    for (int k = 0; k < LANES; k++)
        lanes[k] = before ^ basis * (uint64_t)(2 * k + 1);
    size_t at = 0;
    for (; count - at >= BLOCK; at += BLOCK) {
        memcpy(words, byte + at, sizeof words);
        for (int k = 0; k < LANES; k++)
            lanes[k] = mix_word(lanes[k], words[k]);
    }
    uint64_t hash = before;
    for (int k = 0; k < LANES; k++)
        hash = mix_word(hash, lanes[k]);
    return count > at ? cz__fingerprint(hash, byte + at, count - at) : hash;
}
