/* SPDX-License-Identifier: MIT */
/* Lists of parameters to measure with, and memory for them. */
#ifndef CZ_BENCH_TENSORS_H
#define CZ_BENCH_TENSORS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { BENCH_TENSORS = 10000 };

typedef struct bench_tensors {
    int count;
    int64_t sizes[BENCH_TENSORS], total;
    char names[BENCH_TENSORS][24];
} bench_tensors;

/* "gpt2": the 148 of GPT-2 124M; "one": as many elements in one; "tiny": 10,000 of 16; "odd": sizes
 * that no cache line divides. False: no such list. */
bool bench_tensors_list(bench_tensors *out, const char *name);

/* One value for each element of each tensor: in one block, or every tensor in an allocation of its
 * own that begins and ends with a cache line, without or with pages of 2 MiB. */
typedef struct bench_block {
    bool separate;
    size_t bytes; /* of the one block */
    float *at[BENCH_TENSORS];
} bench_block;
void bench_block_make(bench_block *out, const bench_tensors *tensors, bool separate, bool huge,
                      float scale);
void bench_block_free(bench_block *block, const bench_tensors *tensors);

/* Where a loop that knows nothing of tensors goes: `pieces` pieces of whole cache lines. */
int bench_block_pieces(const bench_block *block, const bench_tensors *tensors);
void bench_block_piece(const bench_block *block, const bench_tensors *tensors, int piece,
                       float **begin, size_t *count);

#endif
