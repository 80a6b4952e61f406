/* SPDX-License-Identifier: MIT */
/* Several optimizers over one model, one of which has moved the values into its buckets: the same
 * bits as without, whoever was made first and whoever goes first. */
#include <string.h>

#include "support/cz_test.h"
#include "support/training.h"
#include "tensor/model.h"
#include "zero/zero.h"

enum { PARAMS = 6, STEPS = 2 };
static const int64_t sizes[PARAMS] = {9, 0, 4, 100, 1, 33};
static const cz_test_training layout = {.param_count = PARAMS, .sizes = sizes, .dtype = CZ_F32};

typedef struct subject {
    cz_test_memory memory;
    int calls;
    cz_zero *viewer, *other;
    cz_optim *optim;
} subject;

static void moved(int64_t param, void *value, void *context)
{
    ((subject *)context)->calls++;
}

static void clear(subject *s)
{
    cz_zero_destroy(&s->viewer);
    cz_zero_destroy(&s->other);
    cz_optim_destroy(&s->optim);
    cz_test_memory_destroy(&s->memory);
}

/* Of the parameters begin to end - 1. */
static cz_status make_zero(cz_zero **zero, subject *s, cz_group *group, int begin, int end,
                           bool views)
{
    static const int64_t members[PARAMS] = {0, 1, 2, 3, 4, 5};
    const cz_param_group part = {sizeof part, members + begin, end - begin, NULL};
    cz_zero_options options = CZ_ZERO_OPTIONS_INIT;
    options.groups = &part;
    options.group_count = 1;
    options.parameters_as_bucket_view = views;
    options.moved = moved;
    options.moved_context = s;
    return cz_zero_create(zero, group, s->memory.model, cz_rule_adam(), NULL, &options);
}

/* Both optimizers in turn, or the one that is left. All ranks have the same gradient, as the
 * unsharded one sees one rank's only. */
static cz_status train(subject *s, int first_step)
{
    for (int step = first_step; step < first_step + STEPS; step++) {
        for (int turn = 0; turn < 3; turn++) {
            for (int p = 0; p < PARAMS; p++)
                for (int64_t i = 0; i < sizes[p]; i++)
                    cz_test_store(s->memory.grads[p], CZ_F32, i,
                                  cz_test_gradient(turn, step, i + p));
            if (turn == 0 && s->viewer)
                CZ_TRY(cz_zero_step(s->viewer, NULL, NULL));
            if (turn == 1 && s->other)
                CZ_TRY(cz_zero_step(s->other, NULL, NULL));
            if (turn == 2 && s->optim)
                CZ_TRY(cz_optim_step(s->optim, NULL, NULL));
        }
    }
    return CZ_OK;
}

static cz_status values_equal(const subject *a, const subject *b)
{
    for (int p = 0; p < PARAMS; p++)
        if (memcmp(cz__model_value(a->memory.model, p)->data,
                   cz__model_value(b->memory.model, p)->data,
                   (size_t)sizes[p] * sizeof(float)) != 0)
            return cz_fail(CZ_ERR_STATE, "parameter %d differs", p);
    return CZ_OK;
}

/* ---- who is made when, and who goes when ---- */

enum { VIEWER, OTHER, OPTIM };
static const int orders[6][3] = {{VIEWER, OTHER, OPTIM}, {VIEWER, OPTIM, OTHER},
                                 {OTHER, VIEWER, OPTIM}, {OPTIM, VIEWER, OTHER},
                                 {OTHER, OPTIM, VIEWER}, {OPTIM, OTHER, VIEWER}};

static cz_status make(subject *s, cz_group *group, int who, bool views)
{
    if (who == VIEWER)
        return make_zero(&s->viewer, s, group, 0, 5, views);
    if (who == OTHER)
        return make_zero(&s->other, s, group, 2, PARAMS, false);
    return cz_optim_create(&s->optim, s->memory.model, cz_rule_adam(), NULL, NULL);
}

static void destroy(subject *s, int who)
{
    if (who == VIEWER)
        cz_zero_destroy(&s->viewer);
    else if (who == OTHER)
        cz_zero_destroy(&s->other);
    else
        cz_optim_destroy(&s->optim);
}

static cz_status one_order(subject *plain, subject *viewed, cz_group *group, const int *made,
                           const int *gone)
{
    subject *both[] = {plain, viewed};
    for (int k = 0; k < 2; k++) {
        CZ_TRY(cz_test_memory_create(&both[k]->memory, &layout));
        for (int i = 0; i < 3; i++)
            CZ_TRY(make(both[k], group, made[i], k == 1));
    }
    for (int i = 0; i < 3; i++) {
        for (int k = 0; k < 2; k++)
            CZ_TRY(train(both[k], i * STEPS));
        CZ_TRY(values_equal(plain, viewed));
        for (int k = 0; k < 2; k++)
            destroy(both[k], gone[i]);
        CZ_TRY(values_equal(plain, viewed));
    }
    for (int p = 0; p < PARAMS; p++)
        if (cz__model_value(viewed->memory.model, p)->data != viewed->memory.values[p])
            return cz_fail(CZ_ERR_STATE, "parameter %d did not come back", p);
    return CZ_OK;
}

static cz_status orders_body(cz_group *group, void *context)
{
    for (int made = 0; made < 6; made++)
        for (int gone = 0; gone < 6; gone++) {
            subject plain = {0}, viewed = {0};
            const cz_status status = one_order(&plain, &viewed, group, orders[made], orders[gone]);
            clear(&plain);
            clear(&viewed);
            if (status != CZ_OK)
                return cz_fail(status, "made in order %d, gone in order %d: %.120s", made, gone,
                               cz_last_error());
        }
    return CZ_OK;
}

TEST(every_order)
{
    assert_ranks_ok(1, orders_body, NULL);
    assert_ranks_ok(3, orders_body, NULL);
}

/* ---- a second view ---- */

static cz_status expect_refusal(cz_status got, int rank, int param)
{
    char sentence[160];
    snprintf(sentence, sizeof sentence,
             "rank %d: zero: parameters_as_bucket_view: parameter %d 'p%d' is in the buckets of "
             "another optimizer",
             rank, param, param);
    return got == CZ_ERR_STATE && strcmp(cz_last_error(), sentence) == 0
               ? CZ_OK
               : cz_fail(CZ_ERR_STATE, "got %s: %.160s", cz_status_name(got), cz_last_error());
}

/* Refused at creation and in a group that is added; the viewer's own new shards are no second
 * view. */
static cz_status second_view(subject *s, cz_group *group)
{
    static const int64_t taken = 3;
    const cz_param_group more = {sizeof more, &taken, 1, NULL};
    const void *before[PARAMS];
    CZ_TRY(cz_test_memory_create(&s->memory, &layout));
    CZ_TRY(make_zero(&s->viewer, s, group, 2, 5, true));
    for (int p = 0; p < PARAMS; p++)
        before[p] = cz__model_value(s->memory.model, p)->data;
    const int calls = s->calls;
    CZ_TRY(expect_refusal(make_zero(&s->other, s, group, 0, 4, true), 0, 2));
    CZ_TRY(make_zero(&s->other, s, group, 0, 2, true));
    CZ_TRY(expect_refusal(cz_zero_add_param_group(s->other, &more), 0, 3));
    if (s->calls != calls + 2 || cz__zero_group_count(s->other) != 1)
        return cz_fail(CZ_ERR_STATE, "what was refused changed something");
    for (int p = 2; p < PARAMS; p++)
        if (cz__model_value(s->memory.model, p)->data != before[p])
            return cz_fail(CZ_ERR_STATE, "parameter %d moved", p);
    CZ_TRY(train(s, 0));
    CZ_TRY(cz_zero_reshard(s->viewer, CZ_PARTITION_GREEDY, NULL, 0));
    CZ_TRY(train(s, STEPS));
    cz_zero_destroy(&s->viewer); /* then it is free again */
    CZ_TRY(cz_zero_add_param_group(s->other, &more));
    return train(s, 2 * STEPS);
}

/* Every rank is told of a view that one of them has. */
static cz_status only_one_rank(subject *s, cz_group *group)
{
    const int last = cz_group_size(group) - 1;
    const bool has = cz_group_rank(group) == last;
    cz_group *alone = NULL;
    CZ_TRY(cz_test_memory_create(&s->memory, &layout));
    CZ_TRY(cz_group_split(group, cz_group_rank(group), 0, &alone));
    cz_status status = has ? make_zero(&s->viewer, s, alone, 5, PARAMS, true) : CZ_OK;
    THEN(expect_refusal(make_zero(&s->other, s, group, 0, PARAMS, true), last, 5));
    if (status == CZ_OK && s->calls != has)
        status = cz_fail(CZ_ERR_STATE, "something moved");
    cz_zero_destroy(&s->viewer);
    cz_group_destroy(&alone);
    CZ_TRY(status);
    CZ_TRY(make_zero(&s->other, s, group, 0, PARAMS, true));
    return train(s, 0);
}

static cz_status second_view_body(cz_group *group, void *context)
{
    subject s = {0}, t = {0};
    cz_status status = second_view(&s, group);
    THEN(only_one_rank(&t, group));
    clear(&s);
    clear(&t);
    return status;
}

TEST(a_second_view_is_refused)
{
    for (int world = 1; world <= 3; world++)
        assert_ranks_ok(world, second_view_body, NULL);
}
