/* SPDX-License-Identifier: MIT */
/* The model's backward pass: the forward pass read from its end, each step adding to gradients. */
#include "model.h"

/* For out = in weight' + bias: the three gradients, that of in overwritten, the others added to. */
static void linear_backward(real *d_in, real *d_weight, real *d_bias, const real *d_out,
                            const real *in, const real *weight, int rows, int in_count,
                            int out_count)
{
    columns_sum(d_bias, d_out, rows, out_count);
    matmul_tn(out_count, in_count, rows, 1, d_out, out_count, in, in_count, 1, d_weight, in_count);
    matmul_nn(rows, in_count, out_count, 1, d_out, out_count, weight, in_count, 0, d_in, in_count);
}

/* d_logits = (p - [target]) / rows, then through the head. */
static void head_backward(gpt *model, real *d_ln_f, const real *params, real *grads)
{
    const int rows = model->batch_now * model->length_now;
    const int c = model->config.channels, vocab = model->config.vocab;
    const real share = 1 / (real)rows;
    for (int row = 0; row < rows; row++) {
        const real *p = model->logits + (int64_t)row * vocab;
        real *d = model->d_logits + (int64_t)row * vocab;
        for (int j = 0; j < vocab; j++)
            d[j] = p[j] * share;
        d[model->targets[row]] -= share;
    }
    matmul_tn(vocab, c, rows, 1, model->d_logits, vocab, model->ln_f, c, 1, grads + model->wte, c);
    matmul_nn(rows, c, vocab, 1, model->d_logits, vocab, params + model->wte, c, 0, d_ln_f, c);
}

/* d is the gradient of the residual stream: of the block's output before, of its input after. */
static void block_backward(const gpt *model, const block_activations *a, const real *in,
                           const real *w, real *g, real *d)
{
    const block_layout *at = &model->block;
    const int length = model->length_now, batch = model->batch_now, rows = batch * length;
    const int c = model->config.channels, heads = model->config.heads;
    real *wide = model->d_wide, *narrow = model->d_narrow;

    linear_backward(wide, g + at->mlp_proj_weight, g + at->mlp_proj_bias, d, a->gelu,
                    w + at->mlp_proj_weight, rows, 4 * c, c);
    gelu_backward(wide, a->fc, (int64_t)rows * 4 * c);
    linear_backward(narrow, g + at->fc_weight, g + at->fc_bias, wide, a->ln_2, w + at->fc_weight,
                    rows, c, 4 * c);
    layer_norm_backward(d, g + at->ln_2_weight, g + at->ln_2_bias, narrow, a->middle, a->ln_2_mean,
                        a->ln_2_rstd, w + at->ln_2_weight, rows, c);

    linear_backward(narrow, g + at->proj_weight, g + at->proj_bias, d, a->mixed,
                    w + at->proj_weight, rows, c, c);
    for (int b = 0; b < batch; b++) { /* wide is now the gradient of qkv, (rows, 3 c) */
        const int64_t row = (int64_t)b * length;
        attention_backward(wide + row * 3 * c, narrow + row * c,
                           a->attention + row * heads * length, a->qkv + row * 3 * c, length, c,
                           heads, model->d_scores);
    }
    linear_backward(narrow, g + at->c_attn_weight, g + at->c_attn_bias, wide, a->ln_1,
                    w + at->c_attn_weight, rows, c, 3 * c);
    layer_norm_backward(d, g + at->ln_1_weight, g + at->ln_1_bias, narrow, in, a->ln_1_mean,
                        a->ln_1_rstd, w + at->ln_1_weight, rows, c);
}

static void embed_backward(const gpt *model, const real *d, real *d_wte, real *d_wpe)
{
    const int c = model->config.channels;
    const int *token = model->tokens;
    for (int b = 0; b < model->batch_now; b++)
        for (int t = 0; t < model->length_now; t++, d += c) {
            columns_sum(d_wte + (int64_t)*token++ * c, d, 1, c);
            columns_sum(d_wpe + (int64_t)t * c, d, 1, c);
        }
}

/* Tells the caller of all parameters from *known down to first. */
static void announce(int *known, int first, gpt_ready *ready, void *arg)
{
    while (*known > first) {
        --*known;
        if (ready)
            ready(arg, *known);
    }
}

bool gpt_backward(gpt *model, const real *params, real *grads, gpt_ready *ready, void *arg)
{
    if (model->batch_now == 0)
        return false;
    const int rows = model->batch_now * model->length_now, c = model->config.channels;
    const int layers = model->config.layers;
    const int first_of_blocks = 2, of_block = (model->parameter_count - 4) / layers;
    int known = model->parameter_count;
    real *d = model->d_stream;

    head_backward(model, model->d_narrow, params, grads);
    for (int64_t i = 0; i < (int64_t)rows * c; i++) /* layer_norm_backward adds */
        d[i] = 0;
    layer_norm_backward(d, grads + model->ln_f_weight, grads + model->ln_f_bias, model->d_narrow,
                        model->activations[layers - 1].out, model->ln_f_mean, model->ln_f_rstd,
                        params + model->ln_f_weight, rows, c);
    announce(&known, known - 2, ready, arg);
    for (int l = layers - 1; l >= 0; l--) {
        const int64_t offset = model->blocks + l * model->block.count;
        block_backward(model, &model->activations[l],
                       l ? model->activations[l - 1].out : model->embedded, params + offset,
                       grads + offset, d);
        announce(&known, first_of_blocks + l * of_block, ready, arg);
    }
    embed_backward(model, d, grads + model->wte, grads + model->wpe);
    announce(&known, 0, ready, arg);
    return true;
}
