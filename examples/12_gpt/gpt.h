/* SPDX-License-Identifier: MIT */
/* A character-level GPT, forward and backward by hand: the model that the example trains.
 *
 * Token and position embeddings, then pre-norm blocks (layer norm, causal attention, layer norm,
 * a four times wider GELU layer), a last layer norm, and a head that shares the token embedding.
 * All parameters lie in one flat block of the caller's, all gradients in another of the same
 * layout. Names and layouts are those of nanoGPT: a linear layer's weight is (out, in).
 * Radford et al., "Language Models are Unsupervised Multitask Learners", 2019.
 */
#ifndef GPT_H
#define GPT_H

#include <stdbool.h>
#include <stdint.h>

#ifdef GPT_DOUBLE /* only for tests: finite differences need more digits than float has */
typedef double real;
#else
typedef float real;
#endif

typedef struct gpt_config {
    int layers;
    int heads; /* divides channels */
    int channels;
    int block_size; /* T: the longest sequence */
    int vocab;      /* tokens are 0 .. vocab - 1 */
} gpt_config;

typedef struct gpt_parameter {
    char name[40];    /* "h.0.attn.c_attn.weight" */
    int dims;         /* 2: a weight or an embedding; 1: a bias or a layer norm's weight */
    int64_t shape[2]; /* {rows, columns}, or {count, 1} */
    int64_t offset;   /* first element in the flat block; parameters follow each other, no gaps */
    int64_t count;
} gpt_parameter;

/* One per rank (it holds the activations); it has no state in common with others. */
typedef struct gpt gpt;

/* Called by gpt_backward() when this pass adds no more to a parameter's gradient. The parameters
 * come in falling order of their index, each once, on the thread that called gpt_backward(). */
typedef void gpt_ready(void *arg, int parameter);

/* Once per process, before rank threads start: has the BLAS use the calling thread alone, since the
 * model cuts its products for threads itself. */
void gpt_setup(void);

/* Allocates everything, for up to batch sequences of up to block_size tokens; later calls
 * allocate nothing. They compute on the calling thread and thread_count - 1 others, which are the
 * model's; their number changes no bit of any result. False: a bad configuration, or no memory or
 * no threads to be had, and *out is NULL. */
bool gpt_create(gpt **out, const gpt_config *config, int batch, int thread_count);
void gpt_destroy(gpt **model); /* accepts NULL and *NULL, leaves *NULL */

/* The list of parameters, owned by the model, and the elements in all of them. */
const gpt_parameter *gpt_parameters(const gpt *model, int *parameter_count);
int64_t gpt_element_count(const gpt *model);

/* Initial values: weights and embeddings normal(0, 0.02), projections into the residual stream
 * normal(0, 0.02 / sqrt(2 layers)), biases 0, layer-norm weights 1. A function of the
 * configuration and the seed alone. */
void gpt_init(const gpt *model, real *params, uint64_t seed);

/* Mean cross entropy, in nats, over batch sequences of length tokens each. tokens and targets are
 * (batch, length); the model keeps copies for gpt_backward(). False: a size beyond those of
 * gpt_create() or a token outside the vocabulary, and nothing was changed. */
bool gpt_forward(gpt *model, const real *params, const int *tokens, const int *targets, int batch,
                 int length, real *mean_loss);

/* ADDS the gradient of the last gpt_forward()'s mean loss to grads, which the caller has zeroed
 * (or not, to sum over several passes). params are those of that call. ready may be NULL.
 * False: there was no gpt_forward() before, or gpt_logits() has since used its activations. */
bool gpt_backward(gpt *model, const real *params, real *grads, gpt_ready *ready, void *arg);

/* The scores (vocab of them) of the token that follows these length tokens, for sampling. */
bool gpt_logits(gpt *model, const real *params, const int *tokens, int length, real *logits);

#endif
