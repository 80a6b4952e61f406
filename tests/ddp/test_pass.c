/* SPDX-License-Identifier: MIT */
/* Passes: whatever the order of marks on each rank, the caps, the accumulation, the parameters that
 * are frozen, unused or tied, gradients become the mean, to the last bit; what is wrong on one rank
 * is an error on all, and the next pass works. */
#include <string.h>

#include "czero/ddp.h"
#include "support/cz_test.h"
#include "support/training.h"
#include "ddp/ddp.h"

enum { PARAMS = 9, PASSES = 6 };
static const int64_t sizes[PARAMS] = {40, 0, 3, 131, 7, 16, 300, 1, 64};

typedef struct trial {
    size_t bucket_bytes, first_bucket_bytes;
    bool find_unused, keep_buckets, flat, same_order;
    cz_dtype dtype;
} trial;

typedef struct subject {
    cz_test_memory memory;
    cz_ddp *ddp;
} subject;

static void clear(subject *s)
{
    cz_ddp_destroy(&s->ddp);
    cz_test_memory_destroy(&s->memory);
}

static cz_status create(subject *s, cz_group *group, const trial *t)
{
    const cz_test_training layout = {
        .param_count = PARAMS, .sizes = sizes, .dtype = t->dtype, .flat = t->flat};
    cz_ddp_options options = CZ_DDP_OPTIONS_INIT;
    options.bucket_bytes = t->bucket_bytes;
    options.first_bucket_bytes = t->first_bucket_bytes;
    options.find_unused = t->find_unused;
    options.keep_buckets = t->keep_buckets;
    CZ_TRY(cz_test_memory_create(&s->memory, &layout));
    if (cz_group_rank(group) > 0) /* rank 0's values win */
        for (int p = 0; p < PARAMS; p++)
            memset(s->memory.values[p], 0x41, (size_t)sizes[p] * cz_dtype_size(t->dtype));
    return cz_ddp_create(&s->ddp, group, s->memory.model, &options);
}

/* What micro-batch `m` of a pass adds to a gradient: exact in every order. */
static double part(int rank, int pass, int m, int p, int64_t i)
{
    return (double)((rank + 1) * ((i + p + pass) % 5 - 2) + m) / 32;
}

static int micro_batches(int pass)
{
    static const int counts[PASSES] = {1, 4, 1, 2, 3, 1};
    return counts[pass];
}

static bool frozen(int pass, int p)
{
    return p == 4 && (pass == 2 || pass == 3);
}

static bool unused(const trial *t, int rank, int pass, int p)
{
    if (!t->find_unused)
        return false;
    return (p == 5 && pass != 1) || (p == 3 && rank % 2 == 1 && pass >= 1) || (p == 0 && rank == 0);
}

/* A permutation that depends on rank and pass. */
static void order_of_marks(const trial *t, int rank, int pass, int *order)
{
    static const int strides[] = {1, 2, 4, 5, 7, 8};
    const int seed = t->same_order ? pass : pass * 3 + rank;
    for (int k = 0; k < PARAMS; k++)
        order[k] = (k * strides[seed % 6] + seed) % PARAMS;
}

static cz_status one_pass(subject *s, cz_group *group, const trial *t, int pass)
{
    const int rank = cz_group_rank(group), last = micro_batches(pass) - 1;
    int order[PARAMS];
    order_of_marks(t, rank, pass, order);
    for (int p = 0; p < PARAMS; p++) {
        CZ_TRY(cz_model_set_requires_grad(s->memory.model, p, !frozen(pass, p)));
        for (int64_t i = 0; i < sizes[p]; i++)
            cz_test_store(s->memory.grads[p], t->dtype, i,
                          unused(t, rank, pass, p) ? 77 : 0); /* stale, or cleared */
    }
    for (int m = 0; m <= last; m++) {
        CZ_TRY(cz_ddp_begin(s->ddp, m == last));
        for (int k = 0; k < PARAMS; k++) {
            const int p = order[k];
            if (unused(t, rank, pass, p))
                continue;
            for (int64_t i = 0; i < sizes[p]; i++)
                cz_test_store(s->memory.grads[p], t->dtype, i,
                              cz_test_load(s->memory.grads[p], t->dtype, i) +
                                  part(rank, pass, m, p, i));
            CZ_TRY(cz_ddp_mark_ready(s->ddp, p));
        }
        CZ_TRY(cz_ddp_finish(s->ddp));
    }
    return CZ_OK;
}

/* What the gradient must be: the mean where anybody has one, as it was where nobody has. */
static double wanted(const trial *t, cz_group *group, int pass, int p, int64_t i)
{
    const int ranks = cz_group_size(group), rank = cz_group_rank(group);
    double sum = 0, mine = unused(t, rank, pass, p) ? 77 : 0;
    bool any = false;
    for (int r = 0; r < ranks; r++)
        for (int m = 0; m < micro_batches(pass) && !unused(t, r, pass, p); m++) {
            sum += part(r, pass, m, p, i);
            any = true;
            mine += r == rank ? part(r, pass, m, p, i) : 0;
        }
    if (!any || frozen(pass, p))
        return mine;
    return t->dtype == CZ_F64 ? sum / ranks : (double)((float)sum / (float)ranks);
}

static cz_status passes(subject *s, cz_group *group, const trial *t)
{
    CZ_TRY(create(s, group, t));
    for (int p = 0; p < PARAMS; p++)
        for (int64_t i = 0; i < sizes[p]; i++)
            if (cz_test_load(s->memory.values[p], t->dtype, i) != (double)i / 64)
                return cz_fail(CZ_ERR_STATE, "parameter %d is not rank 0's", p);
    for (int pass = 0; pass < PASSES; pass++) {
        CZ_TRY(one_pass(s, group, t, pass));
        for (int p = 0; p < PARAMS; p++)
            for (int64_t i = 0; i < sizes[p]; i++)
                if (cz_test_load(s->memory.grads[p], t->dtype, i) != wanted(t, group, pass, p, i))
                    return cz_fail(CZ_ERR_STATE, "pass %d: gradient %d[%d] is %g, wanted %g", pass,
                                   p, (int)i, cz_test_load(s->memory.grads[p], t->dtype, i),
                                   wanted(t, group, pass, p, i));
    }
    return cz__ddp_rebuilt(s->ddp) == !t->keep_buckets
               ? CZ_OK
               : cz_fail(CZ_ERR_STATE, "rebuilt is %d", cz__ddp_rebuilt(s->ddp));
}

RANK_BODY(passes, subject, clear, group, context)

static void run(int world, cz_rank_main body, const void *context)
{
    assert_ranks_ok(world, body, (void *)context);
}

TEST(marks_in_any_order_with_any_bucket_size)
{
    static const size_t caps[][2] = {{1, 1}, {64, 64}, {1024, 64}, {0, 0}, {300, 1u << 30}};
    for (size_t k = 0; k < sizeof caps / sizeof *caps; k++)
        for (int flags = 0; flags < 16; flags++)
            for (int world = 1; world <= 7; world += world < 3 ? 1 : 2) {
                const trial t = {.bucket_bytes = caps[k][0],
                                 .first_bucket_bytes = caps[k][1],
                                 .find_unused = flags & 1,
                                 .keep_buckets = flags & 2,
                                 .flat = flags & 4,
                                 .same_order = flags & 8,
                                 .dtype = flags % 3 ? CZ_F32 : CZ_F64};
                run(world, passes_body, &t);
            }
}

/* ---- what is wrong ---- */

static cz_status mark_all(subject *s, int but)
{
    for (int p = 0; p < PARAMS; p++)
        if (p != but)
            CZ_TRY(cz_ddp_mark_ready(s->ddp, p));
    return CZ_OK;
}

static cz_status wrong(subject *s, cz_group *group)
{
    const trial t = {64, 64, false, false, false, true, CZ_F32};
    const bool odd = cz_group_rank(group) == 1;
    CZ_TRY(create(s, group, &t));
    CZ_TRY(expect(cz_ddp_mark_ready(s->ddp, 0), CZ_ERR_STATE, "no pass has begun"));
    CZ_TRY(expect(cz_ddp_finish(s->ddp), CZ_ERR_STATE, "no pass has begun"));
    for (int but = 0; but < PARAMS; but += 2) { /* a mark is missing */
        char sentence[64];
        CZ_TRY(cz_ddp_begin(s->ddp, true));
        CZ_TRY(expect(cz_ddp_begin(s->ddp, true), CZ_ERR_STATE, "a pass has begun"));
        CZ_TRY(mark_all(s, odd ? but : -1));
        snprintf(sentence, sizeof sentence, ": 'p%d'", but);
        CZ_TRY(expect(cz_ddp_finish(s->ddp), CZ_ERR_STATE, sentence));
    }
    for (int p = 0; p < PARAMS; p++) { /* one too many, before and after others */
        char sentence[64];
        CZ_TRY(cz_ddp_begin(s->ddp, true));
        if (p % 2)
            CZ_TRY(mark_all(s, -1));
        snprintf(sentence, sizeof sentence, "'p%d' of bucket", p);
        if (odd && !(p % 2))
            CZ_TRY(cz_ddp_mark_ready(s->ddp, p));
        if (odd)
            CZ_TRY(expect(cz_ddp_mark_ready(s->ddp, p), CZ_ERR_STATE, sentence));
        if (!(p % 2))
            CZ_TRY(mark_all(s, odd ? p : -1));
        CZ_TRY(expect(cz_ddp_finish(s->ddp), CZ_ERR_STATE, sentence));
    }
    if (odd) /* frozen on one rank only */
        CZ_TRY(cz_model_set_requires_grad(s->memory.model, 3, false));
    CZ_TRY(expect(cz_ddp_begin(s->ddp, true), CZ_ERR_MISMATCH,
                  "parameter 3 'p3' is frozen on rank 1, trainable on rank 0"));
    CZ_TRY(cz_model_set_requires_grad(s->memory.model, 3, true));
    if (odd) /* no memory for a gradient */
        CZ_TRY(cz_model_set_gradient(s->memory.model, 6, NULL));
    CZ_TRY(cz_ddp_begin(s->ddp, true));
    CZ_TRY(mark_all(s, odd ? 6 : -1));
    if (odd)
        CZ_TRY(expect(cz_ddp_mark_ready(s->ddp, 6), CZ_ERR_STATE, "'p6' of bucket"));
    CZ_TRY(expect(cz_ddp_finish(s->ddp), CZ_ERR_STATE, "'p6' of bucket"));
    CZ_TRY(cz_ddp_begin(s->ddp, false)); /* where only sums are made, too */
    CZ_TRY(mark_all(s, odd ? 6 : -1));
    if (odd)
        CZ_TRY(expect(cz_ddp_mark_ready(s->ddp, 6), CZ_ERR_STATE, "'p6' of bucket"));
    CZ_TRY(cz_ddp_finish(s->ddp));
    CZ_TRY(cz_model_set_gradient(s->memory.model, 6, s->memory.grads[6]));
    CZ_TRY(expect(cz_ddp_mark_ready(s->ddp, PARAMS), CZ_ERR_ARGUMENT, "parameter 9"));
    CZ_TRY(cz_ddp_set_uses(s->ddp, 8, 2)); /* tied */
    CZ_TRY(cz_ddp_begin(s->ddp, true));
    CZ_TRY(mark_all(s, -1));
    CZ_TRY(cz_ddp_mark_ready(s->ddp, 8));
    CZ_TRY(cz_ddp_finish(s->ddp));
    CZ_TRY(cz_ddp_begin(s->ddp, true)); /* destroyed in the middle of a pass */
    return odd ? CZ_OK : mark_all(s, 5);
}

RANK_BODY(wrong, subject, clear, group)

static cz_status differ_body(cz_group *group, void *context)
{
    const bool odd = cz_group_rank(group) == 1;
    const trial t = {odd ? 64 : 128, 64, false, false, false, true, CZ_F32};
    subject s = {0};
    cz_status status = create(&s, group, &t);
    status = expect(status, CZ_ERR_MISMATCH, "bucket_bytes is 64 on rank 1, 128 on");
    clear(&s);
    return status;
}

TEST(what_is_wrong_on_one_rank)
{
    run(2, wrong_body, NULL);
    run(3, wrong_body, NULL);
    run(5, wrong_body, NULL);
    run(3, differ_body, NULL);
    cz_ddp_destroy(NULL);
}
