/* SPDX-License-Identifier: MIT */
/* Means over blocks of ranks: the bits of an all-reduce in a sub-group, for blocks of any sizes and
 * any order of ranks; when they begin. */
#include "hooks/hook_test.h"
#include "base/half.h"

enum { MOST = 1200, START = 3, PASSES = 6 };

typedef struct trial {
    layout layout;
    int split; /* which blocks; -1: by machine */
    bool local;
} trial;

/* Blocks of two, every third rank, all alone, all together, one and the rest. */
static int color_of(int split, int rank)
{
    switch (split) {
    case 0:
        return rank / 2;
    case 1:
        return rank % 3;
    case 2:
        return rank;
    case 3:
        return 0;
    default:
        return rank > 0;
    }
}

static cz_status blocks(subject *s, const trial *t, cz_group *subgroup)
{
    const int64_t count = element_count(&t->layout);
    float in[MOST], got[MOST], wanted[MOST];
    for (int pass = 0; pass < PASSES; pass++) {
        cz_test_stream_f32(60 * (uint64_t)pass + (uint64_t)cz_group_rank(s->group) + 1, count, in);
        if (t->layout.dtype == CZ_BF16)
            for (int64_t i = 0; i < count; i++)
                in[i] = cz__f32_from_bf16(cz__bf16_from_f32(in[i]));
        memcpy(wanted, in, sizeof wanted);
        cz_group *over = pass < START || !subgroup ? s->group : subgroup;
        if (!t->local || pass < START)
            CZ_TRY(cz_all_reduce(over, wanted, count, CZ_F32, CZ_AVERAGE, NULL));
        CZ_TRY(subject_pass(s, in, NULL));
        subject_result(s, got);
        for (int64_t i = 0; i < count; i++) {
            const float right = t->layout.dtype == CZ_BF16
                                    ? cz__f32_from_bf16(cz__bf16_from_f32(wanted[i]))
                                    : wanted[i];
            if (got[i] != right)
                return cz_fail(CZ_ERR_STATE, "pass %d: element %d is %a, wanted %a", pass, (int)i,
                               (double)got[i], (double)right);
        }
    }
    return CZ_OK;
}

static cz_status blocks_rank(cz_group *group, void *arg)
{
    const trial *t = arg;
    cz_post_local_sgd state = CZ_POST_LOCAL_SGD_INIT;
    cz_group *subgroup = NULL;
    subject s;
    cz_status status = subject_create(&s, group, &t->layout);
    if (status == CZ_OK && t->split >= 0)
        status = cz_group_split(group, color_of(t->split, cz_group_rank(group)), 0, &subgroup);
    state.subgroup = subgroup;
    state.start_iter = START;
    state.local_gradients = t->local;
    THEN(cz_ddp_register_hook_by_name(s.ddp, "post_local_sgd", &state));
    THEN(blocks(&s, t, subgroup));
    subject_clear(&s);
    cz_group_destroy(&subgroup);
    return status;
}

TEST(blocks)
{
    static const size_t caps[] = {1, 700, 1 << 20};
    for (int w = 0; w < WORLDS; w++)
        for (int k = 0; k < 18; k++) {
            trial t = {.layout = {.count = 5, .shapes = {{33, 7}, {-1}, {1}, {300}, {129}}},
                       .split = k % 6 - 1,
                       .local = k == 7};
            t.layout.dtype = k < 12 ? CZ_F32 : CZ_BF16;
            t.layout.options.bucket_bytes = t.layout.options.first_bucket_bytes = caps[k / 6];
            assert_ranks_ok(worlds[w], blocks_rank, &t);
        }
}

/* ---- on a sub-group of the world; going on from a pass ---- */

static cz_status in_half_the_world(cz_group *world, void *arg)
{
    const int rank = cz_group_rank(world);
    cz_group *half;
    CZ_TRY(cz_group_split(world, rank % 2, -rank, &half)); /* in reverse order */
    trial t = {.layout = {.count = 2, .shapes = {{33, 7}, {5}}, .dtype = CZ_F32}, .split = 0};
    const cz_status status = blocks_rank(half, &t);
    cz_group_destroy(&half);
    return status;
}

TEST(in_a_sub_group)
{
    for (int w = 0; w < WORLDS; w++)
        assert_ranks_ok(worlds[w], in_half_the_world, NULL);
}

static cz_status resumed(subject *s, cz_post_local_sgd *state)
{
    const int rank = cz_group_rank(s->group);
    float in[4];
    CZ_TRY(cz_ddp_register_hook_by_name(s->ddp, "post_local_sgd", state));
    CZ_TRY(cz_ddp_set_passes(s->ddp, START - 1));
    for (int pass = 0; pass < 3; pass++) {
        for (int i = 0; i < 4; i++)
            in[i] = (float)(rank + i);
        CZ_TRY(subject_pass(s, in, NULL));
        const bool local = ((float *)s->grads[0])[0] == (float)rank;
        if (local != (pass > 0) && cz_group_size(s->group) == 2)
            return cz_fail(CZ_ERR_STATE, "pass %d is %s", pass, local ? "local" : "global");
    }
    return CZ_OK;
}

static cz_status resumed_rank(cz_group *group, void *arg)
{
    const layout l = {.count = 1, .shapes = {{4}}, .dtype = CZ_F32};
    cz_post_local_sgd state = CZ_POST_LOCAL_SGD_INIT;
    subject s;
    state.start_iter = START;
    state.local_gradients = 1;
    cz_status status = subject_create(&s, group, &l);
    THEN(resumed(&s, &state));
    subject_clear(&s);
    return status;
}

TEST(going_on)
{
    assert_ranks_ok(2, resumed_rank, NULL);
}

/* ---- what is refused ---- */

/* Rank 0 and 1 say that they are a block, rank 1 and 2 too. */
static cz_status overlapping(subject *s, cz_group *pair, cz_group *other)
{
    cz_post_local_sgd state = CZ_POST_LOCAL_SGD_INIT;
    float in[4] = {1, 2, 3, 4};
    state.subgroup = pair ? pair : other;
    cz_status status = cz_ddp_register_hook_by_name(s->ddp, "post_local_sgd", &state);
    THEN(expect(subject_pass(s, in, NULL), CZ_ERR_MISMATCH, "all_to_all_v 'slices'"));
    cz_ddp_destroy(&s->ddp);
    return status;
}

static cz_status refused_state(subject *s, int rank)
{
    cz_post_local_sgd state = CZ_POST_LOCAL_SGD_INIT;
    float in[4] = {1, 2, 3, 4};
    state.start_iter = -1;
    CZ_TRY(expect(cz_ddp_register_hook_by_name(s->ddp, "post_local_sgd", &state), CZ_ERR_ARGUMENT,
                  "post-local SGD: option start_iter is -1"));
    CZ_TRY(expect(cz_ddp_register_hook_by_name(s->ddp, "post_local_sgd", NULL), CZ_ERR_ARGUMENT,
                  "wants a cz_post_local_sgd"));
    state.start_iter = rank;
    CZ_TRY(cz_ddp_register_hook_by_name(s->ddp, "post_local_sgd", &state));
    CZ_TRY(expect(subject_pass(s, in, NULL), CZ_ERR_MISMATCH, "start_iter of hook"));
    return CZ_OK;
}

/* A sub-group that this rank is not in. */
static cz_status outside(subject *s, cz_group *pair)
{
    cz_post_local_sgd state = CZ_POST_LOCAL_SGD_INIT;
    float in[4] = {1, 2, 3, 4};
    cz_group *alone = NULL;
    cz_status status = cz_group_create_self(&alone, NULL);
    state.subgroup = pair ? pair : alone;
    THEN(cz_ddp_register_hook_by_name(s->ddp, "post_local_sgd", &state));
    THEN(expect(subject_pass(s, in, NULL), CZ_ERR_ARGUMENT, "rank 2 is not in the sub-group"));
    cz_ddp_destroy(&s->ddp);
    cz_group_destroy(&alone);
    return status;
}

static cz_status refused_rank(cz_group *group, void *arg)
{
    const layout l = {.count = 1, .shapes = {{4}}, .dtype = CZ_F32};
    cz_group *pair = NULL, *other = NULL;
    const int rank = cz_group_rank(group);
    cz_status status = CZ_OK;
    THEN(cz_group_split(group, rank < 2 ? 0 : -1, 0, &pair));
    THEN(cz_group_split(group, rank > 0 ? 0 : -1, 0, &other));
    for (int k = 0; k < 3; k++) {
        subject s;
        THEN(subject_create(&s, group, &l));
        THEN(k == 0   ? refused_state(&s, rank)
             : k == 1 ? overlapping(&s, pair, other)
                      : outside(&s, pair));
        subject_clear(&s);
    }
    cz_group_destroy(&pair);
    cz_group_destroy(&other);
    return status;
}

TEST(what_is_refused)
{
    assert_ranks_ok(3, refused_rank, NULL);
}
