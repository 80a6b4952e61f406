/* SPDX-License-Identifier: MIT */
/* The model's memory: the list of parameters, their first values, and one arena of activations. */
#define _DEFAULT_SOURCE /* madvise */
#include "czero/random.h"
#include "model.h"

#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#if defined(__linux__)
#include <sys/mman.h>
#endif

enum { PARAMETERS_OF_BLOCK = 12, PARAMETERS_OUTSIDE = 4 };

static int64_t add_parameter(gpt *model, const char *name, int dims, int64_t rows, int64_t columns)
{
    gpt_parameter *parameter = &model->parameters[model->parameter_count++];
    snprintf(parameter->name, sizeof parameter->name, "%s", name);
    parameter->dims = dims;
    parameter->shape[0] = rows;
    parameter->shape[1] = columns;
    parameter->offset = model->element_count;
    parameter->count = rows * columns;
    model->element_count += parameter->count;
    return parameter->offset;
}

static int64_t add_to_block(gpt *model, int layer, const char *name, int dims, int64_t rows,
                            int64_t columns)
{
    char full[sizeof model->parameters->name];
    snprintf(full, sizeof full, "h.%d.%s", layer, name);
    return add_parameter(model, full, dims, rows, columns) - model->blocks -
           layer * model->block.count;
}

static void list_parameters(gpt *model)
{
    const int64_t c = model->config.channels;
    block_layout *block = &model->block;

    model->wte = add_parameter(model, "wte.weight", 2, model->config.vocab, c);
    model->wpe = add_parameter(model, "wpe.weight", 2, model->config.block_size, c);
    model->blocks = model->element_count;
    for (int l = 0; l < model->config.layers; l++) { /* the same offsets each time */
        block->ln_1_weight = add_to_block(model, l, "ln_1.weight", 1, c, 1);
        block->ln_1_bias = add_to_block(model, l, "ln_1.bias", 1, c, 1);
        block->c_attn_weight = add_to_block(model, l, "attn.c_attn.weight", 2, 3 * c, c);
        block->c_attn_bias = add_to_block(model, l, "attn.c_attn.bias", 1, 3 * c, 1);
        block->proj_weight = add_to_block(model, l, "attn.c_proj.weight", 2, c, c);
        block->proj_bias = add_to_block(model, l, "attn.c_proj.bias", 1, c, 1);
        block->ln_2_weight = add_to_block(model, l, "ln_2.weight", 1, c, 1);
        block->ln_2_bias = add_to_block(model, l, "ln_2.bias", 1, c, 1);
        block->fc_weight = add_to_block(model, l, "mlp.c_fc.weight", 2, 4 * c, c);
        block->fc_bias = add_to_block(model, l, "mlp.c_fc.bias", 1, 4 * c, 1);
        block->mlp_proj_weight = add_to_block(model, l, "mlp.c_proj.weight", 2, c, 4 * c);
        block->mlp_proj_bias = add_to_block(model, l, "mlp.c_proj.bias", 1, c, 1);
        block->count = block->mlp_proj_bias + c;
    }
    model->ln_f_weight = add_parameter(model, "ln_f.weight", 1, c, 1);
    model->ln_f_bias = add_parameter(model, "ln_f.bias", 1, c, 1);
}

/* The next count elements of the arena, or only their room while there is no arena yet. */
static real *take(const gpt *model, int64_t *used, int64_t count)
{
    real *at = model->arena ? model->arena + *used : NULL;
    *used += (count + 15) / 16 * 16; /* each array starts on a cache line */
    return at;
}

static int64_t lay_out(gpt *model, int64_t thread_count)
{
    const gpt_config *config = &model->config;
    const int64_t rows = (int64_t)model->batch * config->block_size, c = config->channels;
    int64_t used = 0;

    model->embedded = take(model, &used, rows * c);
    for (int l = 0; l < config->layers; l++) {
        block_activations *a = &model->activations[l];
        a->ln_1 = take(model, &used, rows * c);
        a->ln_1_mean = take(model, &used, rows);
        a->ln_1_rstd = take(model, &used, rows);
        a->qkv = take(model, &used, rows * 3 * c);
        a->attention = take(model, &used, rows * config->heads * config->block_size);
        a->mixed = take(model, &used, rows * c);
        a->middle = take(model, &used, rows * c);
        a->ln_2 = take(model, &used, rows * c);
        a->ln_2_mean = take(model, &used, rows);
        a->ln_2_rstd = take(model, &used, rows);
        a->fc = take(model, &used, rows * 4 * c);
        a->gelu = take(model, &used, rows * 4 * c);
        a->out = take(model, &used, rows * c);
    }
    model->ln_f = take(model, &used, rows * c);
    model->ln_f_mean = take(model, &used, rows);
    model->ln_f_rstd = take(model, &used, rows);
    model->logits = take(model, &used, rows * config->vocab);
    model->d_logits = take(model, &used, rows * config->vocab);
    model->d_stream = take(model, &used, rows * c);
    model->d_narrow = take(model, &used, rows * c);
    model->d_wide = take(model, &used, rows * 4 * c);
    model->d_mixed = take(model, &used, rows * c);
    model->d_scores = take(model, &used, thread_count * ATTENTION_ROWS * config->block_size);
    model->losses = take(model, &used, rows);
    return used;
}

/* On huge pages where the system has them, and touched here rather than in the first step. */
static real *arena_create(int64_t count)
{
    const size_t huge_page = (size_t)2 << 20;
    const size_t bytes = ((size_t)count * sizeof(real) + huge_page - 1) / huge_page * huge_page;
    real *arena = aligned_alloc(huge_page, bytes);
    if (!arena)
        return NULL;
#if defined(__linux__)
    madvise(arena, bytes, MADV_HUGEPAGE); /* advice: without it the same results, more slowly */
#endif
    memset(arena, 0, bytes);
    return arena;
}

int least_rows(int64_t multiplications_of_row)
{
    const int64_t of_unit = UNIT * multiplications_of_row;
    return UNIT * (int)((PIECE + of_unit - 1) / of_unit);
}

bool gpt_create(gpt **out, const gpt_config *config, int batch, int thread_count)
{
    *out = NULL;
    if (config->layers < 1 || config->heads < 1 || config->channels < 1 || config->block_size < 1 ||
        config->vocab < 1 || batch < 1 || thread_count < 1 || config->channels % config->heads != 0)
        return false;
    if (config->channels > INT_MAX / 4 || batch > INT_MAX / config->block_size)
        return false; /* the BLAS counts in int */
    gpt *model = calloc(1, sizeof *model);
    if (!model)
        return false;
    model->config = *config;
    model->batch = batch;
    model->row_least =
        least_rows(/* for the smallest of a row's products */
                   (int64_t)config->channels *
                   (config->vocab < config->channels ? config->vocab : config->channels));
    const size_t rows = (size_t)batch * (size_t)config->block_size;
    const size_t layers = (size_t)config->layers;
    model->parameters =
        calloc(PARAMETERS_OUTSIDE + layers * PARAMETERS_OF_BLOCK, sizeof *model->parameters);
    model->activations = calloc(layers, sizeof *model->activations);
    model->tokens = calloc(rows, sizeof *model->tokens);
    model->targets = calloc(rows, sizeof *model->targets);
    if (model->parameters && model->activations && model->tokens && model->targets &&
        threads_create(&model->threads, thread_count))
        model->arena = arena_create(lay_out(model, thread_count));
    if (!model->arena) {
        gpt_destroy(&model);
        return false;
    }
    lay_out(model, thread_count);
    list_parameters(model);
    *out = model;
    return true;
}

void gpt_destroy(gpt **model)
{
    if (!model || !*model)
        return;
    threads_destroy(&(*model)->threads);
    free((*model)->arena);
    free((*model)->targets);
    free((*model)->tokens);
    free((*model)->activations);
    free((*model)->parameters);
    free(*model);
    *model = NULL;
}

const gpt_parameter *gpt_parameters(const gpt *model, int *parameter_count)
{
    *parameter_count = model->parameter_count;
    return model->parameters;
}

int64_t gpt_element_count(const gpt *model)
{
    return model->element_count;
}

void gpt_init(const gpt *model, real *params, uint64_t seed)
{
    for (int i = 0; i < model->parameter_count; i++) {
        const gpt_parameter *parameter = &model->parameters[i];
        real *values = params + parameter->offset;
        if (parameter->dims == 2) {
            const bool into_stream = strstr(parameter->name, "c_proj") != NULL;
            const double deviation = into_stream ? 0.02 / sqrt(2.0 * model->config.layers) : 0.02;
            for (int64_t j = 0; j < parameter->count; j++)
                values[j] = (real)(deviation * cz_random_normal(seed, (uint64_t)i, (uint64_t)j));
        } else {
            const real value = strstr(parameter->name, ".weight") ? 1 : 0;
            for (int64_t j = 0; j < parameter->count; j++)
                values[j] = value;
        }
    }
}
