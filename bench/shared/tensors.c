/* SPDX-License-Identifier: MIT */
#include "tensors.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "ranks.h"

enum { LAYERS = 12, CHANNELS = 768, VOCABULARY = 50257, CONTEXT = 1024, HUGE = 2 << 20 };

static void add(bench_tensors *t, const char *name, int layer, int64_t size)
{
    if (layer < 0)
        snprintf(t->names[t->count], sizeof t->names[0], "%s", name);
    else
        snprintf(t->names[t->count], sizeof t->names[0], "h.%d.%s", layer, name);
    t->sizes[t->count++] = size;
    t->total += size;
}

static void list_gpt2(bench_tensors *t)
{
    static const struct {
        const char *name;
        int64_t size;
    } in_layer[] = {{"ln_1.w", CHANNELS},
                    {"ln_1.b", CHANNELS},
                    {"c_attn.w", CHANNELS * 3 * CHANNELS},
                    {"c_attn.b", 3 * CHANNELS},
                    {"c_proj.w", CHANNELS * CHANNELS},
                    {"c_proj.b", CHANNELS},
                    {"ln_2.w", CHANNELS},
                    {"ln_2.b", CHANNELS},
                    {"c_fc.w", CHANNELS * 4 * CHANNELS},
                    {"c_fc.b", 4 * CHANNELS},
                    {"m_proj.w", CHANNELS * 4 * CHANNELS},
                    {"m_proj.b", CHANNELS}};
    add(t, "wte", -1, (int64_t)VOCABULARY * CHANNELS);
    add(t, "wpe", -1, CONTEXT * CHANNELS);
    for (int layer = 0; layer < LAYERS; layer++)
        for (size_t i = 0; i < sizeof in_layer / sizeof *in_layer; i++)
            add(t, in_layer[i].name, layer, in_layer[i].size);
    add(t, "ln_f.w", -1, CHANNELS);
    add(t, "ln_f.b", -1, CHANNELS);
}

bool bench_tensors_list(bench_tensors *out, const char *name)
{
    memset(out, 0, sizeof *out);
    if (strcmp(name, "gpt2") == 0)
        list_gpt2(out);
    else if (strcmp(name, "one") == 0)
        add(out, "all", -1, 124439808);
    else if (strcmp(name, "tiny") == 0)
        for (int i = 0; i < BENCH_TENSORS; i++)
            add(out, "tiny", i, 16);
    else if (strcmp(name, "odd") == 0)
        for (int i = 0; i < 60; i++)
            add(out, "odd", i, i % 3 == 0 ? 1 + i : i % 3 == 1 ? 1003 + 7 * i : 100003 + 1000 * i);
    return out->count > 0;
}

static size_t padded(int64_t size)
{
    return ((size_t)size + BENCH_LINE - 1) / BENCH_LINE * BENCH_LINE;
}

static float *allocate(size_t count, bool huge)
{
    const size_t bytes = count * sizeof(float);
    float *memory = aligned_alloc(64, bytes);
    if (!memory) {
        fprintf(stderr, "no memory for %zu bytes\n", bytes);
        exit(1);
    }
    const uintptr_t begin = ((uintptr_t)memory + HUGE - 1) / HUGE * HUGE,
                    end = ((uintptr_t)memory + bytes) / HUGE * HUGE;
    if (end > begin)
        (void)madvise((char *)memory + (begin - (uintptr_t)memory), end - begin,
                      huge ? MADV_HUGEPAGE : MADV_NOHUGEPAGE);
    return memory;
}

void bench_block_make(bench_block *out, const bench_tensors *tensors, bool separate, bool huge,
                      float scale)
{
    *out = (bench_block){.separate = separate, .bytes = (size_t)tensors->total * sizeof(float)};
    float *next = separate ? NULL : bench_pages(out->bytes, huge);
    for (int t = 0; t < tensors->count; t++) {
        const size_t count = (size_t)tensors->sizes[t];
        out->at[t] = separate ? allocate(padded(tensors->sizes[t]), huge) : next;
        for (size_t i = 0; i < (separate ? padded(tensors->sizes[t]) : count); i++)
            out->at[t][i] = scale * (float)(i % 61 + 1);
        next = separate ? NULL : next + count;
    }
}

void bench_block_free(bench_block *block, const bench_tensors *tensors)
{
    if (!block->separate)
        bench_pages_free(block->at[0], block->bytes);
    for (int t = 0; block->separate && t < tensors->count; t++)
        free(block->at[t]);
}

int bench_block_pieces(const bench_block *block, const bench_tensors *tensors)
{
    return block->separate ? tensors->count : 1;
}

void bench_block_piece(const bench_block *block, const bench_tensors *tensors, int piece,
                       float **begin, size_t *count)
{
    *begin = block->at[piece];
    *count = padded(block->separate ? tensors->sizes[piece] : tensors->total);
}
