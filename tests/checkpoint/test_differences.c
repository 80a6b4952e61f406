/* SPDX-License-Identifier: MIT */
/* What is loaded differs from what is here: optimizer or none, types, parameters, their order and
 * groups. */
#include <math.h>

#include "checkpoint/quick.h"
#include "support/training.h"

static cz_status want(bool holds, const char *what)
{
    return holds ? CZ_OK : cz_fail(CZ_ERR_STATE, "wanted: %s", what);
}

/* ---- a model of any parameters ---- */

enum { MOST = 6, LONGEST = 40 };

typedef struct spec {
    const char *name;
    int64_t count;
    cz_dtype dtype;
    bool buffer;
} spec;

typedef enum optimizer { NO_OPTIMIZER, UNSHARDED, SHARDED } optimizer;

typedef struct any {
    cz_model *model;
    cz_zero *zero;
    cz_optim *optim;
    cz_checkpoint *checkpoint;
    double values[MOST][LONGEST], grads[MOST][LONGEST]; /* memory of any type */
    int count;
    spec specs[MOST];
} any;

static void any_close(any *a)
{
    cz_checkpoint_destroy(&a->checkpoint);
    cz_zero_destroy(&a->zero);
    cz_optim_destroy(&a->optim);
    cz_model_destroy(&a->model);
}

static cz_status add(any *a, int k)
{
    const spec *s = &a->specs[k];
    if (s->buffer)
        return cz_model_add_buffer(a->model, s->name, a->values[k], s->dtype, 1, &s->count);
    return cz_model_add(a->model, s->name, a->values[k], a->grads[k], s->dtype, 1, &s->count);
}

/* `groups`: "01" puts the first parameter into group 0 and the second into group 1; NULL: one
 * group. */
static cz_status make_optimizer(any *a, cz_group *group, optimizer kind, const char *groups)
{
    int64_t members[2][MOST], counts[2] = {0};
    for (int k = 0, p = 0; groups && groups[k]; k++, p++)
        members[groups[k] - '0'][counts[groups[k] - '0']++] = p;
    static const cz_hyper slow[] = {{"lr", 0.25}, {NULL, 0}};
    const cz_param_group list[] = {{sizeof *list, members[0], counts[0], NULL},
                                   {sizeof *list, members[1], counts[1], slow}};
    const int64_t many = groups ? (counts[1] > 0 ? 2 : 1) : 0;
    if (kind == UNSHARDED) {
        const cz_optim_options options = {sizeof options, groups ? list : NULL, many, 0, 0};
        return cz_optim_create(&a->optim, a->model, cz_rule_adam(), CZ_HYPERS({"lr", 0.5}),
                               &options);
    }
    cz_zero_options options = CZ_ZERO_OPTIONS_INIT;
    options.groups = groups ? list : NULL;
    options.group_count = many;
    return kind == NO_OPTIMIZER ? CZ_OK
                                : cz_zero_create(&a->zero, group, a->model, cz_rule_adam(),
                                                 CZ_HYPERS({"lr", 0.5}), &options);
}

/* Element i of tensor k begins as seed + k + i / 64. */
static cz_status any_open(any *a, cz_group *group, const char *where, const spec *specs,
                          optimizer kind, const char *groups, int seed)
{
    memset(a, 0, sizeof *a);
    CZ_TRY(cz_model_create(&a->model));
    for (; specs[a->count].name; a->count++) {
        a->specs[a->count] = specs[a->count];
        for (int64_t i = 0; i < specs[a->count].count; i++)
            if (specs[a->count].dtype == CZ_F32 || specs[a->count].dtype == CZ_F64)
                cz_test_store(a->values[a->count], specs[a->count].dtype, i,
                              seed + a->count + (double)i / 64);
            else
                ((uint16_t *)a->values[a->count])[i] = (uint16_t)(0x3c00 + seed + i);
        CZ_TRY(add(a, a->count));
    }
    CZ_TRY(make_optimizer(a, group, kind, groups));
    cz_checkpoint_options options = CZ_CHECKPOINT_OPTIONS_INIT;
    options.model = a->model;
    options.zero = a->zero;
    options.optim = a->optim;
    return cz_checkpoint_create(&a->checkpoint, group, where, &options);
}

static cz_status any_step(any *a)
{
    for (int k = 0; k < a->count; k++)
        for (int64_t i = 0; !a->specs[k].buffer && i < a->specs[k].count; i++)
            cz_test_store(a->grads[k], a->specs[k].dtype, i, (double)(i % 5 + k) / 32);
    return a->zero    ? cz_zero_step(a->zero, NULL, NULL)
           : a->optim ? cz_optim_step(a->optim, NULL, NULL)
                      : CZ_OK;
}

static cz_status any_save(any *a, int64_t step)
{
    cz_save_options options = CZ_SAVE_OPTIONS_INIT;
    options.step = step;
    return cz_checkpoint_save(a->checkpoint, &options);
}

static bool same_values(const any *a, const any *b)
{
    return memcmp(a->values, b->values, sizeof a->values) == 0;
}

/* ---- a training: saved on one number of ranks, loaded on another, and then one more step ---- */

typedef struct passage {
    const spec *there, *here; /* the tensors when it was saved, and when it is loaded */
    optimizer kind_there, kind_here;
    const char *groups_there, *groups_here;
    cz_load_options options;
    cz_status wanted;
    const char *sentence;
    cz_status (*check)(const any *a, const any *saved);
    bool steps; /* one more, and values are those of the reference */
} passage;

static any saved, stepped; /* by rank 0, when it was saved and one step later */

static cz_status leave(any *a, cz_group *group, const passage *t)
{
    CZ_TRY(any_open(a, group, folder, t->there, t->kind_there, t->groups_there, 1));
    CZ_TRY(any_step(a));
    CZ_TRY(any_step(a));
    if (cz_group_rank(group) == 0)
        saved = *a;
    CZ_TRY(any_save(a, 2));
    CZ_TRY(any_step(a));
    if (cz_group_rank(group) == 0)
        stepped = *a;
    return CZ_OK;
}

static cz_status arrive(any *a, cz_group *group, const passage *t)
{
    static any before[8];
    any *mine = &before[cz_group_rank(group)];
    CZ_TRY(any_open(a, group, folder, t->here, t->kind_here, t->groups_here, 77));
    CZ_TRY(any_step(a));
    *mine = *a;
    const cz_status status = cz_checkpoint_load(a->checkpoint, &t->options, NULL);
    if (t->wanted != CZ_OK) {
        CZ_TRY(small_expect(status, ONE(t->wanted), t->sentence, NULL));
        return want(same_values(a, mine), "nothing has changed");
    }
    CZ_TRY(status);
    if (t->sentence && !strstr(cz_checkpoint_notes(a->checkpoint), t->sentence))
        return cz_fail(CZ_ERR_STATE, "'%s' is not in the notes: %.150s", t->sentence,
                       cz_checkpoint_notes(a->checkpoint));
    if (t->check)
        return t->check(a, &saved);
    CZ_TRY(want(same_values(a, &saved), "the values that were saved"));
    CZ_TRY(any_step(a));
    return t->steps ? want(same_values(a, &stepped), "the values of the step after") : CZ_OK;
}

static cz_status leave_body(cz_group *group, void *context)
{
    any *a = malloc(sizeof *a);
    const cz_status status = leave(a, group, context);
    any_close(a);
    free(a);
    return status;
}

static cz_status arrive_body(cz_group *group, void *context)
{
    any *a = malloc(sizeof *a);
    const cz_status status = arrive(a, group, context);
    any_close(a);
    free(a);
    return status;
}

static void travel(const passage *t)
{
    static const int worlds[] = {1, 2, 3, 5, 7};
    for (int from = 0; from < 5; from += 1 + SANITIZED) {
        assert_ranks_ok(worlds[from], leave_body, (void *)t);
        for (int to = 0; to < 5; to += 1 + SANITIZED)
            assert_ranks_ok(worlds[to], arrive_body, (void *)t);
    }
}

#define NONE                                                                                       \
    {                                                                                              \
        NULL, 0, CZ_F32, false                                                                     \
    }
static const spec plain[] = {{"a", 33, CZ_F32, false},    {"b", 0, CZ_F32, false},
                             {"c", 40, CZ_F32, false},    {"half", 5, CZ_F16, true},
                             {"brain", 7, CZ_BF16, true}, NONE};
#define DEFAULTS CZ_LOAD_OPTIONS_INIT
#define WITH(step, missing, back, permissive, convert)                                             \
    {                                                                                              \
        sizeof(cz_load_options), step, missing, back, permissive, convert                          \
    }

EACH_TEST(set_up, tear_down)

TEST(an_unsharded_optimizer)
{
    travel(&(passage){plain, plain, UNSHARDED, UNSHARDED, NULL, NULL, DEFAULTS, .steps = true});
}

TEST(a_model_alone)
{
    travel(
        &(passage){plain, plain, NO_OPTIMIZER, NO_OPTIMIZER, NULL, NULL, DEFAULTS, .steps = true});
}

TEST(between_sharded_and_unsharded)
{
    travel(&(passage){plain, plain, UNSHARDED, SHARDED, "010", "010", DEFAULTS, .steps = true});
    travel(&(passage){plain, plain, SHARDED, UNSHARDED, NULL, NULL, DEFAULTS, .steps = true});
}

TEST(with_an_optimizer_or_without)
{
    travel(&(passage){plain, plain, SHARDED, NO_OPTIMIZER, NULL, NULL, DEFAULTS,
                      .wanted = CZ_ERR_ARGUMENT, .sentence = "rule"});
    travel(&(passage){plain, plain, NO_OPTIMIZER, SHARDED, NULL, NULL, WITH(-1, 0, 0, 1, 0),
                      .sentence = "rule"});
}

/* ---- types ---- */

static const spec doubles[] = {{"a", 33, CZ_F64, false},   {"b", 0, CZ_F64, false},
                               {"c", 40, CZ_F64, false},   {"half", 5, CZ_F32, true},
                               {"brain", 7, CZ_F64, true}, NONE};

static cz_status are_rounded(const any *a, const any *there)
{
    for (int k = 0; k < 3; k++)
        for (int64_t i = 0; i < a->specs[k].count; i++)
            if (cz_test_load(a->values[k], a->specs[k].dtype, i) !=
                (double)(float)cz_test_load(there->values[k], there->specs[k].dtype, i))
                return cz_fail(CZ_ERR_STATE, "element %d of %s", (int)i, a->specs[k].name);
    return CZ_OK;
}

TEST(types)
{
    for (optimizer kind = NO_OPTIMIZER; kind <= SHARDED; kind++) {
        travel(&(passage){plain, doubles, kind, kind, NULL, NULL, DEFAULTS, .check = are_rounded});
        travel(&(passage){doubles, plain, kind, kind, NULL, NULL, WITH(-1, 0, 0, 0, 1),
                          .check = are_rounded});
        travel(&(passage){doubles, plain, kind, kind, NULL, NULL, DEFAULTS,
                          .wanted = CZ_ERR_ARGUMENT, .sentence = "option convert"});
    }
}

/* ---- parameters that are not the same ---- */

static const spec others[] = {{"new", 9, CZ_F32, false},
                              {"c", 40, CZ_F32, false},
                              {"a", 34, CZ_F32, false},
                              {"brain", 7, CZ_BF16, true},
                              NONE};

/* c and brain are loaded; the others are as they were after one step from seed 77. */
static cz_status some_is_loaded(const any *a, const any *there)
{
    CZ_TRY(want(memcmp(a->values[1], there->values[2], sizeof a->values[1]) == 0, "c"));
    CZ_TRY(want(memcmp(a->values[3], there->values[4], sizeof a->values[3]) == 0, "brain"));
    CZ_TRY(want(fabs(cz_test_load(a->values[0], CZ_F32, 0) - 77) < 2, "new stays"));
    return want(fabs(cz_test_load(a->values[2], CZ_F32, 0) - 79) < 2, "a stays");
}

TEST(other_parameters)
{
    for (optimizer kind = NO_OPTIMIZER; kind <= SHARDED; kind++) {
        travel(&(passage){plain, others, kind, kind, NULL, NULL, DEFAULTS,
                          .wanted = CZ_ERR_ARGUMENT,
                          .sentence = "'new' f32 of shape [9] is not in the checkpoint"});
        travel(&(passage){plain, others, kind, kind, NULL, NULL, WITH(-1, 0, 0, 1, 0),
                          .sentence = "'half' f16 of shape [5] of the checkpoint is not here",
                          .check = some_is_loaded});
    }
    travel(&(passage){plain, others, SHARDED, SHARDED, "000", "011", WITH(-1, 0, 0, 1, 0),
                      .sentence = "[34]", .check = some_is_loaded});
}

/* by name, whatever the order. */
static const spec turned[] = {{"c", 40, CZ_F32, false}, {"brain", 7, CZ_BF16, true},
                              {"b", 0, CZ_F32, false},  {"half", 5, CZ_F16, true},
                              {"a", 33, CZ_F32, false}, NONE};

static cz_status is_turned(const any *a, const any *there)
{
    static const int at[] = {2, 4, 1, 3, 0};
    for (int k = 0; k < 5; k++)
        CZ_TRY(want(memcmp(a->values[k], there->values[at[k]], sizeof a->values[k]) == 0,
                    a->specs[k].name));
    return CZ_OK;
}

TEST(state_follows_names_whatever_the_order)
{
    for (optimizer kind = NO_OPTIMIZER; kind <= SHARDED; kind++)
        travel(&(passage){plain, turned, kind, kind, NULL, NULL, DEFAULTS, .check = is_turned});
}

TEST(groups)
{
    travel(&(passage){plain, plain, SHARDED, SHARDED, "010", "010", DEFAULTS, .steps = true});
    travel(&(passage){plain, plain, SHARDED, SHARDED, "010", "101", DEFAULTS, .steps = true});
    travel(&(passage){plain, plain, SHARDED, SHARDED, "010", "011", DEFAULTS,
                      .wanted = CZ_ERR_ARGUMENT, .sentence = "group"});
    travel(&(passage){plain, plain, SHARDED, SHARDED, "010", "000", WITH(-1, 0, 0, 1, 0),
                      .wanted = CZ_OK});
}
