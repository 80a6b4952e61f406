/* SPDX-License-Identifier: MIT */
/* XXH3 with 128 bits. https://github.com/Cyan4973/xxHash, doc/xxhash_spec.md */
#include "io/checksum.h"

#include "io/system.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include <xxhash.h>
#ifdef CZ_XXHASH_DISPATCH /* by the processor: what is compiled for every x86-64 is half as fast */
#include <xxh_x86dispatch.h>
#endif

static cz__checksum from_hash(XXH128_hash_t hash)
{
    return (cz__checksum){.high = hash.high64, .low = hash.low64};
}

cz__checksum cz__checksum_of(const void *bytes, size_t count)
{
    return from_hash(XXH3_128bits(bytes, count));
}

void cz__checksum_print(cz__checksum checksum, char text[33])
{
    snprintf(text, 33, "%016" PRIx64 "%016" PRIx64, checksum.high, checksum.low);
}

bool cz__checksum_scan(const char *text, cz__checksum *checksum)
{
    uint64_t halves[2] = {0, 0};
    for (int i = 0; i < 32; i++) {
        static const char digits[] = "0123456789abcdef";
        const char *digit = text[i] ? strchr(digits, text[i]) : NULL;
        if (!digit)
            return false;
        halves[i / 16] = halves[i / 16] << 4 | (uint64_t)(digit - digits);
    }
    *checksum = (cz__checksum){.high = halves[0], .low = halves[1]};
    return text[32] == '\0';
}

cz__checksum_state *cz__checksum_begin(void)
{
    cz__checksum_state *state = XXH3_createState();
    if (state)
        XXH3_128bits_reset(state);
    return state;
}

void cz__checksum_add(cz__checksum_state *state, const void *bytes, size_t count)
{
    if (cz__system_used.checksums)
        XXH3_128bits_update(state, bytes, count);
}

cz__checksum cz__checksum_take(cz__checksum_state *state)
{
    const cz__checksum checksum = from_hash(XXH3_128bits_digest(state));
    XXH3_128bits_reset(state);
    return checksum;
}

void cz__checksum_end(cz__checksum_state *state)
{
    XXH3_freeState(state);
}
