/* SPDX-License-Identifier: MIT */
/* What the files of the model share: where parameters and activations lie, and the parts. */
#ifndef MODEL_H
#define MODEL_H

#include "gpt.h"
#include "threads.h"

/* Offsets of one block's parameters from the block's first one; all blocks are alike. */
typedef struct block_layout {
    int64_t ln_1_weight, ln_1_bias;
    int64_t c_attn_weight, c_attn_bias; /* q, k and v in one: (3 channels, channels) */
    int64_t proj_weight, proj_bias;
    int64_t ln_2_weight, ln_2_bias;
    int64_t fc_weight, fc_bias;
    int64_t mlp_proj_weight, mlp_proj_bias;
    int64_t count;
} block_layout;

/* What backward needs from one block's forward. rows = batch * length, C = channels. */
typedef struct block_activations {
    real *ln_1, *ln_1_mean, *ln_1_rstd; /* (rows, C), (rows), (rows) */
    real *qkv;                          /* (rows, 3 C) */
    real *attention;                    /* (batch, heads, length, length): softmax of the scores */
    real *mixed;                        /* (rows, C): attention times v, before the projection */
    real *middle;                       /* (rows, C): the residual stream after attention */
    real *ln_2, *ln_2_mean, *ln_2_rstd;
    real *fc, *gelu; /* (rows, 4 C) */
    real *out;       /* (rows, C): the residual stream after the block */
} block_activations;

struct gpt {
    gpt_config config;
    threads *threads;          /* owned */
    int row_least;             /* they share the rows in pieces of at least so many */
    int batch;                 /* the most that fits */
    gpt_parameter *parameters; /* owned */
    int parameter_count;
    int64_t element_count;
    int64_t wte, wpe, blocks, ln_f_weight, ln_f_bias; /* offsets in the flat block */
    block_layout block;

    int batch_now, length_now; /* of the last forward; 0: nothing for backward */
    int *tokens, *targets;     /* owned copies, (rows) */

    real *arena;                    /* owned; the pointers from here on lie in it */
    block_activations *activations; /* owned array */
    real *embedded;                 /* (rows, C) */
    real *ln_f, *ln_f_mean, *ln_f_rstd;
    real *logits;                         /* (rows, vocab); probabilities when there are targets */
    real *d_logits, *d_stream, *d_narrow; /* (rows, vocab), (rows, C), (rows, C) */
    real *d_wide, *d_mixed;               /* (rows, 4 C), (rows, C) */
    real *d_scores;                       /* of each thread: (ATTENTION_ROWS, length) */
    real *losses;                         /* (rows) */
};

/* Products are cut among threads so that each element is summed in the same order whatever the
 * number of threads: in multiples of UNIT rows, since a BLAS has kernels for 4, 8, 12 or 24 of them
 * at a time and others for the rest, and only where each piece has PIECE multiplications, since it
 * may take another way for small products. */
enum { UNIT = 24, PIECE = 1 << 20 };
int least_rows(int64_t multiplications_of_row);

/* matmul.c: are products those of a BLAS? */
bool matmul_has_blas(void);

/* C = alpha A B + beta C, row major, with B or A transposed as the name says (n: as it
 * is, t: transposed); m x n is the size of C, k the length of the sums, ld the stride of rows. */
void matmul_nt(int m, int n, int k, real alpha, const real *a, int lda, const real *b, int ldb,
               real beta, real *c, int ldc);
void matmul_nn(int m, int n, int k, real alpha, const real *a, int lda, const real *b, int ldb,
               real beta, real *c, int ldc);
void matmul_tn(int m, int n, int k, real alpha, const real *a, int lda, const real *b, int ldb,
               real beta, real *c, int ldc);

/* attention.c: one head, `size` wide, of one sequence: probabilities (length, length), and its
 * columns of qkv (length, 3 C) and mixed (length, C). Query rows are worked on ATTENTION_ROWS at a
 * time against the keys up to the last of them: what lies further in the future is neither computed
 * nor read. */
enum { ATTENTION_ROWS = 64 };
void attention_forward(real *mixed, real *probabilities, const real *qkv, int length, int channels,
                       int size);
void attention_backward(real *d_qkv, const real *d_mixed, const real *probabilities,
                        const real *qkv, int length, int channels, int size, real *d_scores);

/* kernels.c: the loops over elements, of some rows of (all, n) or some columns of (rows, n). */
void rows_fill(real *out, const real *bias, share rows, int n);
void rows_add(real *out, const real *in, const real *bias, share rows, int n);
void columns_sum(real *d_bias, const real *d, share columns, int rows, int n);
void layer_norm(real *out, real *mean, real *rstd, const real *in, const real *weight,
                const real *bias, share rows, int n);
void layer_norm_backward(real *d_in, const real *d_out, const real *in, const real *mean,
                         const real *rstd, const real *weight, share rows, int n);
void layer_norm_gradients(real *d_weight, real *d_bias, const real *d_out, const real *in,
                          const real *mean, const real *rstd, share columns, int rows, int n);
void gelu(real *out, const real *in, int64_t count);
void gelu_backward(real *d, const real *in, int64_t count);
real softmax(real *x, int n);
void softmax_backward(real *d, const real *probabilities, int n);

#endif
