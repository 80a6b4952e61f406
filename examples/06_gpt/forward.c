/* SPDX-License-Identifier: MIT */
/* The model's forward pass: from tokens to scores, and their mean loss.
 * Biases cost no pass of their own: a product's output starts as the bias, or as the residual
 * stream plus the bias, and the product is added to it. */
#include "model.h"

#include <string.h>

static void embed(real *out, const real *wte, const real *wpe, const int *tokens, int batch,
                  int length, int c)
{
    for (int b = 0; b < batch; b++)
        for (int t = 0; t < length; t++, out += c)
            rows_add(out, wte + (int64_t)*tokens++ * c, wpe + (int64_t)t * c, 1, c);
}

static void block_forward(const gpt *model, block_activations *a, const real *in, const real *w)
{
    const block_layout *at = &model->block;
    const int length = model->length_now, batch = model->batch_now, rows = batch * length;
    const int c = model->config.channels, heads = model->config.heads;

    layer_norm(a->ln_1, a->ln_1_mean, a->ln_1_rstd, in, w + at->ln_1_weight, w + at->ln_1_bias,
               rows, c);
    rows_fill(a->qkv, w + at->c_attn_bias, rows, 3 * c);
    matmul_nt(rows, 3 * c, c, 1, a->ln_1, c, w + at->c_attn_weight, c, 1, a->qkv, 3 * c);
    for (int b = 0; b < batch; b++) {
        const int64_t row = (int64_t)b * length;
        attention_forward(a->mixed + row * c, a->attention + row * heads * length,
                          a->qkv + row * 3 * c, length, c, heads);
    }
    rows_add(a->middle, in, w + at->proj_bias, rows, c);
    matmul_nt(rows, c, c, 1, a->mixed, c, w + at->proj_weight, c, 1, a->middle, c);

    layer_norm(a->ln_2, a->ln_2_mean, a->ln_2_rstd, a->middle, w + at->ln_2_weight,
               w + at->ln_2_bias, rows, c);
    rows_fill(a->fc, w + at->fc_bias, rows, 4 * c);
    matmul_nt(rows, 4 * c, c, 1, a->ln_2, c, w + at->fc_weight, c, 1, a->fc, 4 * c);
    gelu(a->gelu, a->fc, (int64_t)rows * 4 * c);
    rows_add(a->out, a->middle, w + at->mlp_proj_bias, rows, c);
    matmul_nt(rows, c, 4 * c, 1, a->gelu, 4 * c, w + at->mlp_proj_weight, 4 * c, 1, a->out, c);
}

/* From tokens to the last layer norm's output, for the model's batch_now and length_now. */
static void blocks_forward(gpt *model, const real *params)
{
    const int rows = model->batch_now * model->length_now, c = model->config.channels;
    const real *stream = model->embedded;

    embed(model->embedded, params + model->wte, params + model->wpe, model->tokens,
          model->batch_now, model->length_now, c);
    for (int l = 0; l < model->config.layers; l++) {
        block_activations *a = &model->activations[l];
        block_forward(model, a, stream, params + model->blocks + l * model->block.count);
        stream = a->out;
    }
    layer_norm(model->ln_f, model->ln_f_mean, model->ln_f_rstd, stream, params + model->ln_f_weight,
               params + model->ln_f_bias, rows, c);
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
    const int rows = batch * length, c = model->config.channels, vocab = model->config.vocab;

    blocks_forward(model, params);
    matmul_nt(rows, vocab, c, 1, model->ln_f, c, params + model->wte, c, 0, model->logits, vocab);
    double sum = 0;
    for (int row = 0; row < rows; row++) { /* loss = -log p(target) = log sum e^x - x(target) */
        real *x = model->logits + (int64_t)row * vocab;
        const real score = x[targets[row]];
        sum += (double)(softmax(x, vocab) - score);
    }
    *mean_loss = (real)(sum / rows);
    return true;
}

bool gpt_logits(gpt *model, const real *params, const int *tokens, int length, real *logits)
{
    const int c = model->config.channels, vocab = model->config.vocab;
    if (!begin(model, tokens, NULL, 1, length))
        return false;
    blocks_forward(model, params);
    model->batch_now = 0; /* there is no loss to go backward from */
    matmul_nt(1, vocab, c, 1, model->ln_f + (int64_t)(length - 1) * c, c, params + model->wte, c, 0,
              logits, vocab);
    return true;
}
