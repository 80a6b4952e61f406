/* SPDX-License-Identifier: MIT */
/* A trainer in the manner of llm.c: all parameters in one block, all gradients in another, pointers
 * into both, forward and backward by hand. The model is the neural language model of Bengio et al.
 * (JMLR 3, 2003): the embeddings of the last characters, one tanh layer, scores for the next
 * character. What czero adds are the lines marked [czero]: create, step, destroy.
 *
 *     04_flat [FILE]          CZERO_RANKS=3 04_flat FILE
 */
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "czero/czero.h"

enum { CONTEXT = 6, EMBEDDING = 12, HIDDEN = 96, VOCAB = 128, BATCH = 48, STEPS = 600, SEED = 5 };
enum { INPUT = CONTEXT * EMBEDDING };

/* ---- parameters: one block, and where in it the tensors are ---- */

enum { TENSORS = 5 };

typedef struct tensors {
    float *embedding; /* (VOCAB, EMBEDDING) */
    float *w1, *b1;   /* (HIDDEN, INPUT), (HIDDEN) */
    float *w2, *b2;   /* (VOCAB, HIDDEN), (VOCAB) */
} tensors;

static const cz_view views[TENSORS] = {{"embedding", 0, 2, {VOCAB, EMBEDDING}},
                                       {"w1", 0, 2, {HIDDEN, INPUT}},
                                       {"b1", 0, 1, {HIDDEN}},
                                       {"w2", 0, 2, {VOCAB, HIDDEN}},
                                       {"b2", 0, 1, {VOCAB}}};
static const int64_t sizes[TENSORS] = {VOCAB * EMBEDDING, HIDDEN *INPUT, HIDDEN, VOCAB *HIDDEN,
                                       VOCAB};

static int64_t element_count(void)
{
    int64_t count = 0;
    for (int t = 0; t < TENSORS; t++)
        count += sizes[t];
    return count;
}

static tensors point_into(float *block)
{
    tensors t;
    float **const fields[TENSORS] = {&t.embedding, &t.w1, &t.b1, &t.w2, &t.b2};
    for (int i = 0; i < TENSORS; block += sizes[i++])
        *fields[i] = block;
    return t;
}

static void initialise(float *block)
{
    static const float deviations[TENSORS] = {0.5f, 0.12f, 0, 0.1f, 0};
    for (int t = 0; t < TENSORS; block += sizes[t++])
        for (int64_t i = 0; i < sizes[t]; i++)
            block[i] = deviations[t] * cz_random_normal(SEED, (uint64_t)t, (uint64_t)i);
}

/* ---- forward and backward ---- */

typedef struct activations {
    float x[INPUT], hidden[HIDDEN], p[VOCAB];
} activations;

/* The loss of predicting the character after text[0 … CONTEXT - 1]. */
static float forward(const tensors *w, const unsigned char *text, activations *a)
{
    float most = -INFINITY, total = 0;
    for (int c = 0; c < CONTEXT; c++)
        memcpy(a->x + c * EMBEDDING, w->embedding + text[c] * EMBEDDING, EMBEDDING * sizeof(float));
    for (int h = 0; h < HIDDEN; h++) {
        float sum = w->b1[h];
        for (int i = 0; i < INPUT; i++)
            sum += w->w1[h * INPUT + i] * a->x[i];
        a->hidden[h] = tanhf(sum);
    }
    for (int v = 0; v < VOCAB; v++) {
        a->p[v] = w->b2[v];
        for (int h = 0; h < HIDDEN; h++)
            a->p[v] += w->w2[v * HIDDEN + h] * a->hidden[h];
        most = fmaxf(most, a->p[v]);
    }
    for (int v = 0; v < VOCAB; v++)
        total += a->p[v] = expf(a->p[v] - most);
    for (int v = 0; v < VOCAB; v++)
        a->p[v] /= total;
    return -logf(fmaxf(a->p[text[CONTEXT]], 1e-30f));
}

/* Adds the loss's gradient times `scale` to g. */
static void backward(const tensors *w, tensors *g, const unsigned char *text, const activations *a,
                     float scale)
{
    float d_hidden[HIDDEN] = {0}, d_x[INPUT] = {0};
    for (int v = 0; v < VOCAB; v++) {
        const float d = scale * (a->p[v] - (v == text[CONTEXT]));
        g->b2[v] += d;
        for (int h = 0; h < HIDDEN; h++) {
            g->w2[v * HIDDEN + h] += d * a->hidden[h];
            d_hidden[h] += d * w->w2[v * HIDDEN + h];
        }
    }
    for (int h = 0; h < HIDDEN; h++) {
        const float d = d_hidden[h] * (1 - a->hidden[h] * a->hidden[h]);
        g->b1[h] += d;
        for (int i = 0; i < INPUT; i++) {
            g->w1[h * INPUT + i] += d * a->x[i];
            d_x[i] += d * w->w1[h * INPUT + i];
        }
    }
    for (int i = 0; i < INPUT; i++)
        g->embedding[text[i / EMBEDDING] * EMBEDDING + i % EMBEDDING] += d_x[i];
}

/* ---- the text ---- */

/* Lincoln at Gettysburg, 1863. */
static const char gettysburg[] =
    "Four score and seven years ago our fathers brought forth on this continent, a new nation, "
    "conceived "
    "in Liberty, and dedicated to the proposition that all men are created equal. Now we are "
    "engaged in a "
    "great civil war, testing whether that nation, or any nation so conceived and so dedicated, "
    "can long "
    "endure. We are met on a great battle-field of that war. We have come to dedicate a portion of "
    "that "
    "field, as a final resting place for those who here gave their lives that that nation might "
    "live. It "
    "is altogether fitting and proper that we should do this. But, in a larger sense, we can not "
    "dedicate, we can not consecrate, we can not hallow this ground. The brave men, living and "
    "dead, who "
    "struggled here, have consecrated it, far above our poor power to add or detract. The world "
    "will "
    "little note, nor long remember what we say here, but it can never forget what they did here.";

typedef struct corpus {
    unsigned char *text; /* owned; every byte below VOCAB */
    int64_t count;
} corpus;

static cz_status read_corpus(corpus *out, const char *path)
{
    enum { LARGEST = 1 << 22 };
    out->text = malloc(LARGEST);
    if (!out->text)
        return cz_fail(CZ_ERR_MEMORY, "no memory for the text");
    if (path) {
        FILE *file = fopen(path, "rb");
        if (!file)
            return cz_fail(CZ_ERR_IO, "%s: %s", path, strerror(errno));
        out->count = (int64_t)fread(out->text, 1, LARGEST, file);
        fclose(file);
    } else {
        out->count = (int64_t)sizeof gettysburg - 1;
        memcpy(out->text, gettysburg, sizeof gettysburg - 1);
    }
    for (int64_t i = 0; i < out->count; i++)
        out->text[i] &= VOCAB - 1;
    return out->count > CONTEXT
               ? CZ_OK
               : cz_fail(CZ_ERR_ARGUMENT, "the text has %lld characters, %d are needed",
                         (long long)out->count, CONTEXT + 1);
}

static void write_some(const tensors *w, const corpus *text)
{
    unsigned char window[CONTEXT + 1];
    activations a;
    memcpy(window, text->text, CONTEXT);
    window[CONTEXT] = 0;
    printf("%.*s", CONTEXT, (const char *)window);
    for (int i = 0; i < 200; i++) {
        float left = cz_random_uniform(SEED, 100, (uint64_t)i);
        int next = 0;
        forward(w, window, &a);
        while (next < VOCAB - 1 && (left -= a.p[next]) >= 0)
            next++;
        putchar(next);
        memmove(window, window + 1, CONTEXT - 1);
        window[CONTEXT - 1] = (unsigned char)next;
    }
    putchar('\n');
}

/* ---- one rank ---- */

static cz_status train(cz_group *group, void *context)
{
    const corpus *text = context;
    const int rank = cz_group_rank(group), ranks = cz_group_size(group);
    const int64_t count = element_count(), positions = text->count - CONTEXT;
    float *params = calloc((size_t)count, sizeof *params);
    float *grads = calloc((size_t)count, sizeof *grads);
    if (!params || !grads)
        return cz_fail(CZ_ERR_MEMORY, "no memory for %lld parameters", (long long)count);
    tensors w = point_into(params), g = point_into(grads);
    initialise(params);

    cz_model *model; /* [czero] create */
    cz_zero *zero;
    CZ_TRY(cz_model_create(&model));
    CZ_TRY(cz_model_add_views(model, params, grads, CZ_F32, views, TENSORS));
    CZ_TRY(cz_zero_create(&zero, group, model, cz_rule_adamw(), CZ_HYPERS({"lr", 0.005}), NULL));

    for (int step = 0; step < STEPS; step++) {
        activations a;
        float loss = 0;
        memset(grads, 0, (size_t)count * sizeof *grads);
        for (int k = rank; k < BATCH; k += ranks) { /* this rank's part of the batch */
            uint32_t random[4];
            cz_random_block(SEED, 50, (uint64_t)step * BATCH + (uint64_t)k, random);
            const unsigned char *at = text->text + (int64_t)(random[0] % (uint64_t)positions);
            loss += forward(&w, at, &a) / BATCH;
            backward(&w, &g, at, &a, (float)ranks / BATCH);
        }
        CZ_TRY(cz_zero_step(zero, NULL, NULL)); /* [czero] step */
        if (rank == 0 && (step + 1) % 100 == 0)
            printf("step %d  loss on this rank's part %.3f\n", step + 1, loss * (float)ranks);
    }
    if (rank == 0)
        write_some(&w, text);

    cz_zero_destroy(&zero); /* [czero] destroy */
    cz_model_destroy(&model);
    free(params);
    free(grads);
    return CZ_OK;
}

int main(int argc, char **argv)
{
    corpus text = {NULL, 0};
    cz_launch_options launch = CZ_LAUNCH_OPTIONS_INIT;
    launch.ranks = getenv("CZERO_RANKS") ? 0 : 2;
    CZ_CHECK(read_corpus(&text, argc > 1 ? argv[1] : NULL));
    CZ_CHECK(cz_launch(train, &text, &launch));
    free(text.text);
    return 0;
}
