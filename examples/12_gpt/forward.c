/* SPDX-License-Identifier: MIT */
/* The model's forward pass: from tokens to scores, and their mean loss.
 * Biases cost no pass of their own: a product's output starts as the bias, or as the residual
 * stream plus the bias, and the product is added to it.
 * Each thread works on its own rows; only attention needs those of others. */
#include "model.h"

#include <string.h>

typedef struct pass {
    gpt *model;
    const real *params;
    bool scored; /* there are targets */
} pass;

/* out += in weight', for some rows. */
static void linear_add(real *out, const real *in, const real *weight, share rows, int in_count,
                       int out_count)
{
    matmul_nt(rows.end - rows.begin, out_count, in_count, 1, in + (int64_t)rows.begin * in_count,
              in_count, weight, in_count, 1, out + (int64_t)rows.begin * out_count, out_count);
}

static void embed(const gpt *model, share rows, const real *wte, const real *wpe)
{
    const int c = model->config.channels;
    for (int row = rows.begin; row < rows.end; row++)
        rows_add(model->embedded + (int64_t)row * c, wte + (int64_t)model->tokens[row] * c,
                 wpe + (int64_t)(row % model->length_now) * c, (share){0, 1}, c);
}

/* Heads of sequences are independent of each other: they are shared among the threads. */
static void heads_forward(const gpt *model, part self, const block_activations *a)
{
    const int length = model->length_now, c = model->config.channels;
    const int heads = model->config.heads, size = c / heads;
    const share mine = threads_share(self, model->batch_now * heads, 1, 1);
    for (int i = mine.begin; i < mine.end; i++) {
        const int64_t row = (int64_t)(i / heads) * length;
        const int column = i % heads * size;
        attention_forward(a->mixed + row * c + column, a->attention + (int64_t)i * length * length,
                          a->qkv + row * 3 * c + column, length, c, size);
    }
}

static void block_forward(const gpt *model, part self, share rows, block_activations *a,
                          const real *in, const real *w)
{
    const block_layout *at = &model->block;
    const int c = model->config.channels;

    layer_norm(a->ln_1, a->ln_1_mean, a->ln_1_rstd, in, w + at->ln_1_weight, w + at->ln_1_bias,
               rows, c);
    rows_fill(a->qkv, w + at->c_attn_bias, rows, 3 * c);
    linear_add(a->qkv, a->ln_1, w + at->c_attn_weight, rows, c, 3 * c);
    threads_meet(self);
    heads_forward(model, self, a);
    threads_meet(self);
    rows_add(a->middle, in, w + at->proj_bias, rows, c);
    linear_add(a->middle, a->mixed, w + at->proj_weight, rows, c, c);

    layer_norm(a->ln_2, a->ln_2_mean, a->ln_2_rstd, a->middle, w + at->ln_2_weight,
               w + at->ln_2_bias, rows, c);
    rows_fill(a->fc, w + at->fc_bias, rows, 4 * c);
    linear_add(a->fc, a->ln_2, w + at->fc_weight, rows, c, 4 * c);
    const int64_t first = (int64_t)rows.begin * 4 * c;
    gelu(a->gelu + first, a->fc + first, (int64_t)rows.end * 4 * c - first);
    rows_add(a->out, a->middle, w + at->mlp_proj_bias, rows, c);
    linear_add(a->out, a->gelu, w + at->mlp_proj_weight, rows, 4 * c, c);
}

/* Scores become probabilities; loss = -log p(target) = log sum e^x - x(target). */
static void score(gpt *model, share rows, const real *wte)
{
    const int c = model->config.channels, vocab = model->config.vocab;
    const int64_t first = rows.begin;
    matmul_nt(rows.end - rows.begin, vocab, c, 1, model->ln_f + first * c, c, wte, c, 0,
              model->logits + first * vocab, vocab);
    for (int64_t row = rows.begin; row < rows.end; row++) {
        real *x = model->logits + row * vocab;
        const real of_target = x[model->targets[row]];
        model->losses[row] = softmax(x, vocab) - of_target;
    }
}

/* A threads_job: from tokens to the last layer norm's output, for the model's batch_now and
 * length_now, and to the losses. */
static void each_thread(part self, void *arg)
{
    const pass *now = arg;
    gpt *model = now->model;
    const real *params = now->params, *stream = model->embedded;
    const share rows =
        threads_share(self, model->batch_now * model->length_now, UNIT, model->row_least);

    embed(model, rows, params + model->wte, params + model->wpe);
    for (int l = 0; l < model->config.layers; l++) {
        block_activations *a = &model->activations[l];
        block_forward(model, self, rows, a, stream,
                      params + model->blocks + l * model->block.count);
        stream = a->out;
    }
    layer_norm(model->ln_f, model->ln_f_mean, model->ln_f_rstd, stream, params + model->ln_f_weight,
               params + model->ln_f_bias, rows, model->config.channels);
    if (now->scored)
        score(model, rows, params + model->wte);
}

static bool all_in_vocab(const int *tokens, size_t count, int vocab)
{
    for (size_t i = 0; i < count; i++)
        if (tokens[i] < 0 || tokens[i] >= vocab)
            return false;
    return true;
}

/* Takes over sizes and tokens if they fit, and otherwise changes nothing. targets may be NULL. */
static bool begin(gpt *model, const int *tokens, const int *targets, int batch, int length)
{
    if (batch < 1 || batch > model->batch || length < 1 || length > model->config.block_size)
        return false;
    const size_t rows = (size_t)batch * (size_t)length;
    if (!all_in_vocab(tokens, rows, model->config.vocab) ||
        (targets && !all_in_vocab(targets, rows, model->config.vocab)))
        return false;
    model->batch_now = batch;
    model->length_now = length;
    memcpy(model->tokens, tokens, rows * sizeof *tokens);
    if (targets)
        memcpy(model->targets, targets, rows * sizeof *targets);
    return true;
}

bool gpt_forward(gpt *model, const real *params, const int *tokens, const int *targets, int batch,
                 int length, real *mean_loss)
{
    if (!begin(model, tokens, targets, batch, length))
        return false;
    const int rows = batch * length;
    double sum = 0;
    threads_run(model->threads, each_thread, &(pass){model, params, true});
    for (int row = 0; row < rows; row++)
        sum += (double)model->losses[row];
    *mean_loss = (real)(sum / rows);
    return true;
}

bool gpt_logits(gpt *model, const real *params, const int *tokens, int length, real *logits)
{
    const int c = model->config.channels, vocab = model->config.vocab;
    if (!begin(model, tokens, NULL, 1, length))
        return false;
    threads_run(model->threads, each_thread, &(pass){model, params, false});
    model->batch_now = 0; /* there is no loss to go backward from */
    matmul_nt(1, vocab, c, 1, model->ln_f + (int64_t)(length - 1) * c, c, params + model->wte, c, 0,
              logits, vocab);
    return true;
}
