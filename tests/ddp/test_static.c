/* SPDX-License-Identifier: MIT */
/* Static graphs: the first pass teaches what is used and how often, on each rank; another graph
 * later is an error on all ranks. And weights, which say what each rank's gradients count for. */
#include <math.h>
#include <string.h>

#include "czero/ddp.h"
#include "support/cz_test.h"
#include "support/training.h"

enum { PARAMS = 7 };
static const int64_t sizes[PARAMS] = {40, 3, 131, 0, 16, 300, 64};

typedef struct subject {
    cz_test_memory memory;
    cz_ddp *ddp;
} subject;

static void clear(subject *s)
{
    cz_ddp_destroy(&s->ddp);
    cz_test_memory_destroy(&s->memory);
}

static cz_status create(subject *s, cz_group *group, size_t bucket_bytes, bool static_graph)
{
    const cz_test_training layout = {.param_count = PARAMS, .sizes = sizes, .dtype = CZ_F32};
    cz_ddp_options options = CZ_DDP_OPTIONS_INIT;
    options.bucket_bytes = options.first_bucket_bytes = bucket_bytes;
    options.static_graph = static_graph;
    CZ_TRY(cz_test_memory_create(&s->memory, &layout));
    return cz_ddp_create(&s->ddp, group, s->memory.model, &options);
}

/* Marks of a parameter: none of 1, 2 on rank 0 only, 4 as often as the rank's number says, the rest
 * once. */
static int marks_of(int rank, int p)
{
    return p == 1 ? 0 : p == 2 ? rank == 0 : p == 4 ? rank + 1 : 1;
}

static float part(int rank, int pass, int p, int64_t i)
{
    return (float)((rank + 1) * ((i + p + pass) % 5 - 2)) / 32;
}

static void fill(subject *s, int rank, int pass)
{
    for (int p = 0; p < PARAMS; p++)
        for (int64_t i = 0; i < sizes[p]; i++)
            ((float *)s->memory.grads[p])[i] = marks_of(rank, p) ? part(rank, pass, p, i) : 77;
}

/* `extra`: one mark too many (1) or too few (-1) of parameter `which` here. */
static cz_status one_pass(subject *s, int rank, int pass, int which, int extra)
{
    fill(s, rank, pass);
    CZ_TRY(cz_ddp_begin(s->ddp, true));
    for (int k = 0; k < PARAMS; k++) {
        const int p = (k * (pass % 2 ? 3 : 5) + rank) % PARAMS;
        const int marks = marks_of(rank, p) + (p == which ? extra : 0);
        for (int n = 0; n < marks; n++) {
            const cz_status status = cz_ddp_mark_ready(s->ddp, p);
            if (status != CZ_OK && n < marks_of(rank, p))
                return status;
        }
    }
    return cz_ddp_finish(s->ddp);
}

static cz_status compare(const subject *s, cz_group *group, int pass)
{
    const int ranks = cz_group_size(group), rank = cz_group_rank(group);
    for (int p = 0; p < PARAMS; p++)
        for (int64_t i = 0; i < sizes[p]; i++) {
            float wanted = 0;
            for (int r = 0; r < ranks; r++)
                wanted += marks_of(r, p) ? part(r, pass, p, i) : 0;
            wanted = p == 1 ? 77 : wanted / (float)ranks;
            const float got = ((const float *)s->memory.grads[p])[i];
            if (got != wanted)
                return cz_fail(CZ_ERR_STATE, "rank %d, pass %d: gradient %d[%d] is %g, wanted %g",
                               rank, pass, p, (int)i, (double)got, (double)wanted);
        }
    return CZ_OK;
}

static cz_status graph(subject *s, cz_group *group, size_t bucket_bytes)
{
    const int rank = cz_group_rank(group), odd = cz_group_size(group) - 1;
    CZ_TRY(create(s, group, bucket_bytes, true));
    for (int pass = 0; pass < 4; pass++) {
        CZ_TRY(one_pass(s, rank, pass, 0, 0));
        CZ_TRY(compare(s, group, pass));
    }
    for (int k = 0; k < 2; k++) {
        CZ_TRY(expect(one_pass(s, rank, 4, 5, rank == odd ? -1 : 0), CZ_ERR_STATE,
                      "'p5' (the first pass of the static graph marked them)"));
        CZ_TRY(expect(one_pass(s, rank, 4, 4, rank == odd ? -1 : 0), CZ_ERR_STATE, "'p4'"));
        CZ_TRY(expect(one_pass(s, rank, 4, 6, rank == odd ? 1 : 0), CZ_ERR_STATE,
                      "marked ready 2 times, it is used 1 times in a static graph"));
        CZ_TRY(
            expect(one_pass(s, rank, 4, 1, rank == odd ? 1 : 0), CZ_ERR_STATE, "'p1' of bucket"));
        CZ_TRY(one_pass(s, rank, 5, 0, 0));
        CZ_TRY(compare(s, group, 5));
    }
    return CZ_OK;
}

static cz_status graph_body(cz_group *group, void *context)
{
    subject s = {0};
    const cz_status status = graph(&s, group, *(const size_t *)context);
    clear(&s);
    return status;
}

static void run(int world, cz_rank_main body, const void *context)
{
    assert_ranks_ok(world, body, (void *)(uintptr_t)context);
}

TEST(a_static_graph_is_learnt_in_the_first_pass)
{
    static const size_t caps[] = {1, 200, 1 << 20};
    for (size_t c = 0; c < 3; c++)
        for (int world = 1; world <= 7; world += world < 3 ? 1 : 2)
            run(world, graph_body, &caps[c]);
}

/* ---- weights ---- */

static cz_status mark_all(subject *s)
{
    CZ_TRY(cz_ddp_begin(s->ddp, true));
    for (int p = 0; p < PARAMS; p++)
        CZ_TRY(cz_ddp_mark_ready(s->ddp, p));
    return cz_ddp_finish(s->ddp);
}

/* By weights 0, 1, 2, …, and equal ones: the mean over as many examples, and the bits of no
 * weights. */
static cz_status weighted(subject *s, cz_group *group, bool equal)
{
    const int rank = cz_group_rank(group), ranks = cz_group_size(group);
    double sum = 0;
    for (int r = 0; r < ranks; r++)
        sum += equal ? 3 : r;
    CZ_TRY(cz_ddp_set_weight(s->ddp, equal ? 3 : rank));
    for (int p = 0; p < PARAMS; p++)
        for (int64_t i = 0; i < sizes[p]; i++)
            ((float *)s->memory.grads[p])[i] = rank == 0 && !equal ? NAN : part(rank, 0, p, i);
    CZ_TRY(mark_all(s));
    for (int p = 0; p < PARAMS; p++)
        for (int64_t i = 0; i < sizes[p]; i++) {
            float wanted = 0;
            for (int r = equal ? 0 : 1; r < ranks; r++) /* shares are rounded as f32 */
                wanted += part(r, 0, p, i) * (float)((equal ? 3 : r) * ranks / sum);
            wanted /= (float)ranks;
            const float got = ((const float *)s->memory.grads[p])[i];
            const float room = equal || ranks == 2 ? 0 : 1e-6F * (fabsf(wanted) + 1);
            if (!(fabsf(got - wanted) <= room))
                return cz_fail(CZ_ERR_STATE, "gradient %d[%d] is %.9g, wanted %.9g", p, (int)i,
                               (double)got, (double)wanted);
        }
    return CZ_OK;
}

static cz_status weights(subject *s, cz_group *group)
{
    const int rank = cz_group_rank(group);
    CZ_TRY(create(s, group, 64, false));
    CZ_TRY(expect(cz_ddp_set_weight(NULL, 1), CZ_ERR_ARGUMENT, "ddp is NULL"));
    CZ_TRY(expect(cz_ddp_set_weight(s->ddp, -1), CZ_ERR_ARGUMENT, "weight is -1"));
    CZ_TRY(expect(cz_ddp_set_weight(s->ddp, (double)NAN), CZ_ERR_ARGUMENT, "weight is nan"));
    if (cz_group_size(group) > 1 && rank == 0) { /* on one rank only */
        CZ_TRY(cz_ddp_set_weight(s->ddp, 1));
    }
    if (cz_group_size(group) > 1)
        CZ_TRY(expect(cz_ddp_begin(s->ddp, true), CZ_ERR_MISMATCH, "with weights"));
    CZ_TRY(cz_ddp_set_weight(s->ddp, 0));
    for (int p = 0; p < PARAMS; p++)
        for (int64_t i = 0; i < sizes[p]; i++)
            ((float *)s->memory.grads[p])[i] = part(rank, 3, p, i);
    CZ_TRY(mark_all(s)); /* nothing is reduced */
    for (int p = 0; p < PARAMS; p++)
        for (int64_t i = 0; i < sizes[p]; i++)
            if (((float *)s->memory.grads[p])[i] != part(rank, 3, p, i))
                return cz_fail(CZ_ERR_STATE, "gradient %d was changed", p);
    CZ_TRY(weighted(s, group, true));
    CZ_TRY(cz_ddp_begin(s->ddp, false));
    CZ_TRY(expect(cz_ddp_set_weight(s->ddp, 1), CZ_ERR_STATE, "a pass has begun"));
    CZ_TRY(cz_ddp_finish(s->ddp));
    return cz_group_size(group) > 1 ? weighted(s, group, false) : CZ_OK;
}

RANK_BODY(weights, subject, clear, group)

TEST(weights)
{
    for (int world = 1; world <= 7; world += world < 3 ? 1 : 2)
        run(world, weights_body, NULL);
}
