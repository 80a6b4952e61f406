/* SPDX-License-Identifier: MIT */
/* Values, gradients and buffers that share memory are refused with both names, when an object is
 * made and where a gradient moves later, with the same sentence on all ranks; empty tensors need no
 * memory; a step in which nothing has a gradient is an error unless it is allowed. */
#include <string.h>

#include "czero/czero.h"
#include "support/cz_test.h"

enum { COUNT = 8, PARAMS = 3, ROOM = 100 };

/* Where, in elements of one block; -1: nowhere. */
typedef struct places {
    int values[PARAMS], gradients[PARAMS], buffer;
} places;

static const places apart = {{0, 8, 16}, {24, 32, 40}, 48};

typedef struct trial {
    places at;
    const char *sentence;      /* a part of it; NULL: all is well */
    bool optim, ddp, averager; /* does it concern them, when they are made? */
} trial;

typedef struct subject {
    float memory[ROOM];
    cz_model *model;
} subject;

static float *at(subject *s, int place)
{
    return place < 0 ? NULL : s->memory + place;
}

static cz_status make(subject *s, const places *where)
{
    static const char *const names[] = {"a", "b", "c"};
    const int64_t count = COUNT;
    CZ_TRY(cz_model_create(&s->model));
    for (int p = 0; p < PARAMS; p++)
        CZ_TRY(cz_model_add(s->model, names[p], at(s, where->values[p]), at(s, where->gradients[p]),
                            CZ_F32, 1, &count));
    return cz_model_add_buffer(s->model, "mean", at(s, where->buffer), CZ_F32, 1, &count);
}

/* `sentence` NULL: CZ_OK. */
static cz_status expect_of(cz_status status, cz_status wanted, const char *sentence,
                           const char *what)
{
    if (!sentence && status == CZ_OK)
        return CZ_OK;
    if (sentence && status == wanted && strstr(cz_last_error(), sentence))
        return CZ_OK;
    char why[300];
    snprintf(why, sizeof why, "%s", status == CZ_OK ? "" : cz_last_error());
    return cz_fail(CZ_ERR_INTERNAL, "%s: %s '%s', wanted '%s'", what, cz_status_name(status), why,
                   sentence ? sentence : "CZ_OK");
}

static cz_status make_all(cz_group *group, const trial *t, subject *s)
{
    cz_optim *optim = NULL;
    cz_zero *zero = NULL;
    cz_ddp *ddp = NULL;
    cz_averager *averager = NULL;
    CZ_TRY(make(s, &t->at));
    CZ_TRY(expect_of(cz_optim_create(&optim, s->model, cz_rule_sgd(), CZ_HYPERS({"lr", 1}), NULL),
                     CZ_ERR_ARGUMENT, t->optim ? t->sentence : NULL, "optim"));
    if (optim) /* gradients are looked at by the step */
        CZ_TRY(expect_of(cz_optim_step(optim, NULL, NULL), CZ_ERR_ARGUMENT, t->sentence, "step"));
    CZ_TRY(
        expect_of(cz_zero_create(&zero, group, s->model, cz_rule_sgd(), CZ_HYPERS({"lr", 1}), NULL),
                  CZ_ERR_ARGUMENT, t->sentence, "zero"));
    CZ_TRY(expect_of(cz_ddp_create(&ddp, group, s->model, NULL), CZ_ERR_ARGUMENT,
                     t->ddp ? t->sentence : NULL, "ddp"));
    CZ_TRY(expect_of(cz_averager_create_periodic(&averager, group, s->model, 2, NULL),
                     CZ_ERR_ARGUMENT, t->averager ? t->sentence : NULL, "averager"));
    cz_averager_destroy(&averager);
    cz_ddp_destroy(&ddp);
    cz_zero_destroy(&zero);
    cz_optim_destroy(&optim);
    return CZ_OK;
}

static cz_status make_all_body(cz_group *group, void *context)
{
    subject s = {.model = NULL};
    const cz_status status = make_all(group, context, &s);
    cz_model_destroy(&s.model);
    return status;
}

static void run(cz_rank_main body, const void *context)
{
    static const int worlds[] = {1, 2, 3};
    for (size_t k = 0; k < sizeof worlds / sizeof *worlds; k++)
        assert_ranks_ok(worlds[k], body, (void *)context);
}

static void attempt(places where, const char *sentence, bool optim, bool ddp, bool averager)
{
    const trial t = {where, sentence, optim, ddp, averager};
    run(make_all_body, &t);
}

TEST(memories_that_overlap_are_refused_with_both_names)
{
    places p = apart;
    attempt(p, NULL, true, true, true);
    p.gradients[2] = p.gradients[0];
    attempt(p,
            "the gradient of parameter 0 'a' and the gradient of parameter 2 'c' are in the same",
            false, true, false);
    p = apart;
    p.gradients[1] = p.gradients[2] - COUNT + 1; /* by one element */
    p.gradients[0] = 60;
    attempt(p,
            "the gradient of parameter 1 'b' and the gradient of parameter 2 'c' are in the same",
            false, true, false);
    p = apart;
    p.values[0] = p.gradients[1];
    attempt(p, "the value of parameter 0 'a' and the gradient of parameter 1 'b' are in the same",
            true, true, true);
    p = apart;
    p.buffer = p.values[1] + 3;
    attempt(p, "the value of parameter 1 'b' and buffer 0 'mean' are in the same", true, true,
            true);
    p = apart;
    p.buffer = p.gradients[2] + COUNT - 1;
    attempt(p, "the gradient of parameter 2 'c' and buffer 0 'mean' are in the same", true, true,
            true);
    p = apart;
    p.values[2] = p.values[0];
    attempt(p, "parameters 0 'a' and 2 'c' have values in the same memory", true, true, true);
}

/* ---- where they move ---- */

static cz_status pass(cz_ddp *ddp);

/* As it is given where nobody is going to look; who does refuses it. */
static cz_status own_memory(cz_group *group, subject *s)
{
    static const char both[] = "the value of parameter 0 'a' and the gradient of parameter 0 'a'";
    cz_optim *optim;
    cz_zero *zero;
    cz_ddp *ddp;
    places where = apart;
    where.gradients[0] = where.values[0];
    CZ_TRY(make(s, &where));
    CZ_TRY(cz_optim_create(&optim, s->model, cz_rule_sgd(), CZ_HYPERS({"lr", 1}), NULL));
    CZ_TRY(cz_zero_create(&zero, group, s->model, cz_rule_sgd(), CZ_HYPERS({"lr", 1}), NULL));
    CZ_TRY(cz_ddp_create(&ddp, group, s->model, NULL));
    CZ_TRY(expect_of(cz_optim_step(optim, NULL, NULL), CZ_ERR_ARGUMENT, both, "optim step"));
    CZ_TRY(expect_of(cz_zero_step(zero, NULL, NULL), CZ_ERR_ARGUMENT, both, "zero step"));
    CZ_TRY(expect_of(cz_ddp_begin(ddp, true), CZ_ERR_ARGUMENT, both, "ddp begin"));
    CZ_TRY(cz_model_set_gradient(s->model, 0, at(s, 60)));
    CZ_TRY(cz_optim_step(optim, NULL, NULL));
    CZ_TRY(cz_zero_step(zero, NULL, NULL));
    CZ_TRY(pass(ddp));
    cz_ddp_destroy(&ddp);
    cz_zero_destroy(&zero);
    cz_optim_destroy(&optim);
    return CZ_OK;
}

static cz_status own_memory_body(cz_group *group, void *context)
{
    subject s = {.model = NULL};
    const cz_status status = own_memory(group, &s);
    cz_model_destroy(&s.model);
    return status;
}

TEST(a_gradient_in_its_own_value_is_refused_by_the_first_step)
{
    run(own_memory_body, NULL);
}

static cz_status pass(cz_ddp *ddp)
{
    CZ_TRY(cz_ddp_begin(ddp, true));
    for (int p = 0; p < PARAMS; p++)
        CZ_TRY(cz_ddp_mark_ready(ddp, p));
    return cz_ddp_finish(ddp);
}

static cz_status move(cz_group *group, subject *s)
{
    static const char both[] =
        "the gradient of parameter 0 'a' and the gradient of parameter 1 'b'";
    cz_optim *optim = NULL;
    cz_zero *zero = NULL;
    cz_ddp *ddp = NULL;
    cz_step_options given = CZ_STEP_OPTIONS_INIT;
    CZ_TRY(make(s, &apart));
    CZ_TRY(cz_optim_create(&optim, s->model, cz_rule_sgd(), CZ_HYPERS({"lr", 1}), NULL));
    CZ_TRY(cz_zero_create(&zero, group, s->model, cz_rule_sgd(), CZ_HYPERS({"lr", 1}), NULL));
    CZ_TRY(cz_ddp_create(&ddp, group, s->model, NULL));
    /* On all ranks, or on the last alone. */
    CZ_TRY(cz_model_set_gradient(s->model, 1, at(s, 24 + 7)));
    for (int alone = 0; alone < 2; alone++) {
        CZ_TRY(expect_of(cz_zero_step(zero, NULL, NULL), CZ_ERR_ARGUMENT, both, "zero step"));
        CZ_TRY(expect_of(cz_ddp_begin(ddp, true), CZ_ERR_ARGUMENT, both, "ddp begin"));
        if (!alone || cz_group_rank(group) == cz_group_size(group) - 1)
            CZ_TRY(
                expect_of(cz_optim_step(optim, NULL, NULL), CZ_ERR_ARGUMENT, both, "optim step"));
        if (cz_group_rank(group) < cz_group_size(group) - 1)
            CZ_TRY(cz_model_set_gradient(s->model, 1, at(s, 32)));
    }
    CZ_TRY(cz_model_set_gradient(s->model, 1,
                                 NULL)); /* it is gone, and comes back where the other was */
    CZ_TRY(cz_zero_step(zero, NULL, NULL));
    CZ_TRY(cz_model_set_gradient(s->model, 0, at(s, 32)));
    CZ_TRY(cz_zero_step(zero, NULL, NULL));
    CZ_TRY(cz_model_set_gradient(s->model, 1, at(s, 32)));
    CZ_TRY(expect_of(cz_zero_step(zero, NULL, NULL), CZ_ERR_ARGUMENT, both, "zero step"));
    CZ_TRY(expect_of(cz_optim_step(optim, NULL, NULL), CZ_ERR_ARGUMENT, both, "optim step"));
    CZ_TRY(cz_model_set_requires_grad(s->model, 1, false)); /* nobody reads that one */
    CZ_TRY(cz_zero_step(zero, NULL, NULL));
    CZ_TRY(cz_optim_step(optim, NULL, NULL));
    CZ_TRY(cz_model_set_requires_grad(s->model, 1, true));
    CZ_TRY(expect_of(cz_optim_step(optim, NULL, NULL), CZ_ERR_ARGUMENT, both, "optim step"));
    CZ_TRY(cz_model_set_gradient(s->model, 0, at(s, 24)));
    CZ_TRY(cz_zero_step(zero, NULL, NULL));
    CZ_TRY(pass(ddp));
    given.gradients = (void *const[]){at(s, 60), at(s, 67), at(s, 80)};
    given.gradient_count = PARAMS;
    CZ_TRY(expect_of(cz_zero_step(zero, &given, NULL), CZ_ERR_ARGUMENT, both, "given gradients"));
    CZ_TRY(expect_of(cz_optim_step(optim, &given, NULL), CZ_ERR_ARGUMENT, both, "given gradients"));
    given.gradients = (void *const[]){at(s, 60), at(s, 8), at(s, 80)};
    CZ_TRY(expect_of(cz_zero_step(zero, &given, NULL), CZ_ERR_ARGUMENT,
                     "the value of parameter 1 'b' and the gradient of parameter 1 'b'",
                     "given gradients"));
    given.gradients = (void *const[]){at(s, 60), at(s, 68), at(s, 80)};
    CZ_TRY(cz_zero_step(zero, &given, NULL));
    CZ_TRY(cz_zero_step(zero, NULL, NULL));
    cz_ddp_destroy(&ddp);
    cz_zero_destroy(&zero);
    cz_optim_destroy(&optim);
    return CZ_OK;
}

static cz_status move_body(cz_group *group, void *context)
{
    subject s = {.model = NULL};
    const cz_status status = move(group, &s);
    cz_model_destroy(&s.model);
    return status;
}

TEST(gradients_that_move_into_other_memory_are_refused)
{
    run(move_body, NULL);
}

TEST(optimizers_inside_the_backward_pass_may_reuse_gradient_memory)
{
    subject s = {.model = NULL};
    places where = apart;
    cz_optim *optim;
    cz_in_backward *inside;
    where.gradients[1] = where.gradients[2] = where.gradients[0];
    assert_ok(make(&s, &where));
    assert_ok(cz_optim_create(&optim, s.model, cz_rule_sgd(), CZ_HYPERS({"lr", 1}), NULL));
    assert_ok(cz_in_backward_create(&inside, &optim, 1, NULL));
    assert_ok(cz_in_backward_begin(inside, NULL));
    for (int p = 0; p < PARAMS; p++) {
        s.memory[where.gradients[p]] = (float)(p + 1);
        assert_ok(cz_in_backward_mark_ready(inside, p, NULL));
    }
    for (int p = 0; p < PARAMS; p++)
        assert_true(s.memory[where.values[p]] == (float)-(p + 1));
    assert_ok(cz_model_set_gradient(s.model, 1, s.memory)); /* the value of a */
    assert_int_equal(cz_in_backward_begin(inside, NULL), CZ_ERR_ARGUMENT);
    assert_non_null(strstr(cz_last_error(), "the value of parameter 0 'a' and the gradient of"));
    cz_in_backward_destroy(&inside);
    cz_optim_destroy(&optim);
    cz_model_destroy(&s.model);
}

/* ---- nothing there ---- */

static cz_status without_gradients(cz_group *group, subject *s)
{
    static const char none[] = "none of 3 trainable parameters has a gradient";
    cz_optim *optim = NULL;
    cz_zero *zero = NULL;
    cz_ddp *ddp = NULL;
    cz_averager *averager = NULL;
    cz_step_options allow = CZ_STEP_OPTIONS_INIT;
    cz_ddp_options unused = CZ_DDP_OPTIONS_INIT;
    const bool last = cz_group_rank(group) == cz_group_size(group) - 1;
    places where = apart;
    for (int p = 0; p < PARAMS; p++)
        where.gradients[p] = -1;
    allow.allow_no_gradients = 1;
    unused.find_unused = 1;
    CZ_TRY(make(s, &where));
    CZ_TRY(cz_optim_create(&optim, s->model, cz_rule_sgd(), CZ_HYPERS({"lr", 1}), NULL));
    CZ_TRY(cz_zero_create(&zero, group, s->model, cz_rule_sgd(), CZ_HYPERS({"lr", 1}), NULL));
    CZ_TRY(cz_ddp_create(&ddp, group, s->model, &unused));
    CZ_TRY(cz_averager_create_periodic(&averager, group, s->model, 1, NULL));
    CZ_TRY(expect_of(cz_optim_step(optim, NULL, NULL), CZ_ERR_STATE, none, "optim"));
    CZ_TRY(expect_of(cz_zero_step(zero, NULL, NULL), CZ_ERR_STATE, none, "zero"));
    if (cz_group_size(group) > 1)
        CZ_TRY(expect_of(cz_averager_average(averager, NULL), CZ_ERR_STATE, none, "averager"));
    CZ_TRY(cz_ddp_begin(ddp, true));
    CZ_TRY(expect_of(cz_ddp_finish(ddp), CZ_ERR_STATE,
                     "none of 3 trainable parameters has gradient memory", "ddp"));
    CZ_TRY(cz_optim_step(optim, &allow, NULL));
    CZ_TRY(cz_zero_step(zero, &allow, NULL));
    if (last) /* one rank has one: that is a step */
        CZ_TRY(cz_model_set_gradient(s->model, 1, at(s, 60)));
    s->memory[60] = 1;
    s->memory[8] = 0;
    CZ_TRY(cz_zero_step(zero, NULL, NULL));
    if (s->memory[8] != -1.0f / (float)cz_group_size(group))
        return cz_fail(CZ_ERR_INTERNAL, "the value is %g", s->memory[8]);
    for (int p = 0; p < PARAMS; p++) /* to train nothing is another matter */
        CZ_TRY(cz_model_set_requires_grad(s->model, p, false));
    CZ_TRY(cz_optim_step(optim, NULL, NULL));
    cz_averager_destroy(&averager);
    cz_ddp_destroy(&ddp);
    cz_zero_destroy(&zero);
    cz_optim_destroy(&optim);
    return CZ_OK;
}

static cz_status without_gradients_body(cz_group *group, void *context)
{
    subject s = {.model = NULL};
    const cz_status status = without_gradients(group, &s);
    cz_model_destroy(&s.model);
    return status;
}

TEST(a_step_without_any_gradient_is_an_error_unless_allowed)
{
    run(without_gradients_body, NULL);
}

static cz_status with_empty_ones(cz_group *group, subject *s, const char *hook)
{
    const int64_t count = COUNT, none = 0;
    const int rank = cz_group_rank(group), size = cz_group_size(group);
    cz_zero *zero = NULL;
    cz_ddp *ddp = NULL;
    CZ_TRY(cz_model_create(&s->model));
    CZ_TRY(cz_model_add(s->model, "nothing", NULL, NULL, CZ_F32, 1, &none));
    CZ_TRY(cz_model_add(s->model, "a", at(s, 0), at(s, 24), CZ_F32, 1, &count));
    CZ_TRY(cz_model_add(s->model, "nothing either", NULL, NULL, CZ_F32, 2, (int64_t[]){3, 0}));
    CZ_TRY(cz_model_add_buffer(s->model, "no mean", NULL, CZ_F32, 1, &none));
    CZ_TRY(cz_ddp_create(&ddp, group, s->model, NULL));
    if (hook)
        CZ_TRY(cz_ddp_register_hook_by_name(ddp, hook, NULL));
    for (int k = 0; k < 3; k++) {
        s->memory[24] = (float)rank;
        CZ_TRY(pass(ddp));
        if (s->memory[24] != (float)(size - 1) / 2)
            return cz_fail(CZ_ERR_INTERNAL, "the mean is %g", s->memory[24]);
    }
    cz_ddp_destroy(&ddp);
    CZ_TRY(cz_zero_create(&zero, group, s->model, cz_rule_adam(), NULL, NULL));
    CZ_TRY(cz_zero_step(zero, NULL, NULL));
    CZ_TRY(cz_zero_consolidate_state_dict(zero, CZ_ALL_RANKS));
    CZ_TRY(cz_zero_check_replicas(zero));
    cz_zero_destroy(&zero);
    CZ_TRY(cz_all_reduce(group, NULL, 0, CZ_F32, CZ_SUM, NULL));
    return cz_broadcast(group, NULL, 0, CZ_F32, 0, NULL);
}

static cz_status with_empty_ones_body(cz_group *group, void *context)
{
    subject s = {.model = NULL};
    const cz_status status = with_empty_ones(group, &s, context);
    cz_model_destroy(&s.model);
    return status;
}

TEST(empty_tensors_need_no_memory)
{
    run(with_empty_ones_body, NULL);
    run(with_empty_ones_body, "all_reduce");
    run(with_empty_ones_body, "fp16_compress");
    run(with_empty_ones_body, "quantize_per_channel");
    run(with_empty_ones_body, "powersgd");
}
