/* SPDX-License-Identifier: MIT */
/* Every field of every struct of options that ranks give each for themselves: another value on one rank is refused by all
 * of them with one sentence that has the field's name, or it is said here to be that rank's own business, and
 * then changes no bit. The fields listed cover all bytes of each struct, and the list all structs of
 * the public headers, so that no new one can be forgotten. */
#include <glob.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

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
    SIZE,
    COMPARED, /* CZ_ERR_MISMATCH */
    REFUSED,  /* one of its own checks, for all */
    LOCAL     /* the same bits */
} role;

typedef struct field {
    const char *name;
    size_t offset, bytes;
    role role;
    const void *changed; /* its bytes */
    const char *word;    /* in the sentence; NULL: `name` */
    const void *base;    /* what all ranks have else; NULL: the defaults */
} field;

/* What one rank gives, and what comes of it. */
typedef struct given {
    const void *options;
    float *result; /* ELEMENTS */
} given;

typedef struct options_struct {
    const char *name;
    size_t bytes;
    const void *defaults;
    cz_status (*use)(cz_group *group, const void *options, float *result);
    const field *fields; /* the last one has no name */
} options_struct;

#define FIELD(type, member, of_it, ...)                                                            \
    {                                                                                              \
        .name = #member, .offset = offsetof(type, member), .bytes = sizeof(((type *)0)->member),   \
        .role = of_it, __VA_ARGS__                                                                 \
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
    cz_test_memory_destroy(&s->memory);
}

static cz_status use_ddp(cz_group *group, const void *options, float *result)
{
    rank_state s = {.group = group};
    CZ_TRY(cz_test_memory_create(&s.memory, &layout));
    cz_status status = cz_ddp_create(&s.ddp, group, s.memory.model, options);
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
    cz_status status = CZ_OK;
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
    cz_post_local_sgd_options own = *(const cz_post_local_sgd_options *)options;
    cz_post_local_sgd *state = NULL;
    rank_state s = {0};
    if (own.subgroup)
        own.subgroup = group;
    cz_status status = cz_post_local_sgd_create(&state, group, &own);
    THEN(train_with_hook(group, "post_local_sgd", state, result, &s));
    clear(&s);
    cz_post_local_sgd_destroy(&state);
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
    CZ_TRY(cz_state_dict_create(&c->dict));
    CZ_TRY(cz_state_dict_set_integer(c->dict, "epoch", 3));
    return cz_checkpoint_create(&c->checkpoint, group, folder_of(""), &own);
}

static void saved_clear(saved *c)
{
    cz_checkpoint_destroy(&c->checkpoint);
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
static const field ddp_fields[] = {FIELD(cz_ddp_options, size, SIZE),
                                   FIELD(cz_ddp_options, bucket_bytes, COMPARED, U64(512)),
                                   FIELD(cz_ddp_options, first_bucket_bytes, COMPARED, U64(64)),
                                   FIELD(cz_ddp_options, find_unused, COMPARED, I32(1)),
                                   FIELD(cz_ddp_options, keep_buckets, COMPARED, I32(1)),
                                   FIELD(cz_ddp_options, keep_values, COMPARED, I32(1)),
                                   FIELD(cz_ddp_options, keep_buffers, COMPARED, I32(1)),
                                   FIELD(cz_ddp_options, all_reduce, COMPARED, I32(1)),
                                   FIELD(cz_ddp_options, static_graph, COMPARED, I32(1)),
                                   {0}};

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
static const field zero_fields[] = {
    FIELD(cz_zero_options, size, SIZE),
    FIELD(cz_zero_options, partition, COMPARED, I32(CZ_PARTITION_GREEDY)),
    FIELD(cz_zero_options, gradients, COMPARED, I32(CZ_GRADIENTS_REDUCED)),
    FIELD(cz_zero_options, groups, COMPARED, POINTER((void *)two_others), "lr of parameter group 0",
          &in_two),
    FIELD(cz_zero_options, group_count, COMPARED, I64(1), "the number of parameter groups",
          &in_two),
    FIELD(cz_zero_options, owners, COMPARED, POINTER((void *)other_owners),
          "the owner of parameter 2", &to_owners),
    FIELD(cz_zero_options, owner_count, REFUSED, I64(2), NULL, &to_owners),
    FIELD(cz_zero_options, parameters_as_bucket_view, COMPARED, I32(1), NULL, &viewed),
    FIELD(cz_zero_options, overlap, COMPARED, I32(CZ_OVERLAP_STEP), NULL, &on_ddp),
    FIELD(cz_zero_options, moved, LOCAL,
          (&(void (*)(int64_t param, void *value, void *context)){be_told_too}), NULL, &moving),
    FIELD(cz_zero_options, moved_context, LOCAL, POINTER((void *)two), NULL, &moving),
    FIELD(cz_zero_options, ddp, COMPARED, POINTER(SOME_DDP)),
    FIELD(cz_zero_options, overlap_gather, COMPARED, I32(1), NULL, &inside),
    FIELD(cz_zero_options, threads, LOCAL, I32(2)),
    {0}};

static const cz_param_group group_defaults = {sizeof group_defaults, all_three, PARAMS, NULL};
static const int64_t turned[] = {1, 0, 2};
static const field group_fields[] = {
    FIELD(cz_param_group, size, SIZE),
    FIELD(cz_param_group, params, COMPARED, POINTER((void *)turned), "a member"),
    FIELD(cz_param_group, param_count, COMPARED, I64(2), "size of parameter group 0"),
    FIELD(cz_param_group, hypers, COMPARED, POINTER((void *)other_rate), "lr"),
    {0}};

static const cz_hyper hyper_defaults = {"momentum", 0};
static const field hyper_fields[] = {FIELD(cz_hyper, name, COMPARED,
                                           POINTER((void *)"weight_decay"), "momentum",
                                           (&(cz_hyper){"momentum", 0.5})),
                                     FIELD(cz_hyper, value, COMPARED, REAL(0.5), "momentum"),
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
static const field step_fields[] = {
    FIELD(cz_step_options, size, SIZE),
    FIELD(cz_step_options, closure, LOCAL, (&(cz_status(*)(double *loss, void *context)){no_loss})),
    FIELD(cz_step_options, closure_context, LOCAL, POINTER((void *)two), NULL, &closed),
    FIELD(cz_step_options, argument, LOCAL,
          POINTER((void *)two)), /* the rule's, which takes none */
    FIELD(cz_step_options, gradients, LOCAL, POINTER((void *)two), NULL, &of_its_own),
    FIELD(cz_step_options, gradient_count, REFUSED, I64(1), NULL, &of_its_own),
    FIELD(cz_step_options, max_norm, COMPARED, REAL(0.5)),
    FIELD(cz_step_options, skip_nonfinite, COMPARED, I32(1)),
    FIELD(cz_step_options, norm, COMPARED, I32(1)),
    FIELD(cz_step_options, allow_no_gradients, COMPARED, I32(1)),
    FIELD(cz_step_options, reserved, REFUSED, I32(1)),
    {0}};

static const cz_averager_options averager_defaults = CZ_AVERAGER_OPTIONS_INIT;
static const field averager_fields[] = {
    FIELD(cz_averager_options, size, SIZE),
    FIELD(cz_averager_options, warmup_steps, COMPARED, I64(3)),
    FIELD(cz_averager_options, allow_no_gradients, COMPARED, I32(1)),
    FIELD(cz_averager_options, reserved, REFUSED, I32(1)),
    {0}};

static const cz_averager_level level_defaults = {sizeof(cz_averager_level), 4, 1, 0};
static const field level_fields[] = {
    FIELD(cz_averager_level, size, SIZE),
    FIELD(cz_averager_level, period, COMPARED, I64(2)),
    FIELD(cz_averager_level, ranks, COMPARED, I32(WORLD), "the number of ranks"),
    FIELD(cz_averager_level, reserved, REFUSED, I32(1)),
    {0}};

static const cz_step_options clipped = {.size = sizeof clipped, .max_norm = 1};
static const cz_join_options join_defaults = CZ_JOIN_OPTIONS_INIT;
static const field join_fields[] = {
    FIELD(cz_join_options, size, SIZE),
    FIELD(cz_join_options, divide, COMPARED, I32(CZ_JOIN_BY_ACTIVE)),
    FIELD(cz_join_options, end_early, COMPARED, I32(1)),
    FIELD(cz_join_options, disabled, COMPARED, I32(1)),
    {.name = "no field, but padding", .offset = 20, .bytes = 4, .role = SIZE},
    FIELD(cz_join_options, step, COMPARED, POINTER((void *)&clipped), "max_norm of option step"),
    {0}};

static const cz_joinable joinable_defaults = {.size = sizeof joinable_defaults, .name = "ours"};
static const field joinable_fields[] = {
    FIELD(cz_joinable, size, SIZE),
    FIELD(cz_joinable, name, COMPARED, POINTER((void *)"theirs"), "the name of joinable 0"),
    FIELD(cz_joinable, object, LOCAL, POINTER((void *)two)),
    FIELD(cz_joinable, enter, LOCAL,
          (&(cz_status(*)(void *object, cz_join *join, int number)){nothing_to_enter})),
    FIELD(cz_joinable, shadow, COMPARED,
          (&(cz_status(*)(void *object, cz_join *join)){nothing_to_do})),
    FIELD(cz_joinable, finish, COMPARED,
          (&(cz_status(*)(void *object, cz_join *join)){nothing_to_do})),
    FIELD(cz_joinable, abandon, LOCAL,
          (&(void (*)(void *object, cz_status status)){nothing_to_abandon})),
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
static const field powersgd_fields[] = {
    FIELD(cz_powersgd_options, size, SIZE),
    FIELD(cz_powersgd_options, rank, COMPARED, I32(2)),
    FIELD(cz_powersgd_options, no_feedback, COMPARED, I32(1)),
    FIELD(cz_powersgd_options, no_warm_start, COMPARED, I32(1)),
    FIELD(cz_powersgd_options, batched, COMPARED, I32(1)),
    FIELD(cz_powersgd_options, start_iter, COMPARED, I64(1)),
    FIELD(cz_powersgd_options, min_compression_rate, COMPARED, REAL(1.5)),
    FIELD(cz_powersgd_options, epsilon, COMPARED, REAL(0.125)),
    FIELD(cz_powersgd_options, seed, COMPARED, (&(uint32_t){7})),
    FIELD(cz_powersgd_options, draw_by_shape, COMPARED, I32(1)),
    FIELD(cz_powersgd_options, log_every, LOCAL, I64(5)),
    FIELD(cz_powersgd_options, gemm, LOCAL, (&(cz_powersgd_gemm){multiply}), NULL, &multiplied),
    FIELD(cz_powersgd_options, gemm_context, LOCAL, POINTER((void *)two), NULL, &multiplied),
    {0}};

static const cz_post_local_sgd_options post_local_defaults = CZ_POST_LOCAL_SGD_OPTIONS_INIT;
static const field post_local_fields[] = {
    FIELD(cz_post_local_sgd_options, size, SIZE),
    FIELD(cz_post_local_sgd_options, subgroup, COMPARED, POINTER((void *)two), "sub-groups"),
    FIELD(cz_post_local_sgd_options, start_iter, COMPARED, I64(5)),
    FIELD(cz_post_local_sgd_options, no_gradient_all_reduce, COMPARED, I32(1)),
    FIELD(cz_post_local_sgd_options, reserved, REFUSED, I32(1)),
    {0}};

static cz_status see_ready(void *context, int64_t param)
{
    return CZ_OK;
}

static const cz_tensor nowhere[PARAMS];
static const cz_mixed_precision mixed_defaults = CZ_MIXED_PRECISION_INIT;
static const field mixed_fields[] = {
    FIELD(cz_mixed_precision, size, SIZE),
    FIELD(cz_mixed_precision, reduce_dtype, COMPARED, I32(CZ_F64)),
    {.name = "no field, but padding", .offset = 12, .bytes = 4, .role = SIZE},
    FIELD(cz_mixed_precision, full, LOCAL, POINTER((void *)nowhere)),
    FIELD(cz_mixed_precision, ready, LOCAL,
          (&(cz_status(*)(void *context, int64_t param)){see_ready})),
    FIELD(cz_mixed_precision, context, LOCAL, POINTER((void *)two)),
    {0}};

static const cz_hook hook_defaults = {.size = sizeof hook_defaults, .name = "mean", .run = mean};
static const field hook_fields[] = {
    FIELD(cz_hook, size, SIZE),
    FIELD(cz_hook, name, COMPARED, POINTER((void *)"average"), "its hook"),
    FIELD(cz_hook, result, COMPARED, I32(CZ_HOOK_SLICE), "what is reduced of its hook"),
    {.name = "no field, but padding", .offset = 20, .bytes = 4, .role = SIZE},
    FIELD(cz_hook, run, LOCAL, (&(cz_status(*)(void *state, cz_bucket *bucket)){same_mean})),
    FIELD(cz_hook, state, LOCAL, POINTER((void *)two)),
    FIELD(cz_hook, release, LOCAL, (&(void (*)(void *state)){release_nothing})),
    {0}};

static const field checkpoint_fields[] = {
    FIELD(cz_checkpoint_options, size, SIZE),
    FIELD(cz_checkpoint_options, model, COMPARED, POINTER((void *)two), "parameter 2"),
    FIELD(cz_checkpoint_options, zero, COMPARED, POINTER((void *)two), "optimizer"),
    FIELD(cz_checkpoint_options, optim, COMPARED, POINTER((void *)two), "optimizer"),
    FIELD(cz_checkpoint_options, keep, COMPARED, I32(5)),
    FIELD(cz_checkpoint_options, reserved, REFUSED, I32(1)),
    {0}};

static const cz_save_options save_defaults = CZ_SAVE_OPTIONS_INIT;
static const field save_fields[] = {
    FIELD(cz_save_options, size, SIZE),
    FIELD(cz_save_options, step, COMPARED, I64(5)),
    FIELD(cz_save_options, common, COMPARED, POINTER((void *)two), "common"),
    FIELD(cz_save_options, own, LOCAL, POINTER((void *)two)),
    {0}};

static const cz_load_options load_defaults = CZ_LOAD_OPTIONS_INIT;
static const field load_fields[] = {FIELD(cz_load_options, size, SIZE),
                                    FIELD(cz_load_options, step, COMPARED, I64(0)),
                                    FIELD(cz_load_options, missing_ok, COMPARED, I32(1)),
                                    FIELD(cz_load_options, fall_back, COMPARED, I32(1)),
                                    FIELD(cz_load_options, permissive, COMPARED, I32(1)),
                                    FIELD(cz_load_options, convert, COMPARED, I32(1)),
                                    {0}};

static const cz_export_options export_defaults = CZ_EXPORT_OPTIONS_INIT;
static const field export_fields[] = {
    FIELD(cz_export_options, size, SIZE),
    FIELD(cz_export_options, step, COMPARED, I64(5)),
    FIELD(cz_export_options, common, COMPARED, POINTER((void *)two), "common"),
    FIELD(cz_export_options, max_file_bytes, COMPARED, (&(uint64_t){1 << 20})),
    FIELD(cz_export_options, parameters_only, COMPARED, I32(1)),
    FIELD(cz_export_options, reserved, REFUSED, I32(1)),
    {0}};

static const cz_replicas_options replicas_defaults = CZ_REPLICAS_OPTIONS_INIT;
static const field replicas_fields[] = {
    FIELD(cz_replicas_options, size, SIZE),
    FIELD(cz_replicas_options, parameters_only, COMPARED, I32(1)),
    FIELD(cz_replicas_options, reserved, REFUSED, I32(1)),
    {0}};

static const options_struct structs[] = {
    {"cz_ddp_options", sizeof(cz_ddp_options), &ddp_defaults, use_ddp, ddp_fields},
    {"cz_zero_options", sizeof(cz_zero_options), &zero_defaults, use_zero, zero_fields},
    {"cz_param_group", sizeof(cz_param_group), &group_defaults, use_group, group_fields},
    {"cz_hyper", sizeof(cz_hyper), &hyper_defaults, use_hyper, hyper_fields},
    {"cz_step_options", sizeof(cz_step_options), &step_defaults, use_step, step_fields},
    {"cz_replicas_options", sizeof(cz_replicas_options), &replicas_defaults, use_replicas,
     replicas_fields},
    {"cz_averager_options", sizeof(cz_averager_options), &averager_defaults, use_averager,
     averager_fields},
    {"cz_averager_level", sizeof(cz_averager_level), &level_defaults, use_level, level_fields},
    {"cz_join_options", sizeof(cz_join_options), &join_defaults, use_join, join_fields},
    {"cz_joinable", sizeof(cz_joinable), &joinable_defaults, use_joinable, joinable_fields},
    {"cz_powersgd_options", sizeof(cz_powersgd_options), &powersgd_defaults, use_powersgd,
     powersgd_fields},
    {"cz_post_local_sgd_options", sizeof(cz_post_local_sgd_options), &post_local_defaults,
     use_post_local_sgd, post_local_fields},
    {"cz_mixed_precision", sizeof(cz_mixed_precision), &mixed_defaults, use_mixed_precision,
     mixed_fields},
    {"cz_hook", sizeof(cz_hook), &hook_defaults, use_hook, hook_fields},
    {"cz_checkpoint_options", sizeof(cz_checkpoint_options), &plain, use_checkpoint,
     checkpoint_fields},
    {"cz_save_options", sizeof(cz_save_options), &save_defaults, use_save, save_fields},
    {"cz_load_options", sizeof(cz_load_options), &load_defaults, use_load, load_fields},
    {"cz_export_options", sizeof(cz_export_options), &export_defaults, use_export, export_fields},
};
enum { STRUCTS = sizeof structs / sizeof *structs };

/* Of what no other rank knows: objects of one rank, and calls of one. Groups are in test_options_agree.c. */
static const char *const elsewhere[] = {
    "cz_group_options",       /* test_options_agree.c */
    "cz_launch_options",      /* one call makes all ranks, or each is a process: as the group's */
    "cz_operation_options",   /* labels: test_checked.c */
    "cz_optim_options",       /* unsharded: compared where it is used together, by what it has */
    "cz_optim_load_options",  /* the same */
    "cz_in_backward_options", /* who is told */
    "cz_plan_options",        /* no ranks */
    "cz_verify_options",      /* the same */
    "cz_sampler_options",     /* each rank asks for its own */
    "cz_sched_options",       /* rates, which steps compare */
    "cz_sched_one_cycle_options",
    "cz_sched_cyclic_options",
    "cz_sched_plateau_options"};

/* ---- the tests ---- */

TEST(the_fields_cover_every_byte)
{
    for (int k = 0; k < STRUCTS; k++) {
        size_t end = 0;
        for (const field *f = structs[k].fields; f->name; f++) {
            if (f->offset != end)
                fail_msg("%s: bytes %zu to %zu before %s are in no field of the list",
                         structs[k].name, end, f->offset, f->name);
            end = f->offset + f->bytes;
        }
        if (end != structs[k].bytes)
            fail_msg("%s: %zu of %zu bytes are in the list", structs[k].name, end,
                     structs[k].bytes);
    }
}

static bool is_listed(const char *name)
{
    for (int k = 0; k < STRUCTS; k++)
        if (strcmp(structs[k].name, name) == 0)
            return true;
    for (size_t k = 0; k < sizeof elsewhere / sizeof *elsewhere; k++)
        if (strcmp(elsewhere[k], name) == 0)
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

static void check_field(const options_struct *of, const field *f, int world)
{
    static float results[2][WORLD][ELEMENTS];
    _Alignas(16) unsigned char even[512], odd[512];
    outcome outcomes[WORLD];
    const cz_group_options quick = {.size = sizeof quick, .timeout_seconds = 30};
    memcpy(even, f->base ? f->base : of->defaults, of->bytes);
    memcpy(odd, even, of->bytes);
    memcpy(odd + f->offset, f->changed, f->bytes);
    run changed = {of, even, odd, results[1]}, same = {of, even, even, results[0]};
    memset(results, 0, sizeof results);
    run_ranks(world, &quick, use, &changed, outcomes);
    const char *word = f->word ? f->word : f->name;
    for (int r = 0; r < world && f->role != LOCAL; r++) {
        if ((f->role == COMPARED) != (outcomes[r].status == CZ_ERR_MISMATCH) ||
            outcomes[r].status == CZ_OK || outcomes[r].status == CZ_ERR_PEER)
            fail_msg("%s.%s on rank %d of %d: %s '%s'", of->name, f->name, r, world,
                     cz_status_name(outcomes[r].status), outcomes[r].sentence);
        if (!strstr(outcomes[r].sentence, word) ||
            strcmp(outcomes[r].sentence, outcomes[0].sentence) != 0)
            fail_msg("%s.%s: '%s' is not in '%s' on rank %d, or not what rank 0 has: '%s'",
                     of->name, f->name, word, outcomes[r].sentence, r, outcomes[0].sentence);
    }
    if (f->role != LOCAL)
        return;
    assert_all_ok(world, outcomes, "%s.%s", of->name, f->name);
    run_ranks(world, &quick, use, &same, outcomes);
    assert_memory_equal(results[0], results[1], sizeof results[0]);
}

TEST(another_value_on_one_rank_is_refused_or_harmless)
{
    for (int k = 0; k < STRUCTS; k++)
        for (const field *f = structs[k].fields; f->name; f++)
            for (int world = 2; world <= WORLD && f->role != SIZE; world++)
                if (structs[k].fields != level_fields || world == WORLD)
                    check_field(&structs[k], f, world);
    remove_folders();
}
