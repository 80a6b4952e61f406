/* SPDX-License-Identifier: MIT */
/* XXH3 with 128 bits. https://github.com/Cyan4973/xxHash, doc/xxhash_spec.md */
#include "io/checksum.h"

#include "base/memory.h"
#include "base/status.h"
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

/* ---- of the blocks of a file's data ---- */

#define LEAST ((uint64_t)64 << 10)
enum { MOST = 1 << 14 }; /* blocks, and so 128 KiB for a file */

uint64_t cz__block_bytes(uint64_t data_bytes)
{
    uint64_t bytes = LEAST;
    while (data_bytes / bytes > MOST)
        bytes *= 2;
    return bytes;
}

cz_status cz__block_sums_begin(cz__block_sums *s, cz__block_table *blocks, uint64_t data_bytes)
{
    *s = (cz__block_sums){.blocks = blocks, .block = cz__block_bytes(data_bytes)};
    cz__block_table_clear(blocks);
    blocks->count = (int64_t)((data_bytes + s->block - 1) / s->block);
    blocks->sums = cz__calloc((size_t)blocks->count + 1, sizeof *blocks->sums);
    s->state = cz__checksum_begin();
    if (blocks->sums && s->state)
        return CZ_OK;
    cz__block_sums_end(s, false);
    return cz__fail(CZ_ERR_MEMORY, "checkpoint: checksums of blocks");
}

void cz__block_sums_add(cz__block_sums *s, const char *bytes, size_t count)
{
    while (count > 0) {
        const uint64_t room = s->block - s->at % s->block;
        const size_t part = count < room ? count : (size_t)room;
        uint64_t *sum = &s->blocks->sums[s->at / s->block];
        if (part == s->block) {
            *sum = cz__checksum_of(bytes, part).low;
        } else {
            cz__checksum_add(s->state, bytes, part);
            if (part == room)
                *sum = cz__checksum_take(s->state).low;
        }
        s->at += part;
        bytes += part;
        count -= part;
    }
}

void cz__block_sums_end(cz__block_sums *s, bool whole)
{
    if (whole && s->at % s->block > 0)
        s->blocks->sums[s->at / s->block] = cz__checksum_take(s->state).low;
    if (!whole)
        cz__block_table_clear(s->blocks);
    cz__checksum_end(s->state);
}

void cz__block_table_clear(cz__block_table *blocks)
{
    cz__free(blocks->sums);
    *blocks = (cz__block_table){0};
}
