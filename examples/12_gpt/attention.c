/* SPDX-License-Identifier: MIT */
/* Causal attention: softmax(q k' / sqrt(size)) v for one head, and its gradient.
 * Vaswani et al., "Attention Is All You Need", arXiv:1706.03762. */
#include "model.h"

#include <math.h>
#include <string.h>

void attention_forward(real *mixed, real *probabilities, const real *qkv, int length, int channels,
                       int size)
{
    const int stride = 3 * channels;
    const real scale = 1 / (real)sqrt((double)size);
    const real *q = qkv, *k = q + channels, *v = k + channels;

    for (int first = 0; first < length; first += ATTENTION_ROWS) {
        const int end = first + ATTENTION_ROWS < length ? first + ATTENTION_ROWS : length;
        real *p = probabilities + (int64_t)first * length;
        matmul_nt(end - first, end, size, scale, q + (int64_t)first * stride, stride, k, stride, 0,
                  p, length);
        for (int row = first; row < end; row++) { /* the past is row + 1 keys, itself included */
            real *scores = p + (int64_t)(row - first) * length;
            softmax(scores, row + 1);
            memset(scores + row + 1, 0, (size_t)(end - row - 1) * sizeof *scores);
        }
        matmul_nn(end - first, size, end, 1, p, length, v, stride, 0,
                  mixed + (int64_t)first * channels, channels);
    }
}

void attention_backward(real *d_qkv, const real *d_mixed, const real *probabilities,
                        const real *qkv, int length, int channels, int size, real *d_scores)
{
    const int stride = 3 * channels;
    const real scale = 1 / (real)sqrt((double)size);
    const int last = (length - 1) / ATTENTION_ROWS * ATTENTION_ROWS;
    const real *q = qkv, *k = q + channels, *v = k + channels;
    real *d_q = d_qkv, *d_k = d_q + channels, *d_v = d_k + channels;

    for (int first = last; first >= 0; first -= ATTENTION_ROWS) {
        const int end = first + ATTENTION_ROWS < length ? first + ATTENTION_ROWS : length;
        const int rows = end - first;
        const real sum = first < last; /* the last rows see every key: they start d_k and d_v */
        const real *p = probabilities + (int64_t)first * length;
        const real *d_out = d_mixed + (int64_t)first * channels;

        matmul_tn(end, size, rows, 1, p, length, d_out, channels, sum, d_v, stride);
        matmul_nt(rows, end, size, 1, d_out, channels, v, stride, 0, d_scores, end);
        for (int row = 0; row < rows; row++) /* later keys have p = 0 and so d_scores = 0 */
            softmax_backward(d_scores + (int64_t)row * end, p + (int64_t)row * length, end);
        matmul_nn(rows, size, end, scale, d_scores, end, k, stride, 0,
                  d_q + (int64_t)first * stride, stride);
        matmul_tn(end, size, rows, scale, d_scores, end, q + (int64_t)first * stride, stride, sum,
                  d_k, stride);
    }
}
