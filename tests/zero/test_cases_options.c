/* SPDX-License-Identifier: MIT */
/* Every number that a program can give, at and beyond its limits: an error at creation that
 * names it, the same on all ranks, or a training with the bits of the unsharded optimizer. */
#include <float.h>
#include <limits.h>
#include <math.h>
#include <stdlib.h>

#include "zero/cases.h"
#include "tensor/model.h"

enum { PARAMS = 3 };
static const int64_t sizes[PARAMS] = {40, 1, 17};

/* ---- hyper-parameters ---- */

/* The two hypers that every case has: lr, and the one at hand (twice lr where that is it: the last
 * counts). */
typedef struct attempt {
    const cz_rule *rule;
    cz_hyper hypers[3];
    const char *name;
    bool refused;
} attempt;

static cz_status try_body(cz_group *group, void *context)
{
    const attempt *a = context;
    const cz_test_training t = {
        .param_count = PARAMS, .sizes = sizes, .dtype = CZ_F32, .rule = a->rule};
    cz_test_memory memory = {0};
    cz_zero *zero = NULL;
    cz_status status = cz_test_memory_create(&memory, &t);
    THEN(expect(cz_zero_create(&zero, group, memory.model, a->rule, a->hypers, NULL),
                CZ_ERR_ARGUMENT, a->name));
    if (status == CZ_OK && zero)
        status = cz_fail(CZ_ERR_STATE, "a handle after an error");
    cz_zero_destroy(&zero);
    cz_test_memory_destroy(&memory);
    return status;
}

/* Set later it is the same: allowed, or an error that names it and changes nothing. */
static void set_later(const attempt *a, cz_model *model)
{
    cz_optim *optim;
    double before, after;
    assert_ok(cz_optim_create(&optim, model, a->rule, CZ_HYPERS({"lr", 1e-3}), NULL));
    assert_ok(cz_optim_get_hyper(optim, 0, a->name, &before));
    const cz_status status = cz_optim_set_hyper(optim, 0, a->name, a->hypers[1].value);
    assert_ok(cz_optim_get_hyper(optim, 0, a->name, &after));
    if (status != (a->refused ? CZ_ERR_ARGUMENT : CZ_OK) ||
        after != (a->refused ? before : a->hypers[1].value))
        fail_msg("%s: %s set to %g: %s", a->rule->name, a->name, a->hypers[1].value,
                 cz_status_name(status));
    if (a->refused && (!strstr(cz_last_error(), a->name) || /* and what is allowed */
                       (!strstr(cz_last_error(), "allowed") && !strstr(cz_last_error(), "needs"))))
        fail_msg("%s", cz_last_error());
    cz_optim_destroy(&optim);
}

static void try_value(const cz_rule *rule, const cz_hyper_spec *spec, double value, int world)
{
    const cz_test_training t = {
        .param_count = PARAMS, .sizes = sizes, .dtype = CZ_F32, .rule = rule};
    attempt a = {rule, {{"lr", 1e-3}, {spec->name, value}, {NULL, 0}}, spec->name, false};
    cz_test_memory memory;
    cz_optim *optim = NULL;
    assert_ok(cz_test_memory_create(&memory, &t));
    a.refused = cz_optim_create(&optim, memory.model, rule, a.hypers, NULL) != CZ_OK;
    cz_optim_destroy(&optim);
    set_later(&a, memory.model);
    cz_test_memory_destroy(&memory);
    if (a.refused)
        expect_ok(world, 0, try_body, &a);
    else
        check_all((cz_test_training){.param_count = PARAMS,
                                     .sizes = sizes,
                                     .rule = rule,
                                     .hypers = a.hypers,
                                     .steps = 2},
                  world, NULL);
}

static void try_spec(const cz_rule *rule, const cz_hyper_spec *spec)
{
    const double values[] = {0,
                             1,
                             -1,
                             0.5,
                             2,
                             spec->minimum,
                             nextafter(spec->minimum, -INFINITY),
                             nextafter(spec->minimum, INFINITY),
                             spec->maximum,
                             nextafter(spec->maximum, INFINITY),
                             nextafter(spec->maximum, -INFINITY),
                             DBL_MAX,
                             -DBL_MAX,
                             DBL_TRUE_MIN,
                             -0.0,
                             INFINITY,
                             -INFINITY,
                             NAN};
    for (size_t k = 0; k < sizeof values / sizeof *values; k++)
        try_value(rule, spec, values[k], 1 + (int)k % 4);
}

TEST(hyper_parameters_at_and_beyond_their_limits)
{
    const char *name;
    for (int k = 0; (name = cz_rule_name(k)); k++) {
        const cz_rule *rule = cz_rule_find(name);
        for (int h = 0; h < rule->hyper_count; h++)
            try_spec(rule, &rule->hypers[h]);
    }
}

/* ---- options of a sharded optimizer ---- */

typedef struct option {
    const char *name; /* what the sentence has; NULL: it works */
    cz_zero_options options;
    cz_status status;
} option;

static cz_status step_and_compare(cz_zero *zero, cz_test_memory *memory)
{
    cz_test_memory reference = {0};
    const cz_test_training t = {.param_count = PARAMS, .sizes = sizes, .dtype = CZ_F32};
    cz_optim *optim = NULL;
    cz_status status = cz_test_memory_create(&reference, &t);
    for (int p = 0; status == CZ_OK && p < PARAMS; p++)
        for (int64_t i = 0; i < sizes[p]; i++) {
            cz_test_store(memory->grads[p], CZ_F32, i, cz_test_gradient(0, 0, i));
            cz_test_store(reference.grads[p], CZ_F32, i, cz_test_gradient(0, 0, i));
        }
    THEN(cz_optim_create(&optim, reference.model, cz_rule_adam(), NULL, NULL));
    THEN(cz_optim_step(optim, NULL, NULL));
    THEN(cz_zero_step(zero, NULL, NULL));
    for (int p = 0; status == CZ_OK && p < PARAMS; p++)
        if (memcmp(cz__model_value(memory->model, p)->data, reference.values[p],
                   (size_t)sizes[p] * sizeof(float)) != 0)
            status = cz_fail(CZ_ERR_STATE, "parameter %d differs", p);
    cz_optim_destroy(&optim);
    cz_test_memory_destroy(&reference);
    return status;
}

static cz_status option_body(cz_group *group, void *context)
{
    const option *o = context;
    const cz_test_training t = {.param_count = PARAMS, .sizes = sizes, .dtype = CZ_F32};
    cz_test_memory memory = {0};
    cz_zero *zero = NULL;
    cz_status status = cz_test_memory_create(&memory, &t);
    THEN(expect(cz_zero_create(&zero, group, memory.model, cz_rule_adam(), NULL, &o->options),
                o->status, o->name ? o->name : ""));
    if (status == CZ_OK && zero)
        status = step_and_compare(zero, &memory);
    cz_zero_destroy(&zero);
    cz_test_memory_destroy(&memory);
    return status;
}

static void told(int64_t param, void *value, void *context)
{
}

static const int64_t members[] = {0, 1, 2}, beyond[] = {0, PARAMS}, below[] = {-1},
                     largest[] = {INT64_MAX}, smallest[] = {INT64_MIN};
static const int owners[] = {0, 0, 0}, too_high[] = {0, 0, 3}, too_low[] = {-2, 0, 0},
                 highest[] = {INT_MAX, 0, 0};

#define GROUP(list, count)                                                                         \
    (&(const cz_param_group){                                                                      \
        .size = sizeof(cz_param_group), .params = (list), .param_count = (count), .hypers = NULL})
#define OPTIONS(...)                                                                               \
    {                                                                                              \
        .size = sizeof(cz_zero_options), .moved = told, __VA_ARGS__                                \
    }

TEST(options_at_and_beyond_their_limits)
{
    const option all[] = {
        {NULL, OPTIONS(.partition = CZ_PARTITION_ELEMENTS), CZ_OK},
        {NULL, OPTIONS(.partition = CZ_PARTITION_GREEDY), CZ_OK},
        {"partition is 5", OPTIONS(.partition = (cz_partition)5), CZ_ERR_ARGUMENT},
        {"CZ_PARTITION_BUCKETS, which needs option ddp", OPTIONS(.partition = CZ_PARTITION_BUCKETS),
         CZ_ERR_ARGUMENT},
        {"CZ_PARTITION_BUCKET_PIECES, which needs option ddp",
         OPTIONS(.partition = CZ_PARTITION_BUCKET_PIECES), CZ_ERR_ARGUMENT},
        {"partition is -1", OPTIONS(.partition = (cz_partition)-1), CZ_ERR_ARGUMENT},
        {"partition is 2147483647", OPTIONS(.partition = (cz_partition)INT_MAX), CZ_ERR_ARGUMENT},
        {NULL, OPTIONS(.gradients = CZ_GRADIENTS_REDUCED), CZ_OK},
        {"gradients is 3", OPTIONS(.gradients = (cz_gradients)3), CZ_ERR_ARGUMENT},
        {"gradients is -1", OPTIONS(.gradients = (cz_gradients)-1), CZ_ERR_ARGUMENT},
        {NULL, OPTIONS(.parameters_as_bucket_view = 1), CZ_OK},
        {"parameters_as_bucket_view is 2", OPTIONS(.parameters_as_bucket_view = 2),
         CZ_ERR_ARGUMENT},
        {"parameters_as_bucket_view is -2147483648",
         OPTIONS(.parameters_as_bucket_view = INT32_MIN), CZ_ERR_ARGUMENT},
        {"overlap is 3", OPTIONS(.overlap = 3), CZ_ERR_ARGUMENT},
        {"overlap needs option ddp", OPTIONS(.overlap = 1), CZ_ERR_ARGUMENT},
        {NULL, OPTIONS(.groups = GROUP(members, 3), .group_count = 1), CZ_OK},
        {"no parameters in 0 groups", OPTIONS(.groups = GROUP(members, 3)), CZ_ERR_ARGUMENT},
        {"group_count is -1", OPTIONS(.groups = GROUP(members, 3), .group_count = -1),
         CZ_ERR_ARGUMENT},
        {"1 parameter groups at NULL", OPTIONS(.group_count = 1), CZ_ERR_ARGUMENT},
        {"parameter groups", OPTIONS(.groups = GROUP(members, 3), .group_count = INT64_MAX),
         CZ_ERR_MEMORY},
        {"group 0 has -1 parameters", OPTIONS(.groups = GROUP(members, -1), .group_count = 1),
         CZ_ERR_ARGUMENT},
        {"group 0 of 9223372036854775807",
         OPTIONS(.groups = GROUP(members, INT64_MAX), .group_count = 1), CZ_ERR_MEMORY},
        {"lists parameter 3", OPTIONS(.groups = GROUP(beyond, 2), .group_count = 1),
         CZ_ERR_ARGUMENT},
        {"lists parameter -1", OPTIONS(.groups = GROUP(below, 1), .group_count = 1),
         CZ_ERR_ARGUMENT},
        {"lists parameter 9223372036854775807",
         OPTIONS(.groups = GROUP(largest, 1), .group_count = 1), CZ_ERR_ARGUMENT},
        {"lists parameter -9223372036854775808",
         OPTIONS(.groups = GROUP(smallest, 1), .group_count = 1), CZ_ERR_ARGUMENT},
        {NULL, OPTIONS(.partition = CZ_PARTITION_GIVEN, .owners = owners, .owner_count = 3), CZ_OK},
        {"owner_count is 4",
         OPTIONS(.partition = CZ_PARTITION_GIVEN, .owners = owners, .owner_count = 4),
         CZ_ERR_ARGUMENT},
        {"owner_count is 9223372036854775807",
         OPTIONS(.partition = CZ_PARTITION_GIVEN, .owners = owners, .owner_count = INT64_MAX),
         CZ_ERR_ARGUMENT},
        {"owner_count is -1",
         OPTIONS(.partition = CZ_PARTITION_GIVEN, .owners = owners, .owner_count = -1),
         CZ_ERR_ARGUMENT},
        {"is rank 3",
         OPTIONS(.partition = CZ_PARTITION_GIVEN, .owners = too_high, .owner_count = 3),
         CZ_ERR_ARGUMENT},
        {"is rank -2",
         OPTIONS(.partition = CZ_PARTITION_GIVEN, .owners = too_low, .owner_count = 3),
         CZ_ERR_ARGUMENT},
        {"is rank 2147483647",
         OPTIONS(.partition = CZ_PARTITION_GIVEN, .owners = highest, .owner_count = 3),
         CZ_ERR_ARGUMENT},
    };
    for (size_t k = 0; k < sizeof all / sizeof *all; k++)
        for (int world = 1; world <= 3; world++)
            expect_ok(world, 0, option_body, (void *)&all[k]);
}

/* ---- options of a step ---- */

typedef struct step_option {
    const char *name; /* what the sentence has; NULL: it works */
    cz_step_options options;
} step_option;

/* The last rank gives it, the others nothing: all get the error, and nothing is changed. If it is
 * no error, all give it, and clipping to something large or asking for the norm changes nothing
 * either. */
static cz_status step_option_ranks(const step_option *o, cz_group *group, cz_zero *zero,
                                   cz_test_memory *memory)
{
    const bool odd = cz_group_rank(group) == cz_group_size(group) - 1;
    cz_step_result result = CZ_STEP_RESULT_INIT;
    const float before = *(const float *)memory->values[0];
    CZ_TRY(expect(cz_zero_step(zero, odd || !o->name ? &o->options : NULL, &result),
                  o->name ? CZ_ERR_ARGUMENT : CZ_OK, o->name ? o->name : ""));
    if (!o->name)
        return CZ_OK;
    if (*(const float *)memory->values[0] != before)
        return cz_fail(CZ_ERR_STATE, "a parameter was changed");
    return step_and_compare(zero, memory);
}

static cz_status step_option_body(cz_group *group, void *context)
{
    const cz_test_training t = {.param_count = PARAMS, .sizes = sizes, .dtype = CZ_F32};
    cz_test_memory memory = {0};
    cz_zero *zero = NULL;
    cz_status status = cz_test_memory_create(&memory, &t);
    THEN(cz_zero_create(&zero, group, memory.model, cz_rule_adam(), NULL, NULL));
    THEN(step_option_ranks(context, group, zero, &memory));
    cz_zero_destroy(&zero);
    cz_test_memory_destroy(&memory);
    return status;
}

#define STEP(...)                                                                                  \
    {                                                                                              \
        .size = sizeof(cz_step_options), __VA_ARGS__                                               \
    }

TEST(step_options_at_and_beyond_their_limits)
{
    static void *none[PARAMS];
    const step_option all[] = {
        {NULL, STEP(.max_norm = 0)},
        {NULL, STEP(.max_norm = 1)},
        {NULL, STEP(.max_norm = DBL_MAX)},
        {NULL, STEP(.max_norm = DBL_TRUE_MIN)},
        {"max_norm is -1", STEP(.max_norm = -1)},
        {"max_norm is nan", STEP(.max_norm = NAN)},
        {"max_norm is -inf", STEP(.max_norm = -INFINITY)},
        {NULL, STEP(.skip_nonfinite = 1)},
        {"skip_nonfinite is 2", STEP(.skip_nonfinite = 2)},
        {"skip_nonfinite is -1", STEP(.skip_nonfinite = -1)},
        {NULL, STEP(.norm = 1)},
        {"norm is 2", STEP(.norm = 2)},
        {"norm is -2147483648", STEP(.norm = INT32_MIN)},
        {"gradient_count is 1", STEP(.gradient_count = 1)},
        {"gradient_count is 0", STEP(.gradients = none)},
        {"gradient_count is 4", STEP(.gradients = none, .gradient_count = PARAMS + 1)},
        {"gradient_count is -1", STEP(.gradients = none, .gradient_count = -1)},
        {NULL, STEP(.gradients = none, .gradient_count = PARAMS, .allow_no_gradients = 1)},
        {"allow_no_gradients is 2", STEP(.allow_no_gradients = 2)},
        {"allow_no_gradients is -1", STEP(.allow_no_gradients = -1)},
    };
    for (size_t k = 0; k < sizeof all / sizeof *all; k++)
        for (int world = 1; world <= 3; world++)
            expect_ok(world, 0, step_option_body, (void *)&all[k]);
}

/* ---- options of a group ---- */

/* Whatever a group takes, an optimizer works on it. */
static void try_group(const char *name, cz_group_options options)
{
    const option plain = {NULL, OPTIONS(.partition = CZ_PARTITION_ELEMENTS), CZ_OK};
    cz_group *groups[MANY_RANKS] = {NULL};
    outcome outcomes[MANY_RANKS];
    options.size = sizeof options;
    const cz_status status = cz_group_create_threads(groups, 3, &options);
    if (status != CZ_OK) {
        if (status != CZ_ERR_ARGUMENT || !strstr(cz_last_error(), name) || groups[0])
            fail_msg("%s: %s: %s", name, cz_status_name(status), cz_last_error());
        return;
    }
    run_groups(3, groups, option_body, (void *)&plain, outcomes);
    for (int r = 0; r < 3; r++)
        if (outcomes[r].status != CZ_OK)
            fail_msg("%s, rank %d: %s", name, r, outcomes[r].sentence);
}

TEST(group_options_at_and_beyond_their_limits)
{
    static const double seconds[] = {0, 1, 1e9, DBL_MAX, INFINITY, -INFINITY, -1, -0.0, NAN};
    static const size_t bytes[] = {0,
                                   1,
                                   63,
                                   64,
                                   65,
                                   128,
                                   SIZE_MAX,
                                   SIZE_MAX - 63,
                                   SIZE_MAX / 2 + 1,
                                   (size_t)INT64_MAX,
                                   (size_t)INT_MAX + 1};
    static const int32_t flags[] = {0, 1, 2, -1, INT32_MAX, INT32_MIN};
    for (size_t k = 0; k < sizeof seconds / sizeof *seconds; k++) {
        try_group("timeout_seconds", (cz_group_options){.timeout_seconds = seconds[k]});
        try_group("warn_seconds", (cz_group_options){.warn_seconds = seconds[k]});
    }
    for (size_t k = 0; k < sizeof bytes / sizeof *bytes; k++)
        try_group("segment_bytes", (cz_group_options){.segment_bytes = bytes[k]});
    for (size_t k = 0; k < sizeof flags / sizeof *flags; k++)
        try_group("checked", (cz_group_options){.checked = flags[k]});
}
