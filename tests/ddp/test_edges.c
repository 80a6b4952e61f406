/* SPDX-License-Identifier: MIT */
/* Places where passes once went wrong, or easily might: no gradient memory where a rank has no
 * marks of its own, a pass that could not begin, weights that are missing or equal, what an
 * overlapped optimizer says of itself. */
#include "hooks/hook_test.h"
#include "support/joinables.h"
#include "ddp/ddp.h"

static cz_status mark_all(subject *s)
{
    CZ_TRY(cz_ddp_begin(s->ddp, true));
    for (int k = 0; k < s->layout->count; k++)
        CZ_TRY(cz_ddp_mark_ready(s->ddp, s->params[k]));
    return cz_ddp_finish(s->ddp);
}

static void fill(subject *s)
{
    for (int k = 0; k < s->layout->count; k++)
        for (int64_t i = 0; i < s->counts[k]; i++)
            put(s->grads[k], s->layout->dtype, i, (float)(cz_group_rank(s->group) + 1));
}

/* ---- no gradient memory ---- */

enum { PLAIN, FIND_UNUSED, STATIC, WAYS };

static layout make_layout(int way)
{
    layout l = {.count = 3, .shapes = {{5}, {3, 4}, {7}}, .dtype = CZ_F32};
    l.options.bucket_bytes = l.options.first_bucket_bytes = 30;
    l.options.find_unused = way == FIND_UNUSED;
    l.options.static_graph = way == STATIC;
    return l;
}

/* The last rank has joined after `inputs` passes, and lacks memory in what follows. */
static cz_status shadow_without_memory(subject *s, int inputs)
{
    const bool joins = cz_group_rank(s->group) == cz_group_size(s->group) - 1;
    const cz_joinable joinable = cz_test_join_ddp(s->ddp);
    cz_join *join;
    CZ_TRY(cz_join_begin(&join, s->group, &joinable, 1, NULL));
    cz_status status = CZ_OK;
    for (int pass = 0; pass < inputs + !joins && status == CZ_OK; pass++) {
        fill(s);
        status = mark_all(s);
    }
    if (joins)
        CZ_TRY(cz_model_set_gradient(s->model, s->params[1], NULL));
    const cz_status end = cz_join_end(&join, status);
    if (joins)
        CZ_TRY(cz_model_set_gradient(s->model, s->params[1], s->grads[1]));
    CZ_TRY(expect(end, CZ_ERR_STATE, "'p1' of bucket"));
    CZ_TRY(expect(end, CZ_ERR_STATE, "has no gradient memory"));
    fill(s);
    CZ_TRY(mark_all(s));
    const float mean = (float)(cz_group_size(s->group) + 1) / 2;
    for (int k = 0; k < s->layout->count; k++)
        for (int64_t i = 0; i < s->counts[k]; i++)
            if (((float *)s->grads[k])[i] != mean)
                return cz_fail(CZ_ERR_STATE, "gradient %d[%d] is wrong", k, (int)i);
    return CZ_OK;
}

static cz_status shadows_rank(cz_group *group, void *arg)
{
    const int *trial = arg; /* way, inputs */
    const layout l = make_layout(trial[0]);
    subject s;
    cz_status status = subject_create(&s, group, &l);
    THEN(shadow_without_memory(&s, trial[1]));
    subject_clear(&s);
    return status;
}

TEST(no_memory_in_a_shadow)
{
    for (int w = 1; w < WORLDS; w++)
        for (int way = 0; way < WAYS; way++)
            for (int inputs = 0; inputs < 3; inputs++)
                assert_ranks_ok(worlds[w], shadows_rank, (int[]){way, inputs});
}

/* A static graph: the first pass learns that others use it; later ones know; what nobody uses needs
 * none. */
static cz_status static_without_memory(subject *s)
{
    const bool lacks = cz_group_rank(s->group) == cz_group_size(s->group) - 1;
    CZ_TRY(cz_model_set_gradient(s->model, s->params[2], NULL));
    for (int pass = 0; pass < 4; pass++) {
        CZ_TRY(cz_model_set_gradient(s->model, s->params[1],
                                     lacks && pass % 2 == 0 ? NULL : s->grads[1]));
        fill(s);
        CZ_TRY(cz_ddp_begin(s->ddp, true));
        CZ_TRY(cz_ddp_mark_ready(s->ddp, s->params[0]));
        if (!lacks)
            CZ_TRY(cz_ddp_mark_ready(s->ddp, s->params[1]));
        const cz_status end = cz_ddp_finish(s->ddp);
        CZ_TRY(pass % 2 == 0 ? expect(end, CZ_ERR_STATE, "'p1' of bucket") : end);
    }
    return CZ_OK;
}

static cz_status static_rank(cz_group *group, void *arg)
{
    const layout l = make_layout(STATIC);
    subject s;
    cz_status status = subject_create(&s, group, &l);
    THEN(static_without_memory(&s));
    subject_clear(&s);
    return status;
}

TEST(no_memory_in_a_static_graph)
{
    for (int w = 1; w < WORLDS; w++)
        assert_ranks_ok(worlds[w], static_rank, NULL);
}

/* ---- a pass that could not begin ---- */

static cz_status pass_in_order(subject *s, const int *order, double weight)
{
    CZ_TRY(cz_ddp_set_weight(s->ddp, weight));
    fill(s);
    CZ_TRY(cz_ddp_begin(s->ddp, true));
    for (int k = 0; k < s->layout->count; k++)
        CZ_TRY(cz_ddp_mark_ready(s->ddp, s->params[order[k]]));
    return cz_ddp_finish(s->ddp);
}

/* The first pass fills more buckets than there are once they are made anew, in a beginning that
 * then fails; what was noted of the first ones is not what a sharded optimizer may learn its order
 * from. */
static cz_status begin_again(subject *s, cz_zero **zero)
{
    static const int first[] = {3, 0, 4, 1, 5, 2};
    cz_zero_options options = CZ_ZERO_OPTIONS_INIT;
    options.ddp = s->ddp;
    const int before = cz__ddp_bucket_count(s->ddp);
    CZ_TRY(pass_in_order(s, first, 1));
    CZ_TRY(expect(pass_in_order(s, first, 1.7e308), CZ_ERR_ARGUMENT, "sum up to inf"));
    if (!cz__ddp_rebuilt(s->ddp) || cz__ddp_bucket_count(s->ddp) >= before)
        return cz_fail(CZ_ERR_STATE, "%d buckets, now %d", before, cz__ddp_bucket_count(s->ddp));
    CZ_TRY(
        cz_zero_create(zero, s->group, s->model, cz_rule_sgd(), CZ_HYPERS({"lr", 0.5}), &options));
    for (int pass = 0; pass < 3; pass++) {
        CZ_TRY(pass_in_order(s, first, 1));
        CZ_TRY(cz_zero_step(*zero, NULL, NULL));
    }
    const float moved = 1.5F * (float)(cz_group_size(s->group) + 1) / 2;
    for (int k = 0; k < s->layout->count; k++)
        for (int64_t i = 0; i < s->counts[k]; i++)
            if (((float *)s->values[k])[i] != (float)(i % 16) / 8 - moved)
                return cz_fail(CZ_ERR_STATE, "value %d[%d] is wrong", k, (int)i);
    return CZ_OK;
}

static cz_status begin_again_rank(cz_group *group, void *arg)
{
    layout l = {.count = 6, .shapes = {{30}, {30}, {30}, {1}, {1}, {1}}, .dtype = CZ_F32};
    cz_zero *zero = NULL;
    subject s;
    l.options.bucket_bytes = l.options.first_bucket_bytes = 120;
    cz_status status = subject_create(&s, group, &l);
    THEN(begin_again(&s, &zero));
    cz_zero_destroy(&zero);
    subject_clear(&s);
    return status;
}

TEST(a_beginning_that_failed)
{
    for (int w = 1; w < WORLDS; w++) /* one weight of 1.7e308 is finite */
        assert_ranks_ok(worlds[w], begin_again_rank, NULL);
}

/* ---- weights ---- */

/* On all ranks but one, and with a join that wants them. */
static cz_status missing_weight(subject *s)
{
    const int rank = cz_group_rank(s->group), ranks = cz_group_size(s->group);
    const bool lacks = rank == ranks / 2;
    cz_join_options options = CZ_JOIN_OPTIONS_INIT;
    const cz_joinable joinable = cz_test_join_ddp(s->ddp);
    cz_join *join;
    options.divide = CZ_JOIN_BY_WEIGHT;
    if (!lacks)
        CZ_TRY(cz_ddp_set_weight(s->ddp, 2));
    if (ranks > 1)
        CZ_TRY(expect(cz_ddp_begin(s->ddp, true), CZ_ERR_MISMATCH, "the mean is"));
    CZ_TRY(cz_join_begin(&join, s->group, &joinable, 1, &options));
    const cz_status status = cz_ddp_begin(s->ddp, true);
    CZ_TRY(expect(status, CZ_ERR_ARGUMENT, "see cz_ddp_set_weight()"));
    CZ_TRY(expect(cz_join_end(&join, status), CZ_ERR_ARGUMENT, "see cz_ddp_set_weight()"));
    CZ_TRY(cz_ddp_set_weight(s->ddp, 2));
    return mark_all(s);
}

static cz_status missing_rank(cz_group *group, void *arg)
{
    const layout l = make_layout(PLAIN);
    subject s;
    cz_status status = subject_create(&s, group, &l);
    THEN(missing_weight(&s));
    subject_clear(&s);
    return status;
}

TEST(a_weight_is_missing)
{
    for (int w = 0; w < WORLDS; w++)
        assert_ranks_ok(worlds[w], missing_rank, NULL);
}

/* Weights of which ranks * w / sum is not always 1, on gradients with all of their digits. */
static cz_status equal_weights(subject *s)
{
    static const double weights[] = {-1, 0.3, 0.9, 1e-3, 1 / 3., 49, 1e300, 5e-324};
    double first[24];
    const int64_t count = element_count(s->layout);
    for (size_t w = 0; w < sizeof weights / sizeof *weights; w++) {
        double *at = first;
        float in[24], *from = in;
        cz_test_stream_f32((uint64_t)cz_group_rank(s->group) + 3, count, in);
        if (weights[w] >= 0)
            CZ_TRY(cz_ddp_set_weight(s->ddp, weights[w]));
        for (int k = 0; k < s->layout->count; k++)
            for (int64_t i = 0; i < s->counts[k]; i++)
                ((double *)s->grads[k])[i] = (double)*from++ / 3;
        CZ_TRY(mark_all(s));
        for (int k = 0; k < s->layout->count; at += s->counts[k++]) {
            const size_t bytes = (size_t)s->counts[k] * sizeof *first;
            if (w == 0)
                memcpy(at, s->grads[k], bytes);
            if (memcmp(at, s->grads[k], bytes) != 0)
                return cz_fail(CZ_ERR_STATE, "weight %g: other bits", weights[w]);
        }
    }
    return CZ_OK;
}

static cz_status equal_rank(cz_group *group, void *arg)
{
    layout l = make_layout(PLAIN);
    subject s;
    l.dtype = CZ_F64;
    cz_status status = subject_create(&s, group, &l);
    THEN(equal_weights(&s));
    subject_clear(&s);
    return status;
}

TEST(equal_weights)
{
    for (int w = 0; w < WORLDS; w++)
        assert_ranks_ok(worlds[w], equal_rank, NULL);
}

/* ---- overlap status ---- */

static cz_status is(const cz_zero *zero, cz_overlap_status wanted, int where)
{
    cz_zero_info info = CZ_ZERO_INFO_INIT;
    CZ_TRY(cz_zero_get_info(zero, &info));
    return info.overlap_status == wanted
               ? CZ_OK
               : cz_fail(CZ_ERR_STATE, "place %d: overlap status is %d, wanted %d", where,
                         (int)info.overlap_status, (int)wanted);
}

static cz_status lack_a_mark(subject *s)
{
    CZ_TRY(cz_ddp_begin(s->ddp, true));
    return expect(cz_ddp_finish(s->ddp), CZ_ERR_STATE, "not marked ready");
}

static cz_status live(subject *s, cz_zero **zero, bool rebuilt)
{
    cz_zero_options options = CZ_ZERO_OPTIONS_INIT;
    const cz_overlap_status begun =
        rebuilt ? CZ_OVERLAP_DDP_HAS_REBUILT_BUCKETS : CZ_OVERLAP_UNINITIALIZED;
    options.ddp = s->ddp;
    for (int pass = 0; pass < 2 * rebuilt; pass++)
        CZ_TRY(mark_all(s));
    CZ_TRY(cz_zero_create(zero, s->group, s->model, cz_rule_adam(), NULL, &options));
    CZ_TRY(mark_all(s));
    CZ_TRY(cz_zero_step(*zero, NULL, NULL));
    CZ_TRY(is(*zero, CZ_OVERLAP_UNINITIALIZED, 1)); /* it does not step in passes */
    CZ_TRY(cz_zero_set_overlap(*zero, CZ_OVERLAP_INTERLEAVED, NULL));
    CZ_TRY(is(*zero, begun, 2));
    CZ_TRY(lack_a_mark(s));
    CZ_TRY(is(*zero, begun, 3));
    CZ_TRY(cz_ddp_begin(s->ddp, false));
    CZ_TRY(cz_ddp_finish(s->ddp));
    CZ_TRY(is(*zero, begun, 4));
    for (int k = 0; k < 3; k++) {
        CZ_TRY(k == 1 ? lack_a_mark(s) : mark_all(s));
        CZ_TRY(is(*zero, CZ_OVERLAP_INITIALIZED, 5 + k));
    }
    CZ_TRY(cz_zero_set_overlap(*zero, CZ_OVERLAP_NONE, NULL));
    return is(*zero, CZ_OVERLAP_UNINITIALIZED, 8);
}

static cz_status live_rank(cz_group *group, void *arg)
{
    const layout l = make_layout(PLAIN);
    cz_zero *zero = NULL;
    subject s;
    cz_status status = subject_create(&s, group, &l);
    THEN(live(&s, &zero, *(const bool *)arg));
    cz_zero_destroy(&zero);
    subject_clear(&s);
    return status;
}

TEST(overlap_status)
{
    for (int w = 0; w < WORLDS; w++)
        for (int rebuilt = 0; rebuilt < 2; rebuilt++)
            assert_ranks_ok(worlds[w], live_rank, &(bool){rebuilt});
}
