/* SPDX-License-Identifier: MIT */
/* Checksums of blocks. */
#include "io/blocks.h"

#include "base/memory.h"
#include "base/status.h"

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
