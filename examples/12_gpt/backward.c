/* SPDX-License-Identifier: MIT */
/* The model's backward pass: the forward pass read from its end, each step adding to gradients.
 * Of what has rows, each thread works on its own; of a parameter's gradient, which is a sum over
 * all rows, on its own part. They meet before one reads what another has written, and before one
 * overwrites what another has read. */
#include "model.h"

#include <string.h>

typedef struct pass {
    gpt *model;
    const real *params;
    real *grads;
    gpt_ready *ready;
    void *arg;
    int known; /* parameters from here on have been announced */
} pass;

static int row_count(const gpt *model)
{
    return model->batch_now * model->length_now;
}

static share own_rows(const gpt *model, part self)
{
    return threads_share(self, row_count(model), UNIT, model->row_least);
}

/* d_weight += d_out' in, which is (out_count, in_count): its rows are shared. */
static void weight_backward(part self, real *d_weight, const real *d_out, const real *in, int rows,
                            int in_count, int out_count)
{
    const share mine = threads_share(self, out_count, UNIT, least_rows((int64_t)in_count * rows));
    matmul_tn(mine.end - mine.begin, in_count, rows, 1, d_out + mine.begin, out_count, in, in_count,
              1, d_weight + (int64_t)mine.begin * in_count, in_count);
}

/* For out = in weight' + bias: the three gradients, that of in overwritten, the others added to. */
static void linear_backward(const gpt *model, part self, real *d_in, real *d_weight, real *d_bias,
                            const real *d_out, const real *in, const real *weight, int in_count,
                            int out_count)
{
    const share rows = own_rows(model, self);
    columns_sum(d_bias, d_out, threads_share(self, out_count, UNIT, UNIT), row_count(model),
                out_count);
    weight_backward(self, d_weight, d_out, in, row_count(model), in_count, out_count);
    matmul_nn(rows.end - rows.begin, in_count, out_count, 1,
              d_out + (int64_t)rows.begin * out_count, out_count, weight, in_count, 0,
              d_in + (int64_t)rows.begin * in_count, in_count);
}

/* d_logits = (p - [target]) / rows, then through the head and the last layer norm to the stream. */
static void head_backward(const gpt *model, part self, const real *params, real *grads)
{
    const int all = row_count(model), c = model->config.channels, vocab = model->config.vocab;
    const share rows = own_rows(model, self);
    const int64_t first = rows.begin, count = rows.end - rows.begin;
    const real *in = model->activations[model->config.layers - 1].out;
    const real part_of_mean = 1 / (real)all;

    for (int64_t row = rows.begin; row < rows.end; row++) {
        const real *p = model->logits + row * vocab;
        real *d = model->d_logits + row * vocab;
        for (int j = 0; j < vocab; j++)
            d[j] = p[j] * part_of_mean;
        d[model->targets[row]] -= part_of_mean;
    }
    matmul_nn((int)count, c, vocab, 1, model->d_logits + first * vocab, vocab, params + model->wte,
              c, 0, model->d_narrow + first * c, c);
    if (count > 0) /* layer_norm_backward adds */
        memset(model->d_stream + first * c, 0, (size_t)(count * c) * sizeof(real));
    layer_norm_backward(model->d_stream, model->d_narrow, in, model->ln_f_mean, model->ln_f_rstd,
                        params + model->ln_f_weight, rows, c);
    threads_meet(self);
    weight_backward(self, grads + model->wte, model->d_logits, model->ln_f, all, c, vocab);
    layer_norm_gradients(grads + model->ln_f_weight, grads + model->ln_f_bias, model->d_narrow, in,
                         model->ln_f_mean, model->ln_f_rstd, threads_share(self, c, UNIT, UNIT),
                         all, c);
    threads_meet(self);
}

/* d_wide becomes the gradient of qkv, (rows, 3 C). */
static void heads_backward(const gpt *model, part self, const block_activations *a)
{
    const int length = model->length_now, c = model->config.channels;
    const int heads = model->config.heads, size = c / heads;
    const share mine = threads_share(self, model->batch_now * heads, 1, 1);
    real *d_scores =
        model->d_scores + (int64_t)self.index * ATTENTION_ROWS * model->config.block_size;
    for (int i = mine.begin; i < mine.end; i++) {
        const int64_t row = (int64_t)(i / heads) * length;
        const int column = i % heads * size;
        attention_backward(model->d_wide + row * 3 * c + column, model->d_mixed + row * c + column,
                           a->attention + (int64_t)i * length * length,
                           a->qkv + row * 3 * c + column, length, c, size, d_scores);
    }
}

/* d is the gradient of the residual stream: of the block's output before, of its input after. */
static void block_backward(const gpt *model, part self, const block_activations *a, const real *in,
                           const real *w, real *g)
{
    const block_layout *at = &model->block;
    const int c = model->config.channels, all = row_count(model);
    const share rows = own_rows(model, self), columns = threads_share(self, c, UNIT, UNIT);
    const int64_t first = (int64_t)rows.begin * 4 * c;
    real *d = model->d_stream, *wide = model->d_wide, *narrow = model->d_narrow;

    linear_backward(model, self, wide, g + at->mlp_proj_weight, g + at->mlp_proj_bias, d, a->gelu,
                    w + at->mlp_proj_weight, 4 * c, c);
    gelu_backward(wide + first, a->fc + first, (int64_t)rows.end * 4 * c - first);
    threads_meet(self);
    linear_backward(model, self, narrow, g + at->fc_weight, g + at->fc_bias, wide, a->ln_2,
                    w + at->fc_weight, c, 4 * c);
    layer_norm_backward(d, narrow, a->middle, a->ln_2_mean, a->ln_2_rstd, w + at->ln_2_weight, rows,
                        c);
    threads_meet(self);
    layer_norm_gradients(g + at->ln_2_weight, g + at->ln_2_bias, narrow, a->middle, a->ln_2_mean,
                         a->ln_2_rstd, columns, all, c);
    linear_backward(model, self, model->d_mixed, g + at->proj_weight, g + at->proj_bias, d,
                    a->mixed, w + at->proj_weight, c, c);
    threads_meet(self);
    heads_backward(model, self, a);
    threads_meet(self);
    linear_backward(model, self, narrow, g + at->c_attn_weight, g + at->c_attn_bias, wide, a->ln_1,
                    w + at->c_attn_weight, c, 3 * c);
    layer_norm_backward(d, narrow, in, a->ln_1_mean, a->ln_1_rstd, w + at->ln_1_weight, rows, c);
    threads_meet(self);
    layer_norm_gradients(g + at->ln_1_weight, g + at->ln_1_bias, narrow, in, a->ln_1_mean,
                         a->ln_1_rstd, columns, all, c);
    threads_meet(self);
}

/* Tokens and positions have rows in any order: here it is the columns that are shared. */
static void embed_backward(const gpt *model, part self, real *d_wte, real *d_wpe)
{
    const int c = model->config.channels, rows = row_count(model);
    const share columns = threads_share(self, c, UNIT, UNIT);
    for (int row = 0; row < rows; row++) {
        const real *d = model->d_stream + (int64_t)row * c;
        columns_sum(d_wte + (int64_t)model->tokens[row] * c, d, columns, 1, c);
        columns_sum(d_wpe + (int64_t)(row % model->length_now) * c, d, columns, 1, c);
    }
    threads_meet(self);
}

/* The caller's thread tells the caller of all parameters from first on that it does not know of;
 * the others go on. */
static void announce(pass *now, part self, int first)
{
    while (self.index == 0 && now->known > first) {
        --now->known;
        if (now->ready)
            now->ready(now->arg, now->known);
    }
}

/* A threads_job */
static void each_thread(part self, void *arg)
{
    pass *now = arg;
    gpt *model = now->model;
    const int layers = model->config.layers;
    const int first_of_blocks = 2, of_block = (model->parameter_count - 4) / layers;

    head_backward(model, self, now->params, now->grads);
    announce(now, self, model->parameter_count - 2);
    for (int l = layers - 1; l >= 0; l--) {
        const int64_t offset = model->blocks + l * model->block.count;
        block_backward(model, self, &model->activations[l],
                       l ? model->activations[l - 1].out : model->embedded, now->params + offset,
                       now->grads + offset);
        announce(now, self, first_of_blocks + l * of_block);
    }
    embed_backward(model, self, now->grads + model->wte, now->grads + model->wpe);
    announce(now, self, 0);
}

bool gpt_backward(gpt *model, const real *params, real *grads, gpt_ready *ready, void *arg)
{
    if (model->batch_now == 0)
        return false;
    pass now = {model, params, grads, ready, arg, model->parameter_count};
    threads_run(model->threads, each_thread, &now);
    return true;
}
