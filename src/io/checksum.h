/* SPDX-License-Identifier: MIT */
/* A checksum of bytes that come one piece after the other. */
#ifndef CZ_IO_CHECKSUM_H
#define CZ_IO_CHECKSUM_H

#include "io/stream.h"

typedef struct XXH3_state_s cz__checksum_state;

cz__checksum_state *cz__checksum_begin(void); /* NULL: no memory; its own, libxxhash makes it */
void cz__checksum_add(cz__checksum_state *state, const void *bytes, size_t count);
cz__checksum cz__checksum_take(cz__checksum_state *state); /* and begins anew */
void cz__checksum_end(cz__checksum_state *state);          /* accepts NULL */

/* ---- of the blocks of a file's data ---- */

/* Checksums of the blocks of a file's data, in the order of the file. They are taken while the file is verified; what is read
 * afterwards, in whole tensors or in parts of them, is compared with them, so that bytes which change in between are found. */
typedef struct cz__block_table {
    uint64_t *sums; /* owned; NULL: not known */
    int64_t count;
} cz__block_table;

/* The size of a block of that many bytes of data: 64 KiB, and more where there would be very many. */
uint64_t cz__block_bytes(uint64_t data_bytes);

/* Taking them: all bytes, one piece after the other, then the end. CZ_ERR_MEMORY. */
typedef struct cz__block_sums {
    cz__block_table *blocks;   /* borrowed */
    cz__checksum_state *state; /* owned */
    uint64_t block, at;        /* bytes of a block; that were added */
} cz__block_sums;
cz_status cz__block_sums_begin(cz__block_sums *sums, cz__block_table *blocks, uint64_t data_bytes);
void cz__block_sums_add(cz__block_sums *sums, const char *bytes, size_t count);
void cz__block_sums_end(cz__block_sums *sums, bool whole);

/* reader.c: cz__reader_checksum(), and of the blocks of what is read; `sums` NULL: not. */
cz_status cz__reader_checksums(cz__reader *reader, uint64_t offset, uint64_t count,
                               cz__checksum *checksum, cz__block_sums *sums);

void cz__block_table_clear(cz__block_table *blocks);

/* Is that block what it was? */
static inline bool cz__block_is(const cz__block_table *blocks, uint64_t number, const void *bytes,
                                size_t count)
{
    return number < (uint64_t)blocks->count &&
           cz__checksum_of(bytes, count).low == blocks->sums[number];
}

#endif
