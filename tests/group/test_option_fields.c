/* SPDX-License-Identifier: MIT */
/* Every field of every struct of options, as the library's tables have them: another value on one
 * rank is refused by all of them with one sentence that has the field's name, or the table says
 * that it is that rank's own business, and then it changes no bit; what is out of its range is
 * refused. The tables cover all bytes of each struct, and the list all structs of the public
 * headers, so that no new one can be forgotten. */
#include <glob.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/options.h"
#include "czero/czero.h"
#include "group/group_test.h"
#include "support/joinables.h"
#include "support/training.h"
#include "tensor/model.h"
#include "ddp/ddp.h"

enum { PARAMS = 3, WORLD = 3, ODD = 1, ELEMENTS = 4 * 16 + 200 + 21 };
static const int64_t sizes[PARAMS] = {4 * 16, 200, 21};
static const int64_t rows[PARAMS] = {4, 10, 0};
static const cz_test_training layout = {
    .param_count = PARAMS, .sizes = sizes, .rows = rows, .dtype = CZ_F32};

typedef enum role {
    BY_TABLE,
    COMPARED, /* CZ_ERR_MISMATCH */
    REFUSED,  /* one of its own checks, for all */
    LOCAL     /* the same bits */
} role;

/* The other value of a field; flags and reserved fields need none. */
typedef struct change {
    const char *name;
    const void *to;   /* its bytes */
    const char *word; /* in the sentence; NULL: `name` */
    const void *base; /* what all ranks have else; NULL: the defaults */
    role role;
} change;

/* What one rank gives, and what comes of it. */
typedef struct given {
    const void *options;
    float *result; /* ELEMENTS */
} given;

typedef struct options_struct {
    const cz__option_table *table;
    const void *defaults;
    cz_status (*use)(cz_group *group, const void *options, float *result);
    const change *changes; /* the last one has no name */
} options_struct;

#define CHANGE(member, ...)                                                                        \
    {                                                                                              \
        .name = #member, .to = __VA_ARGS__                                                         \
    }
#define I32(value) (&(int32_t){value})
#define I64(value) (&(int64_t){value})
#define U64(value) (&(size_t){value})
#define REAL(value) (&(double){value})
#define POINTER(value) (&(void *){value})

/* ---- what is done with them ---- */

typedef struct rank_state {
    cz_group *group;
    cz_test_memory memory;
    cz_parts *parts;
    cz_ddp *ddp;
    cz_zero *zero;
} rank_state;

static const cz_hyper rate[] = {{"lr", 0.25}, {0}};

static void fill_gradients(const rank_state *s, int step)
{
    for (int p = 0; p < PARAMS; p++)
        for (int64_t i = 0; i < sizes[p]; i++)
            cz_test_store(s->memory.grads[p], CZ_F32, i,
                          cz_test_gradient(cz_group_rank(s->group), step, i));
}

static void take_values(const rank_state *s, float *result)
{
    for (int p = 0; p < PARAMS; p++, result += sizes[p - 1])
        memcpy(result, cz__model_value(s->memory.model, p)->data,
               (size_t)sizes[p] * sizeof *result);
}

static cz_status pass(rank_state *s, int step)
{
    CZ_TRY(cz_ddp_begin(s->ddp, true));
    fill_gradients(s, step);
    for (int p = 0; p < PARAMS; p++)
        CZ_TRY(cz_ddp_mark_ready(s->ddp, p));
    return cz_ddp_finish(s->ddp);
}

static cz_status train(rank_state *s, const cz_step_options *options, float *result)
{
    for (int step = 0; step < 2; step++) {
        if (s->ddp)
            CZ_TRY(pass(s, step));
        else
            fill_gradients(s, step);
        if (s->parts && !s->ddp)
            CZ_TRY(cz_parts_add(s->parts));
        if (s->zero)
            CZ_TRY(cz_zero_step(s->zero, options, NULL));
    }
    for (int p = 0; p < PARAMS && !s->zero; p++)
        memcpy(s->memory.values[p], s->memory.grads[p], (size_t)sizes[p] * sizeof *result);
    take_values(s, result);
    return CZ_OK;
}

static void clear(rank_state *s)
{
    cz_zero_destroy(&s->zero);
    cz_ddp_destroy(&s->ddp);
    cz_parts_destroy(&s->parts);
    cz_test_memory_destroy(&s->memory);
}

/* Any address stands for the rank's own, a part for each rank. */
static cz_status have_parts(rank_state *s, cz_parts **option)
{
    const cz_parts_options each = {sizeof each, WORLD, 0};
    if (!*option)
        return CZ_OK;
    CZ_TRY(cz_parts_create(&s->parts, s->group, s->memory.model, &each));
    *option = s->parts;
    return CZ_OK;
}

static cz_status use_parts(cz_group *group, const void *options, float *result)
{
    rank_state s = {.group = group};
    CZ_TRY(cz_test_memory_create(&s.memory, &layout));
    const cz_status status = cz_parts_create(&s.parts, group, s.memory.model, options);
    clear(&s);
    return status;
}

static cz_status use_ddp(cz_group *group, const void *options, float *result)
{
    cz_ddp_options own = *(const cz_ddp_options *)options;
    rank_state s = {.group = group};
    CZ_TRY(cz_test_memory_create(&s.memory, &layout));
    cz_status status = have_parts(&s, &own.parts);
    THEN(cz_ddp_create(&s.ddp, group, s.memory.model, &own));
    THEN(train(&s, NULL, result));
    clear(&s);
    return status;
}

/* Any address stands for the rank's own ddp. */
static cz_status use_zero(cz_group *group, const void *options, float *result)
{
    cz_zero_options own = *(const cz_zero_options *)options;
    rank_state s = {.group = group};
    CZ_TRY(cz_test_memory_create(&s.memory, &layout));
    cz_status status = have_parts(&s, &own.parts);
    if (own.ddp || own.overlap)
        status = cz_ddp_create(&s.ddp, group, s.memory.model, NULL);
    own.ddp = own.ddp ? s.ddp : NULL;
    THEN(cz_zero_create(&s.zero, group, s.memory.model, cz_rule_sgd(), rate, &own));
    THEN(train(&s, NULL, result));
    clear(&s);
    return status;
}

static cz_status use_group(cz_group *group, const void *options, float *result)
{
    cz_zero_options own = CZ_ZERO_OPTIONS_INIT;
    own.groups = options;
    own.group_count = 1;
    return use_zero(group, &own, result);
}

static cz_status use_average(cz_group *group, const void *options, float *result)
{
    cz_zero_options own = CZ_ZERO_OPTIONS_INIT;
    own.average = options;
    return use_zero(group, &own, result);
}

static cz_status use_hyper(cz_group *group, const void *options, float *result)
{
    const cz_hyper hypers[] = {*(const cz_hyper *)options, {0}};
    const cz_param_group own = {sizeof own, (const int64_t[]){0, 1, 2}, PARAMS, hypers};
    return use_group(group, &own, result);
}

static cz_status use_step(cz_group *group, const void *options, float *result)
{
    cz_step_options own = *(const cz_step_options *)options;
    rank_state s = {.group = group};
    CZ_TRY(cz_test_memory_create(&s.memory, &layout));
    if (own.gradients)
        own.gradients = s.memory.grads;
    cz_status status = cz_zero_create(&s.zero, group, s.memory.model, cz_rule_sgd(), rate, NULL);
    THEN(train(&s, &own, result));
    clear(&s);
    return status;
}

static cz_status use_averager(cz_group *group, const void *options, float *result)
{
    cz_averager *averager = NULL;
    rank_state s = {.group = group};
    CZ_TRY(cz_test_memory_create(&s.memory, &layout));
    cz_status status = cz_averager_create_periodic(&averager, group, s.memory.model, 2, options);
    cz_averager_destroy(&averager);
    clear(&s);
    return status;
}

static cz_status use_level(cz_group *group, const void *options, float *result)
{
    cz_averager *averager = NULL;
    rank_state s = {.group = group};
    const cz_averager_level levels[] = {
        *(const cz_averager_level *)options,
        {.size = sizeof(cz_averager_level), .period = 8, .ranks = WORLD}};
    CZ_TRY(cz_test_memory_create(&s.memory, &layout));
    cz_status status =
        cz_averager_create_hierarchical(&averager, group, s.memory.model, levels, 2, NULL);
    cz_averager_destroy(&averager);
    clear(&s);
    return status;
}

static cz_status join_with(rank_state *s, const cz_joinable *joinable,
                           const cz_join_options *options, float *result)
{
    cz_join *join = NULL;
    CZ_TRY(cz_join_begin(&join, s->group, joinable, 1, options));
    return cz_join_end(&join, train(s, NULL, result));
}

static cz_status use_join(cz_group *group, const void *options, float *result)
{
    rank_state s = {.group = group};
    CZ_TRY(cz_test_memory_create(&s.memory, &layout));
    cz_status status = cz_ddp_create(&s.ddp, group, s.memory.model, NULL);
    const cz_joinable joinable = cz_test_join_ddp(s.ddp);
    THEN(join_with(&s, &joinable, options, result));
    clear(&s);
    return status;
}

static cz_status nothing_to_do(void *object, cz_join *join)
{
    return CZ_OK;
}

static cz_status nothing_to_enter(void *object, cz_join *join, int number)
{
    return CZ_OK;
}

static void nothing_to_abandon(void *object, cz_status status)
{
}

static cz_status use_joinable(cz_group *group, const void *options, float *result)
{
    cz_join *join = NULL;
    CZ_TRY(cz_join_begin(&join, group, options, 1, NULL));
    return cz_join_end(&join, CZ_OK);
}

/* A pass with that hook; *made says whether its state can be made. */
static cz_status train_with_hook(cz_group *group, const char *name, void *state, float *result,
                                 rank_state *s)
{
    *s = (rank_state){.group = group};
    CZ_TRY(cz_test_memory_create(&s->memory, &layout));
    CZ_TRY(cz_ddp_create(&s->ddp, group, s->memory.model, NULL));
    CZ_TRY(cz_ddp_register_hook_by_name(s->ddp, name, state));
    return train(s, NULL, result);
}

static cz_status use_powersgd(cz_group *group, const void *options, float *result)
{
    cz_test_memory like;
    cz_powersgd *powersgd = NULL;
    rank_state s = {0};
    CZ_TRY(cz_test_memory_create(&like, &layout));
    cz_status status = cz_powersgd_create(&powersgd, like.model, options);
    THEN(train_with_hook(group, "powersgd", powersgd, result, &s));
    clear(&s);
    cz_powersgd_destroy(&powersgd);
    cz_test_memory_destroy(&like);
    return status;
}

static cz_status use_post_local_sgd(cz_group *group, const void *options, float *result)
{
    cz_post_local_sgd own = *(const cz_post_local_sgd *)options;
    rank_state s = {0};
    if (own.subgroup)
        own.subgroup = group;
    const cz_status status = train_with_hook(group, "post_local_sgd", &own, result, &s);
    clear(&s);
    return status;
}

static cz_status use_mixed_precision(cz_group *group, const void *options, float *result)
{
    cz_mixed_precision own = *(const cz_mixed_precision *)options;
    rank_state s = {0};
    const cz_status status = train_with_hook(group, "mixed_precision", &own, result, &s);
    clear(&s);
    return status;
}

static cz_status mean(void *state, cz_bucket *bucket)
{
    return cz_all_reduce(cz__bucket_group(bucket), cz__bucket_buffer(bucket),
                         cz__bucket_count(bucket), cz__bucket_dtype(bucket), CZ_AVERAGE, NULL);
}

static cz_status same_mean(void *state, cz_bucket *bucket)
{
    return mean(state, bucket);
}

static void release_nothing(void *state)
{
}

static cz_status use_hook(cz_group *group, const void *options, float *result)
{
    rank_state s = {.group = group};
    CZ_TRY(cz_test_memory_create(&s.memory, &layout));
    cz_status status = cz_ddp_create(&s.ddp, group, s.memory.model, NULL);
    THEN(cz_ddp_register_hook(s.ddp, options));
    THEN(train(&s, NULL, result));
    clear(&s);
    return status;
}

/* ---- checkpoints: addresses stand for objects of the rank's own ---- */

static const char *folder_of(const void *what)
{
    static _Thread_local char folder[128];
    snprintf(folder, sizeof folder, "%s/option-fields-%d%s", CZ_TEST_BINARY_DIR, (int)getpid(),
             (const char *)what);
    return folder;
}

static void remove_folders(void)
{
    char command[256];
    snprintf(command, sizeof command, "rm -rf '%s/option-fields-%d'*", CZ_TEST_BINARY_DIR,
             (int)getpid());
    if (system(command) != 0)
        fprintf(stderr, "%s failed\n", command);
}

typedef struct saved {
    rank_state s, other;
    cz_optim *optim;
    cz_parts *parts;
    cz_checkpoint *checkpoint;
    cz_state_dict *dict;
} saved;

static cz_status saved_create(saved *c, cz_group *group, const cz_checkpoint_options *options)
{
    static const int64_t fewer[PARAMS] = {4 * 16, 200, 20};
    const cz_test_training less = {
        .param_count = PARAMS, .sizes = fewer, .rows = rows, .dtype = CZ_F32};
    cz_checkpoint_options own = *options;
    *c = (saved){.s.group = group};
    CZ_TRY(cz_test_memory_create(&c->s.memory, &layout));
    CZ_TRY(cz_test_memory_create(&c->other.memory, &less));
    CZ_TRY(cz_zero_create(&c->s.zero, group, c->s.memory.model, cz_rule_sgd(), rate, NULL));
    CZ_TRY(cz_optim_create(&c->optim, c->s.memory.model, cz_rule_sgd(), rate, NULL));
    own.model = own.zero ? NULL : own.model ? c->other.memory.model : c->s.memory.model;
    own.zero = own.zero ? c->s.zero : NULL;
    own.optim = own.optim ? c->optim : NULL;
    if (own.parts)
        CZ_TRY(cz_parts_create(&c->parts, group, c->s.memory.model,
                               &(cz_parts_options){sizeof(cz_parts_options), 8, 0}));
    own.parts = c->parts;
    CZ_TRY(cz_state_dict_create(&c->dict));
    CZ_TRY(cz_state_dict_set_integer(c->dict, "epoch", 3));
    return cz_checkpoint_create(&c->checkpoint, group, folder_of(""), &own);
}

static void saved_clear(saved *c)
{
    cz_checkpoint_destroy(&c->checkpoint);
    cz_parts_destroy(&c->parts);
    cz_state_dict_destroy(&c->dict);
    cz_optim_destroy(&c->optim);
    cz_test_memory_destroy(&c->other.memory);
    clear(&c->s);
}

static const cz_checkpoint_options plain = CZ_CHECKPOINT_OPTIONS_INIT;

static cz_status use_checkpoint(cz_group *group, const void *options, float *result)
{
    saved c;
    const cz_status status = saved_create(&c, group, options);
    saved_clear(&c);
    return status;
}

static cz_status use_save(cz_group *group, const void *options, float *result)
{
    cz_save_options own = *(const cz_save_options *)options;
    saved c;
    cz_status status = saved_create(&c, group, &plain);
    own.common = own.common ? c.dict : NULL;
    own.own = own.own ? c.dict : NULL;
    THEN(cz_checkpoint_save(c.checkpoint, &own));
    saved_clear(&c);
    return status;
}

static cz_status use_load(cz_group *group, const void *options, float *result)
{
    saved c;
    cz_status status = saved_create(&c, group, &plain);
    THEN(cz_checkpoint_load(c.checkpoint, options, NULL));
    saved_clear(&c);
    return status;
}

static cz_status use_export(cz_group *group, const void *options, float *result)
{
    cz_export_options own = *(const cz_export_options *)options;
    saved c;
    cz_status status = saved_create(&c, group, &plain);
    own.common = own.common ? c.dict : NULL;
    THEN(cz_checkpoint_export(c.checkpoint, folder_of(".safetensors"), &own));
    saved_clear(&c);
    return status;
}

static cz_status use_replicas(cz_group *group, const void *options, float *result)
{
    rank_state s = {.group = group};
    CZ_TRY(cz_test_memory_create(&s.memory, &layout));
    const cz_status status = cz_model_check_replicas(group, s.memory.model, options);
    clear(&s);
    return status;
}

/* ---- the lists ---- */

static const cz_ddp_options ddp_defaults = CZ_DDP_OPTIONS_INIT;
static const change ddp_changes[] = {CHANGE(bucket_bytes, U64(512)),
                                     CHANGE(first_bucket_bytes, U64(64)),
                                     CHANGE(parts, POINTER((void *)rate)),
                                     {0}};

static const cz_parts_options parts_defaults = {sizeof parts_defaults, WORLD, 0};
static const change parts_changes[] = {CHANGE(count, I32(WORLD + 1)), {0}};

static void be_told(int64_t param, void *value, void *context)
{
}

static void be_told_too(int64_t param, void *value, void *context)
{
}

static const cz_hyper other_rate[] = {{"lr", 0.5}, {0}};
static const int64_t first_two[] = {0, 1}, last_one[] = {2}, all_three[] = {0, 1, 2};
static const cz_param_group two[] = {{sizeof *two, first_two, 2, NULL},
                                     {sizeof *two, last_one, 1, NULL}};
static const cz_param_group two_others[] = {{sizeof *two, first_two, 2, other_rate},
                                            {sizeof *two, last_one, 1, NULL}};
static const int owners[] = {0, 1, 0}, other_owners[] = {0, 1, 1};
static const cz_zero_options zero_defaults = CZ_ZERO_OPTIONS_INIT;
static const cz_zero_options in_two = {.size = sizeof in_two, .groups = two, .group_count = 2};
static const cz_zero_options to_owners = {.size = sizeof to_owners,
                                          .partition = CZ_PARTITION_GIVEN,
                                          .owners = owners,
                                          .owner_count = PARAMS};
static const cz_zero_options viewed = {.size = sizeof viewed, .moved = be_told};
static const cz_zero_options moving = {
    .size = sizeof moving, .parameters_as_bucket_view = 1, .moved = be_told};
#define SOME_DDP ((cz_ddp *)(void *)&zero_defaults)
static const cz_zero_options on_ddp = {.size = sizeof on_ddp, .ddp = SOME_DDP};
static const cz_zero_options inside = {
    .size = sizeof inside, .ddp = SOME_DDP, .overlap = CZ_OVERLAP_INTERLEAVED};
static const cz_zero_options in_codes = {.size = sizeof in_codes, .state_dtype = CZ_U8};
static const cz_moving_average average_defaults = CZ_MOVING_AVERAGE_INIT;
static const change average_changes[] = {
    CHANGE(kind, I32(CZ_MOVING_AVERAGE_MEAN), "average of parameter group 0"),
    CHANGE(decay, REAL(0.5), "average_decay of parameter group 0"),
    CHANGE(start, I64(3), "average.start of parameter group 0"),
    CHANGE(every, I64(2), "average.every of parameter group 0"),
    {0}};

static const change zero_changes[] = {
    CHANGE(partition, I32(CZ_PARTITION_GREEDY)),
    CHANGE(gradients, I32(CZ_GRADIENTS_REDUCED)),
    CHANGE(groups, POINTER((void *)two_others), "lr of parameter group 0", &in_two),
    CHANGE(group_count, I64(1), "the number of parameter groups", &in_two),
    CHANGE(owners, POINTER((void *)other_owners), "the owner of parameter 2", &to_owners),
    CHANGE(owner_count, I64(2), NULL, &to_owners, REFUSED),
    CHANGE(parameters_as_bucket_view, I32(1), NULL, &viewed),
    CHANGE(overlap, I32(CZ_OVERLAP_STEP), NULL, &on_ddp),
    CHANGE(moved, (&(void (*)(int64_t param, void *value, void *context)){be_told_too}), NULL,
           &moving),
    CHANGE(moved_context, POINTER((void *)two), NULL, &moving),
    CHANGE(ddp, POINTER(SOME_DDP)),
    CHANGE(overlap_gather, I32(1), NULL, &inside),
    CHANGE(threads, I32(2)),
    CHANGE(master, I32(CZ_MASTER_NONE), "master of parameter group 0"),
    CHANGE(state_dtype, I32(CZ_BF16), "state_dtype of parameter group 0"),
    CHANGE(seed, (&(uint64_t){7}), "the seed of roundings"),
    CHANGE(average, POINTER((void *)&average_defaults), "average of parameter group 0"),
    CHANGE(u8_from, I64(5000), "u8_from of parameter group 0", &in_codes),
    CHANGE(parts, POINTER((void *)rate)),
    {0}};

/* For a kernel that is never called. */
static unsigned no_slots(const double *values)
{
    return 0;
}

static void prepare_nothing(const cz_rule_step *step, double *coefficients, unsigned *flags)
{
}

static const cz_rule other_rule = {.abi = CZ_RULE_ABI,
                                   .size = sizeof other_rule,
                                   .name = "lion",
                                   .slots_used = no_slots,
                                   .prepare = prepare_nothing};
static const cz_param_group group_defaults = {sizeof group_defaults, all_three, PARAMS, NULL};
static const int64_t turned[] = {1, 0, 2};
static const change group_changes[] = {
    CHANGE(params, POINTER((void *)turned), "a member"),
    CHANGE(param_count, I64(2), "size of parameter group 0"),
    CHANGE(hypers, POINTER((void *)other_rate), "lr"),
    CHANGE(master, I32(CZ_MASTER_NONE), "master of parameter group 0"),
    CHANGE(state_dtype, I32(CZ_BF16), "state_dtype of parameter group 0"),
    CHANGE(rule, POINTER((void *)&other_rule), "the rule of parameter group 0"),
    CHANGE(granule, I64(256), "granule of parameter group 0"),
    CHANGE(average, POINTER((void *)&average_defaults), "average of parameter group 0"),
    {0}};

static const cz_hyper hyper_defaults = {"momentum", 0};
static const change hyper_changes[] = {
    CHANGE(name, POINTER((void *)"weight_decay"), "momentum", (&(cz_hyper){"momentum", 0.5})),
    CHANGE(value, REAL(0.5), "momentum"),
    {0}};

static cz_status no_loss(double *loss, void *context)
{
    *loss = 1;
    return CZ_OK;
}

static const cz_step_options step_defaults = CZ_STEP_OPTIONS_INIT;
static const cz_step_options closed = {.size = sizeof closed, .closure = no_loss};
static const cz_step_options of_its_own = {
    .size = sizeof of_its_own, .gradients = POINTER(NULL), .gradient_count = PARAMS};
static cz_loss_scale some_scale = CZ_LOSS_SCALE_INIT;
static const change step_changes[] = {
    CHANGE(closure, (&(cz_status(*)(double *loss, void *context)){no_loss})),
    CHANGE(closure_context, POINTER((void *)two), NULL, &closed),
    CHANGE(argument, POINTER((void *)two)), /* the rule's, which takes none */
    CHANGE(gradients, POINTER((void *)two), NULL, &of_its_own),
    CHANGE(gradient_count, I64(1), NULL, &of_its_own, REFUSED),
    CHANGE(max_norm, REAL(0.5)),
    CHANGE(loss_scale, POINTER(&some_scale), "scale of loss_scale"),
    {0}};

static const cz_averager_options averager_defaults = CZ_AVERAGER_OPTIONS_INIT;
static const change averager_changes[] = {CHANGE(warmup_steps, I64(3)), {0}};

static const cz_averager_level level_defaults = {sizeof(cz_averager_level), 4, 1, 0};
static const change level_changes[] = {
    CHANGE(period, I64(2)), CHANGE(ranks, I32(WORLD), "the number of ranks"), {0}};

static const cz_step_options clipped = {.size = sizeof clipped, .max_norm = 1};
static const cz_join_options join_defaults = CZ_JOIN_OPTIONS_INIT;
static const change join_changes[] = {
    CHANGE(divide, I32(CZ_JOIN_BY_ACTIVE)),
    CHANGE(step, POINTER((void *)&clipped), "max_norm of option step"),
    {0}};

static const cz_joinable joinable_defaults = {.size = sizeof joinable_defaults, .name = "ours"};
static const change joinable_changes[] = {
    CHANGE(name, POINTER((void *)"theirs"), "the name of joinable 0"),
    CHANGE(object, POINTER((void *)two)),
    CHANGE(enter, (&(cz_status(*)(void *object, cz_join *join, int number)){nothing_to_enter})),
    CHANGE(shadow, (&(cz_status(*)(void *object, cz_join *join)){nothing_to_do})),
    CHANGE(finish, (&(cz_status(*)(void *object, cz_join *join)){nothing_to_do})),
    CHANGE(abandon, (&(void (*)(void *object, cz_status status)){nothing_to_abandon})),
    {0}};

/* The result has the same bits whoever multiplies, if the numbers do. */
static void multiply(void *context, bool transposed, int64_t r, int64_t c, int32_t columns,
                     const float *matrix, const float *thin, float *product)
{
    const int64_t length = transposed ? r : c, count = transposed ? c : r;
    for (int32_t k = 0; k < columns; k++)
        for (int64_t i = 0; i < count; i++) {
            float sum = 0;
            for (int64_t j = 0; j < length; j++)
                sum += (transposed ? matrix[j * c + i] : matrix[i * c + j]) * thin[k * length + j];
            product[k * count + i] = sum;
        }
}

static const cz_powersgd_options powersgd_defaults = {.size = sizeof powersgd_defaults,
                                                      .start_iter = -1};
static const cz_powersgd_options multiplied = {
    .size = sizeof multiplied, .start_iter = -1, .gemm = multiply};
static const change powersgd_changes[] = {
    CHANGE(rank, I32(2)),
    CHANGE(start_iter, I64(1)),
    CHANGE(min_compression_rate, REAL(1.5)),
    CHANGE(epsilon, REAL(0.125)),
    CHANGE(seed, (&(uint32_t){7})),
    CHANGE(log_every, I64(5)),
    CHANGE(gemm, (&(cz_powersgd_gemm){multiply}), NULL, &multiplied),
    CHANGE(gemm_context, POINTER((void *)two), NULL, &multiplied),
    {0}};

static const cz_post_local_sgd post_local_defaults = CZ_POST_LOCAL_SGD_INIT;
static const change post_local_changes[] = {
    CHANGE(subgroup, POINTER((void *)two), "sub-groups"), CHANGE(start_iter, I64(5)), {0}};

static cz_status see_ready(void *context, int64_t param)
{
    return CZ_OK;
}

static const cz_tensor nowhere[PARAMS];
static const cz_mixed_precision mixed_defaults = CZ_MIXED_PRECISION_INIT;
static const change mixed_changes[] = {
    CHANGE(reduce_dtype, I32(CZ_F64)),
    CHANGE(full, POINTER((void *)nowhere)),
    CHANGE(ready, (&(cz_status(*)(void *context, int64_t param)){see_ready})),
    CHANGE(context, POINTER((void *)two)),
    {0}};

static const cz_hook hook_defaults = {.size = sizeof hook_defaults, .name = "mean", .run = mean};
static const change hook_changes[] = {
    CHANGE(name, POINTER((void *)"average"), "its hook"),
    CHANGE(result, I32(CZ_HOOK_SLICE), "what is reduced of its hook"),
    CHANGE(run, (&(cz_status(*)(void *state, cz_bucket *bucket)){same_mean})),
    CHANGE(state, POINTER((void *)two)),
    CHANGE(release, (&(void (*)(void *state)){release_nothing})),
    {0}};

static const change checkpoint_changes[] = {CHANGE(model, POINTER((void *)two), "parameter 2"),
                                            CHANGE(zero, POINTER((void *)two), "optimizer"),
                                            CHANGE(optim, POINTER((void *)two), "optimizer"),
                                            CHANGE(keep, I32(5)),
                                            CHANGE(parts, POINTER((void *)two), "parts"),
                                            {0}};

static const cz_save_options save_defaults = CZ_SAVE_OPTIONS_INIT;
static const change save_changes[] = {CHANGE(step, I64(5)),
                                      CHANGE(common, POINTER((void *)two), "common"),
                                      CHANGE(own, POINTER((void *)two)),
                                      {0}};

static const cz_load_options load_defaults = CZ_LOAD_OPTIONS_INIT;
static const change load_changes[] = {CHANGE(step, I64(0)), {0}};

static const cz_export_options export_defaults = CZ_EXPORT_OPTIONS_INIT;
static const change export_changes[] = {CHANGE(step, I64(5)),
                                        CHANGE(common, POINTER((void *)two), "common"),
                                        CHANGE(max_file_bytes, (&(uint64_t){1 << 20})),
                                        {0}};

static const cz_replicas_options replicas_defaults = CZ_REPLICAS_OPTIONS_INIT;
static const cz__option_table hypers =
    CZ__OPTION_TABLE(cz_hyper, CZ__OPTION(cz_hyper, name, CZ__COMPARED, CZ__ANY), /* and no size */
                     CZ__OPTION(cz_hyper, value, CZ__COMPARED, CZ__ANY));
static const change none[] = {{0}};

static const options_struct structs[] = {
    {&cz__parts_options, &parts_defaults, use_parts, parts_changes},
    {&cz__ddp_options, &ddp_defaults, use_ddp, ddp_changes},
    {&cz__zero_options, &zero_defaults, use_zero, zero_changes},
    {&cz__param_group_options, &group_defaults, use_group, group_changes},
    {&cz__moving_average_options, &average_defaults, use_average, average_changes},
    {&hypers, &hyper_defaults, use_hyper, hyper_changes},
    {&cz__step_options, &step_defaults, use_step, step_changes},
    {&cz__replicas_options, &replicas_defaults, use_replicas, none},
    {&cz__averager_options, &averager_defaults, use_averager, averager_changes},
    {&cz__averager_level_options, &level_defaults, use_level, level_changes},
    {&cz__join_options, &join_defaults, use_join, join_changes},
    {&cz__joinable_options, &joinable_defaults, use_joinable, joinable_changes},
    {&cz__powersgd_options, &powersgd_defaults, use_powersgd, powersgd_changes},
    {&cz__post_local_sgd_options, &post_local_defaults, use_post_local_sgd, post_local_changes},
    {&cz__mixed_precision_options, &mixed_defaults, use_mixed_precision, mixed_changes},
    {&cz__hook_options, &hook_defaults, use_hook, hook_changes},
    {&cz__checkpoint_options, &plain, use_checkpoint, checkpoint_changes},
    {&cz__save_options, &save_defaults, use_save, save_changes},
    {&cz__load_options, &load_defaults, use_load, load_changes},
    {&cz__export_options, &export_defaults, use_export, export_changes},
};
enum { STRUCTS = sizeof structs / sizeof *structs };

/* Of what no other rank knows: objects of one rank, and calls of one. */
static const cz__option_table *const elsewhere[] = {
    &cz__group_options,       /* test_options_agree.c */
    &cz__launch_options,      /* one call makes all ranks, or each is a process: as the group's */
    &cz__operation_options,   /* labels: test_checked.c */
    &cz__optim_options,       /* unsharded: compared where it is used together, by what it has */
    &cz__optim_load_options,  /* the same */
    &cz__in_backward_options, /* who is told, and how a rank works */
    &cz__plan_options,        /* no ranks */
    &cz__verify_options,      /* the same */
    &cz__sampler_options,     /* each rank asks for its own */
    &cz__allocator_options,   /* each process has its own */
    &cz__sched_options,       /* rates, which steps compare */
    &cz__sched_one_cycle_options,
    &cz__sched_cyclic_options,
    &cz__sched_plateau_options};
enum { TABLES = STRUCTS + sizeof elsewhere / sizeof *elsewhere };

static const cz__option_table *table_of(int k)
{
    return k < STRUCTS ? structs[k].table : elsewhere[k - STRUCTS];
}

static size_t bytes_of(const cz__option *option)
{
    return option->type == CZ__OPTION_I32 || option->type == CZ__OPTION_U32 ? 4 : 8;
}

/* ---- the tests ---- */

/* Padding that is left: before an address. */
static bool is_padding(const cz__option_table *table, size_t begin, size_t end)
{
    return end - begin == 4 && ((table == &cz__join_options && begin == 20) ||
                                (table == &cz__mixed_precision_options && begin == 12) ||
                                (table == &cz__post_local_sgd_options && begin == 12) ||
                                (table == &cz__hook_options && begin == 20));
}

TEST(the_tables_cover_every_byte)
{
    for (int k = 0; k < TABLES; k++) {
        const cz__option_table *table = table_of(k);
        size_t end = table == &hypers ? 0 : sizeof(size_t);
        for (const cz__option *o = table->options; o->name; o++) {
            if (o->offset != end && !is_padding(table, end, o->offset))
                fail_msg("%s: bytes %zu to %zu before %s are in no field", table->name, end,
                         o->offset, o->name);
            end = o->offset + bytes_of(o);
        }
        if (end != table->bytes)
            fail_msg("%s: %zu of %zu bytes are in fields", table->name, end, table->bytes);
    }
}

static bool is_listed(const char *name)
{
    for (int k = 0; k < TABLES; k++)
        if (strcmp(table_of(k)->name, name) == 0)
            return true;
    return false;
}

TEST(every_options_struct_is_listed)
{
    glob_t headers;
    int found = 0;
    assert_int_equal(glob(CZ_TEST_GOLDEN_DIR "/../../include/czero/*.h", 0, NULL, &headers), 0);
    for (size_t h = 0; h < headers.gl_pathc; h++) {
        char line[512], name[128];
        FILE *file = fopen(headers.gl_pathv[h], "r");
        assert_non_null(file);
        while (fgets(line, sizeof line, file)) {
            const size_t length = sscanf(line, "} %127[a-z0-9_];", name) == 1 ? strlen(name) : 0;
            if (length < 8 || strcmp(name + length - 8, "_options") != 0)
                continue;
            found++;
            if (!is_listed(name))
                fail_msg("%s of %s is in no list", name, headers.gl_pathv[h]);
        }
        fclose(file);
    }
    globfree(&headers);
    assert_true(found >= 20);
}

/* Of this option alone, read as the library reads it. */
static void expect_refused(const cz__option_table *table, const cz__option *o, const void *value)
{
    const cz__option alone[] = {*o, {0}};
    const cz__option_table only = {table->name, table->bytes, alone};
    const bool is_reserved = o->range.lowest == 0 && o->range.highest == 0;
    _Alignas(16) unsigned char theirs[512] = {0}, ours[512];
    char wanted[CZ__RANGE_TEXT_BYTES];
    memcpy(theirs, &table->bytes, sizeof table->bytes);
    memcpy(theirs + o->offset, value, bytes_of(o));
    const cz_status status = cz__options_read(ours, &only, theirs, "here");
    cz__range_text(wanted, &o->range, o->type != CZ__OPTION_REAL);
    if (status != (is_reserved ? CZ_ERR_UNSUPPORTED : CZ_ERR_ARGUMENT) ||
        !strstr(cz_last_error(), o->name) || (!is_reserved && !strstr(cz_last_error(), wanted)))
        fail_msg("%s.%s: %s '%s'", table->name, o->name, cz_status_name(status), cz_last_error());
}

static void expect_refused_whole(const cz__option_table *table, const cz__option *o, int64_t value)
{
    const int32_t narrow = (int32_t)value;
    expect_refused(table, o, bytes_of(o) == 4 ? (const void *)&narrow : &value);
}

TEST(what_is_out_of_its_range_is_refused)
{
    int seen = 0;
    for (int k = 0; k < TABLES; k++)
        for (const cz__option *o = table_of(k)->options; o->name; o++) {
            if (o->type == CZ__OPTION_ADDRESS || o->range.lowest == INT64_MIN)
                continue;
            seen++;
            if (o->type == CZ__OPTION_REAL) {
                expect_refused(table_of(k), o, REAL(NAN));
                expect_refused(table_of(k), o, REAL((double)o->range.lowest - 0.5));
                if (!o->range.infinite)
                    expect_refused(table_of(k), o, REAL(INFINITY));
                continue;
            }
            if (o->type != CZ__OPTION_U64)
                expect_refused_whole(table_of(k), o, o->range.lowest - 1);
            if (o->range.highest != INT64_MAX)
                expect_refused_whole(table_of(k), o, o->range.highest + 1);
            if (o->range.multiple)
                expect_refused_whole(table_of(k), o, o->range.multiple + 1);
        }
    assert_true(seen >= 60);
}

typedef struct run {
    const options_struct *of;
    const unsigned char *even, *odd;
    float (*results)[ELEMENTS]; /* of each rank */
} run;

static cz_status use(cz_group *group, void *arg)
{
    const run *r = arg;
    const int rank = cz_group_rank(group);
    return r->of->use(group, rank == ODD ? r->odd : r->even, r->results[rank]);
}

/* What is said of it here, or 1 where that is another value. */
static change change_of(const options_struct *of, const cz__option *o)
{
    static const int32_t one = 1;
    change c = {.name = o->name};
    for (const change *at = of->changes; at->name; at++)
        if (strcmp(at->name, o->name) == 0)
            c = *at;
    if (!c.to && o->type == CZ__OPTION_I32 && o->range.lowest == 0 && o->range.highest <= 1)
        c.to = &one;
    if (!c.to)
        fail_msg("%s.%s: no other value of it is here", of->table->name, o->name);
    if (!c.role)
        c.role = o->scope == CZ__LOCAL ? LOCAL : COMPARED;
    if (o->range.lowest == 0 && o->range.highest == 0)
        c.role = REFUSED;
    return c;
}

static void check_option(const options_struct *of, const cz__option *o, int world)
{
    static float results[2][WORLD][ELEMENTS];
    _Alignas(16) unsigned char even[512], odd[512];
    outcome outcomes[WORLD];
    const cz_group_options quick = {.size = sizeof quick, .timeout_seconds = 30};
    const change c = change_of(of, o);
    const char *name = of->table->name, *word = c.word ? c.word : o->name;
    memcpy(even, c.base ? c.base : of->defaults, of->table->bytes);
    memcpy(odd, even, of->table->bytes);
    memcpy(odd + o->offset, c.to, bytes_of(o));
    run changed = {of, even, odd, results[1]}, same = {of, even, even, results[0]};
    memset(results, 0, sizeof results);
    run_ranks(world, &quick, use, &changed, outcomes);
    for (int r = 0; r < world && c.role != LOCAL; r++) {
        if ((c.role == COMPARED) != (outcomes[r].status == CZ_ERR_MISMATCH) ||
            outcomes[r].status == CZ_OK || outcomes[r].status == CZ_ERR_PEER)
            fail_msg("%s.%s on rank %d of %d: %s '%s'", name, o->name, r, world,
                     cz_status_name(outcomes[r].status), outcomes[r].sentence);
        if (!strstr(outcomes[r].sentence, word) ||
            strcmp(outcomes[r].sentence, outcomes[0].sentence) != 0)
            fail_msg("%s.%s: '%s' is not in '%s' on rank %d, or not what rank 0 has: '%s'", name,
                     o->name, word, outcomes[r].sentence, r, outcomes[0].sentence);
    }
    if (c.role != LOCAL)
        return;
    assert_all_ok(world, outcomes, "%s.%s", name, o->name);
    run_ranks(world, &quick, use, &same, outcomes);
    assert_memory_equal(results[0], results[1], sizeof results[0]);
}

TEST(another_value_on_one_rank_is_refused_or_harmless)
{
    for (int k = 0; k < STRUCTS; k++)
        for (const cz__option *o = structs[k].table->options; o->name; o++)
            for (int world = 2; world <= WORLD; world++)
                if (structs[k].changes != level_changes || world == WORLD)
                    check_option(&structs[k], o, world);
    remove_folders();
}
