/* SPDX-License-Identifier: MIT */
/* The model writes: character after character, each drawn from what it expects next. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "trainer.h"

/* A character drawn from the model's distribution at the given temperature. */
static int draw(const float *logits, int vocab, double temperature, float uniform)
{
    double most = -INFINITY, total = 0;
    for (int v = 0; v < vocab; v++)
        most = fmax(most, logits[v]);
    for (int v = 0; v < vocab; v++)
        total += exp((logits[v] - most) / temperature);
    double left = uniform * total;
    for (int v = 0; v < vocab - 1; v++)
        if ((left -= exp((logits[v] - most) / temperature)) < 0)
            return v;
    return vocab - 1;
}

/* Where `length` characters of the held-out text begin that end with a line, if any do. */
static int64_t prompt(const text *corpus, int length)
{
    for (int64_t i = corpus->train_count + length; i < corpus->count; i++)
        if (corpus->characters[corpus->tokens[i - 1]] == '\n')
            return i - length;
    return corpus->train_count;
}

cz_status generate(trainer *t)
{
    const options *o = &t->options;
    const text *corpus = t->text;
    const int length = o->model.block_size;
    char *sample = calloc((size_t)o->sample + 1, 1);
    float logits[256];
    int *tokens = t->tokens;
    if (!sample)
        return cz_fail(CZ_ERR_MEMORY, "no memory for the sample");
    const cz_status taken = trainer_take_values(t);
    if (taken != CZ_OK) {
        free(sample);
        return taken;
    }
    const int64_t begin = prompt(corpus, length);
    for (int i = 0; i < length; i++)
        tokens[i] = corpus->tokens[begin + i];
    for (int i = 0; i < o->sample; i++) {
        gpt_logits(t->gpt, t->params, tokens, length, logits);
        const int next = draw(logits, corpus->vocab, o->temperature,
                              cz_random_uniform(o->seed, UINT64_MAX, (uint64_t)i));
        memmove(tokens, tokens + 1, (size_t)(length - 1) * sizeof *tokens);
        tokens[length - 1] = next;
        sample[i] = corpus->characters[next];
    }
    const cz_status status = report_sample(t->report, sample);
    free(sample);
    return status;
}
