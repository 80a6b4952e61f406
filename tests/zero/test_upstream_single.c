/* SPDX-License-Identifier: MIT */
/* Counterparts of upstream's tests with one rank, run on more of them as well: the gradient is the
 * same on all, so the outcome is. */
#include "support/spans.h"
#include "zero/upstream.h"
#include "tensor/model.h"
#include "optim/optim.h"
#include "shard/shard.h"

/* One parameter x of one element, gradient 1 where it is 1; another one y beside it. */
typedef struct scalars {
    float x, y, dx, dy;
    cz_model *model[2];
    cz_zero *zero, *other;
    cz_optim *optim;
    cz_state_dict *dict;
    cz_sched *scheds[2];
} scalars;

static cz_status open_scalars(scalars *s)
{
    const int64_t shape = 1;
    *s = (scalars){.x = 1, .y = 1, .dx = 1, .dy = 1};
    for (int k = 0; k < 2; k++) {
        CZ_TRY(cz_model_create(&s->model[k]));
        CZ_TRY(cz_model_add(s->model[k], "x", k ? &s->y : &s->x, k ? &s->dy : &s->dx, CZ_F32, 1,
                            &shape));
    }
    return CZ_OK;
}

static void close_scalars(scalars *s)
{
    cz_sched_destroy(&s->scheds[0]);
    cz_sched_destroy(&s->scheds[1]);
    cz_state_dict_destroy(&s->dict);
    cz_zero_destroy(&s->zero);
    cz_zero_destroy(&s->other);
    cz_optim_destroy(&s->optim);
    cz_model_destroy(&s->model[0]);
    cz_model_destroy(&s->model[1]);
}

static cz_status make_zero(cz_zero **zero, cz_group *group, const scalars *s, mode m,
                           const cz_rule *rule, const cz_hyper *hypers)
{
    const int owner = cz_group_size(group) - 1;
    const bool given = m.partition == CZ_PARTITION_GIVEN;
    const cz_zero_options options = {.size = sizeof options,
                                     .partition = m.partition,
                                     .gradients = m.gradients,
                                     .owners = given ? &owner : NULL,
                                     .owner_count = given,
                                     .parameters_as_bucket_view = m.views,
                                     .moved = told};
    return cz_zero_create(zero, group, s->model[0], rule, hypers, &options);
}

static float x_of(const scalars *s)
{
    return *(const float *)cz__model_value(s->model[0], 0)->data;
}

static cz_status expect_x(const scalars *s, float wanted)
{
    return x_of(s) == wanted
               ? CZ_OK
               : cz_fail(CZ_ERR_STATE, "x is %.9g, wanted %.9g", (double)x_of(s), (double)wanted);
}

#define RANKS(name)                                                                                \
    static cz_status name##_body(cz_group *group, void *context)                                   \
    {                                                                                              \
        scalars s;                                                                                 \
        cz_status status = open_scalars(&s);                                                       \
        if (status == CZ_OK)                                                                       \
            status = name(&s, group, *(const mode *)context);                                      \
        close_scalars(&s);                                                                         \
        return status;                                                                             \
    }                                                                                              \
    TEST(upstream_test_##name)                                                                     \
    {                                                                                              \
        for (int world = 1; world <= 7; world += world < 3 ? 1 : 2)                                \
            run_all(world, name##_body, #name);                                                    \
    }

/* ---- test_state_dict ---- */

/* Where x is owned, and so has a buffer. */
static cz_status expect_buffer(const cz_zero *zero, int rank, float wanted)
{
    const void *data;
    int64_t count;
    if (cz__shard_map_home(cz_test_shard_map(zero), 0) != rank)
        return CZ_OK;
    CZ_TRY(cz_optim_state(cz_zero_local_optim(zero), 0, "momentum_buffer", 0, &data, &count));
    if (!data || *(const float *)data != wanted)
        return cz_fail(CZ_ERR_STATE, "the buffer is %g", data ? (double)*(const float *)data : NAN);
    return CZ_OK;
}

static cz_status expect_options(const scalars *s)
{
    static const cz_hyper wanted[] = {
        {"lr", 0.1}, {"momentum", 0.9}, {"nesterov", 0}, {"weight_decay", 0}, {"dampening", 0}};
    const cz_optim *optim = cz_zero_local_optim(s->zero);
    const cz_state_dict *group = entry(s->dict, "param_groups", "0");
    double saved, here;
    for (int k = 0; k < 5; k++) {
        CZ_TRY(cz_state_dict_get_real(group, wanted[k].name, &saved));
        if (saved != wanted[k].value)
            return cz_fail(CZ_ERR_STATE, "%s is %g", wanted[k].name, saved);
    }
    for (int k = 0; k < cz__optim_hyper_count(optim, 0); k++) {
        const char *name = cz_optim_hyper_name(optim, 0, k);
        CZ_TRY(cz_state_dict_get_real(group, name, &saved));
        CZ_TRY(cz_optim_get_hyper(cz_zero_local_optim(s->zero), 0, name, &here));
        if (saved != here)
            return cz_fail(CZ_ERR_STATE, "%s is %g, saved as %g", name, here, saved);
    }
    return CZ_OK;
}

static cz_status state_dict(scalars *s, cz_group *group, mode m)
{
    const int rank = cz_group_rank(group);
    double lr;
    CZ_TRY(
        make_zero(&s->zero, group, s, m, cz_rule_sgd(), CZ_HYPERS({"lr", 0.1}, {"momentum", 0.9})));
    CZ_TRY(cz_zero_step(s->zero, NULL, NULL));
    CZ_TRY(expect_x(s, 0.9f));
    CZ_TRY(expect_buffer(s->zero, rank, 1));
    CZ_TRY(cz_zero_zero_grad(s->zero, false));
    CZ_TRY(whole_dict(s->zero, &s->dict));
    if (!entry(s->dict, "state", "x"))
        return cz_fail(CZ_ERR_STATE, "no state of x");
    CZ_TRY(expect_options(s));
    if (m.views) /* the bucket goes, x comes back; else both stay, as upstream */
        cz_zero_destroy(&s->zero);
    CZ_TRY(make_zero(&s->other, group, s, m, cz_rule_sgd(), CZ_HYPERS({"lr", 0.01})));
    CZ_TRY(cz_zero_load_state_dict(s->other, s->dict));
    CZ_TRY(expect_buffer(s->other, rank, 1));
    CZ_TRY(cz_optim_get_hyper(cz_zero_local_optim(s->other), 0, "lr", &lr));
    if (lr != 0.1)
        return cz_fail(CZ_ERR_STATE, "lr is %g", lr);
    s->dx = 1;
    CZ_TRY(cz_zero_step(s->other, NULL, NULL));
    CZ_TRY(expect_x(s, 0.71f));
    CZ_TRY(expect_buffer(s->other, rank, 1.9f));
    const cz_device *device = cz__model_value(s->model[0], 0)->device;
    return device && device != cz_device_cpu() ? cz_fail(CZ_ERR_STATE, "x is elsewhere") : CZ_OK;
}
RANKS(state_dict)

/* ---- test_lr_scheduler ---- */

/* Upstream clears the gradients before the step, so that nothing moves; here the second half does
 * move. */
static cz_status lr_scheduler(scalars *s, cz_group *group, mode m)
{
    cz_step_options options = CZ_STEP_OPTIONS_INIT;
    options.allow_no_gradients = 1;
    CZ_TRY(make_zero(&s->zero, group, s, m, cz_rule_sgd(), CZ_HYPERS({"lr", 0.01})));
    CZ_TRY(cz_optim_create(&s->optim, s->model[1], cz_rule_sgd(), CZ_HYPERS({"lr", 0.01}), NULL));
    CZ_TRY(cz_sched_create_step(&s->scheds[0], cz_zero_local_optim(s->zero), 1, 0.5, NULL));
    CZ_TRY(cz_sched_create_step(&s->scheds[1], s->optim, 1, 0.5, NULL));
    for (int step = 0; step < 10; step++) {
        CZ_TRY(cz_model_set_gradient(s->model[0], 0, step < 5 ? NULL : &s->dx));
        CZ_TRY(cz_model_set_gradient(s->model[1], 0, step < 5 ? NULL : &s->dy));
        CZ_TRY(cz_zero_step(s->zero, &options, NULL));
        CZ_TRY(cz_optim_step(s->optim, &options, NULL));
        CZ_TRY(cz_sched_step(s->scheds[0]));
        CZ_TRY(cz_sched_step(s->scheds[1]));
        CZ_TRY(expect_x(s, s->y));
        if ((s->y == 1) != (step < 5))
            return cz_fail(CZ_ERR_STATE, "x is %g after step %d", (double)s->y, step);
    }
    return CZ_OK;
}
RANKS(lr_scheduler)

/* ---- steps that take more, add options, take nothing ---- */

static cz_update_kernel sgd_kernel(const cz_device *device, cz_dtype param, cz_dtype grad,
                                   cz_dtype state, void *context)
{
    return device->find_update("sgd", param, grad, state);
}

/* SGD with something else at the beginning of its step. */
static cz_rule own_sgd(const char *name,
                       cz_status (*begin)(cz_optim *optim, const void *argument, void *context))
{
    cz_rule rule = *cz_rule_sgd();
    rule.name = name;
    rule.begin_step = begin;
    rule.find_kernel = sgd_kernel;
    return rule;
}

typedef struct list {
    int count, items[4];
} list;

static cz_status append_five(cz_optim *optim, const void *argument, void *context)
{
    list *l = (list *)argument;
    if (!l || l->count == 4)
        return cz_fail(CZ_ERR_ARGUMENT, "no list, or a full one");
    l->items[l->count++] = 5;
    return CZ_OK;
}

static cz_status returns_zero(double *loss, void *context)
{
    *loss = 0;
    return CZ_OK;
}

static cz_status step_with_kwargs(scalars *s, cz_group *group, mode m)
{
    const cz_rule rule = own_sgd("sgd_with_argument", append_five);
    list l = {0};
    cz_step_options options = CZ_STEP_OPTIONS_INIT;
    cz_step_result result = CZ_STEP_RESULT_INIT;
    CZ_TRY(make_zero(&s->zero, group, s, m, &rule, CZ_HYPERS({"lr", 0.1})));
    options.closure = returns_zero;
    options.argument = &l;
    result.loss = NAN;
    cz_status status = cz_zero_step(s->zero, &options, &result);
    THEN(expect_x(s, 0.9f));
    if (status == CZ_OK && (l.count != 1 || l.items[0] != 5 || result.loss != 0))
        status = cz_fail(CZ_ERR_STATE, "%d items, loss %g", l.count, result.loss);
    cz_zero_destroy(&s->zero); /* before its rule */
    return status;
}
RANKS(step_with_kwargs)

static cz_status add_key(cz_optim *optim, const void *argument, void *context)
{
    return cz_optim_add_hyper(optim, 0, "new_key", 0.1);
}

static cz_status step_with_extra_inner_key(scalars *s, cz_group *group, mode m)
{
    const cz_rule rule = own_sgd("sgd_with_key", add_key);
    double value = NAN;
    CZ_TRY(make_zero(&s->zero, group, s, m, &rule, CZ_HYPERS({"lr", 0.1})));
    cz_status status = cz_zero_step(s->zero, NULL, NULL);
    THEN(expect_x(s, 0.9f));
    THEN(cz_optim_get_hyper(cz_zero_local_optim(s->zero), 0, "new_key", &value));
    cz_zero_destroy(&s->zero);
    return status == CZ_OK && value != 0.1 ? cz_fail(CZ_ERR_STATE, "it is %g", value) : status;
}
RANKS(step_with_extra_inner_key)

static cz_status step_without_closure(scalars *s, cz_group *group, mode m)
{
    const cz_rule rule = own_sgd("sgd_without_closure", NULL);
    cz_step_result result = CZ_STEP_RESULT_INIT;
    CZ_TRY(make_zero(&s->zero, group, s, m, &rule, CZ_HYPERS({"lr", 0.1})));
    cz_status status = cz_zero_step(s->zero, NULL, &result);
    THEN(expect_x(s, 0.9f));
    cz_zero_destroy(&s->zero);
    return status == CZ_OK && !isnan(result.loss) ? cz_fail(CZ_ERR_STATE, "a loss") : status;
}
RANKS(step_without_closure)
