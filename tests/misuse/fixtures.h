/* SPDX-License-Identifier: MIT */
/* Arguments for every type that a public function takes: valid ones, made when a call first needs
 * them, and spoiled ones. test_calls.c makes the calls, generate.awk knows the types from here.
 *
 *     HANDLE(cz_thing)            static void make_cz_thing(trial *t) sets t->cz_thing;
 *                                 cz_thing_destroy() ends it
 *     FIXTURE(word, type, n)      {body}: the argument, spoiled in way v of n, or valid if v is 0;
 *                                 t->name is its name
 *     static void valid_STRUCT()  what a valid struct has beyond its _INIT */
#ifndef CZ_TEST_MISUSE_FIXTURES_H
#define CZ_TEST_MISUSE_FIXTURES_H

#include "support/cz_test.h"
#include "support/joinables.h"
#include "support/spans.h"

#include "czero/backend.h"
#include "czero/czero.h"

#include <limits.h>
#include <math.h>
#include <stdatomic.h>
#include <string.h>
#include <unistd.h>

enum { NAMED = 8, FLOATS = 1024, LONG_TEXT = 1 << 18 };

#ifndef MISUSE_BEGIN_PROCESS
#define MISUSE_BEGIN_PROCESS (void)0
#endif

/* What each process of its own begins with. */
static inline void begin_process(void)
{
    MISUSE_BEGIN_PROCESS;
}

/* In the order in which they are destroyed. */
#define HANDLES(X)                                                                                 \
    X(cz_archive)                                                                                  \
    X(cz_work)                                                                                     \
    X(cz_join)                                                                                     \
    X(cz_checkpoint)                                                                               \
    X(cz_zero)                                                                                     \
    X(cz_ddp)                                                                                      \
    X(cz_parts)                                                                                    \
    X(cz_powersgd)                                                                                 \
    X(cz_in_backward)                                                                              \
    X(cz_post_local_optim)                                                                         \
    X(cz_averager)                                                                                 \
    X(cz_sched)                                                                                    \
    X(cz_optim)                                                                                    \
    X(cz_model)                                                                                    \
    X(cz_plan)                                                                                     \
    X(cz_shapes)                                                                                   \
    X(cz_sampler)                                                                                  \
    X(cz_shared)                                                                                   \
    X(cz_state_dict)                                                                               \
    X(cz_group)

/* One call of one function on one rank. */
typedef struct trial {
    const char *function;
    cz_group *world;
    cz_bucket *bucket;
    int spoiled, way;     /* the argument, from 1, and how; 0: none here */
    const char *name;     /* of the argument that is being made */
    const char *what;     /* is wrong with it, where it is not its value itself */
    cz_status status;     /* what it returned */
    cz_state_dict *spare; /* a second dictionary */
    cz_load_result *loaded;
    cz_sched *members[2];
    cz_group *groups[NAMED];
    void *object;
    char folder[64];
#define DECLARE(type) type *type, *out_##type;
    HANDLES(DECLARE)
#undef DECLARE
} trial;

typedef struct call {
    const char *name;
    void (*run)(trial *t);
    bool has_status;
    int count;
    struct {
        const char *name, *type;
        int ways;
    } arguments[12];
} call;

#define SELECT(t, index, text) ((t)->name = (text), (t)->spoiled == (index) ? (t)->way : 0)
#define FIXTURE(word, type, ways)                                                                  \
    enum { variants_##word = (ways) };                                                             \
    static __attribute__((unused)) type arg_##word(trial *t, int v)

static bool is(const trial *t, const char *name)
{
    return strcmp(t->name, name) == 0;
}

static bool in(const trial *t, const char *function)
{
    return strcmp(t->function, function) == 0;
}

/* Zeroed, until the process ends. */
static void *have(trial *t, size_t bytes)
{
    void *memory = calloc(1, bytes);
    if (!memory)
        abort();
    return memory;
}

static void must(trial *t, cz_status status, const char *what)
{
    if (status == CZ_OK)
        return;
    fprintf(stderr, "misuse: %s for %s(): %s: %s\n", what, t->function, cz_status_name(status),
            cz_last_error());
    _exit(3);
}

static inline void read_text(const char *text)
{
    volatile size_t length = text ? strlen(text) : 0;
    (void)length;
}

/* The first seven ways in which a struct with a size is spoiled: 1 is NULL. */
static void spoil_size(trial *t, void *options, size_t size, int v)
{
    const size_t sizes[] = {size, size, 0, 1, SIZE_MAX, size + 16, size + 16, size + 1};
    static const char *const what[] = {
        NULL, NULL, "size 0", "size 1", "size SIZE_MAX", "a tail", "an empty tail", "size + 1"};
    if (v < 2 || v > 7)
        return;
    memcpy(options, &sizes[v], sizeof sizes[v]);
    t->what = what[v];
    if (v == 5)
        memset((char *)options + size, 0xa5, 16);
}

static int64_t valid_enum(trial *t, int64_t first)
{
    return is(t, "overlap") ? CZ_OVERLAP_STEP : first;
}

/* ---- scalars ---- */

/* What the arguments of a name are if they are valid; of one function's only, where it is given. */
typedef struct named_value {
    const char *name, *function;
    int64_t value;
} named_value;

static const named_value values[] = {
    {"count", "cz_model_add_flat", 2},
    {"count", "cz_model_add_views", 1},
    {"count", "cz_state_dict_set_texts", 2},
    {"count", "cz_sched_create_sequential", 1},
    {"count", "cz_sched_create_chained", 1},
    {"count", "cz_in_backward_create", 1},
    {"count", "cz_averager_create_hierarchical", 1},
    {"count", "cz_group_subset", 1},
    {"count", "cz_join_begin", 1},
    {"count", NULL, 4},
    {"world_size", NULL, 2},
    {"size", NULL, 1},
    {"dimensions", NULL, 1},
    {"uses", NULL, 1},
    {"period", NULL, 2},
    {"param_count", NULL, 2},
    {"range_count", NULL, 1},
    {"group_count", NULL, 1},
    {"room", NULL, 2},
    {"step_size", NULL, 2},
    {"total_iters", NULL, 2},
    {"total_steps", NULL, 2},
    {"t_max", NULL, 2},
    {"t_0", NULL, 2},
    {"t_mult", NULL, 2},
    {"element_size", NULL, 4},
    {"bytes", NULL, 64},
    {"step", "cz_archive_open", CZ_NEWEST},
};

static int64_t valid_number(const trial *t)
{
    for (size_t i = 0; i < sizeof values / sizeof *values; i++)
        if (is(t, values[i].name) && (!values[i].function || in(t, values[i].function)))
            return values[i].value;
    return 0;
}

FIXTURE(int, int, 4)
{
    const int bad[] = {(int)valid_number(t), -1, INT_MIN, INT_MAX, 1 << 20};
    return bad[v];
}

FIXTURE(int64_t, int64_t, 3)
{
    const int64_t bad[] = {valid_number(t), -1, INT64_MIN, INT64_MAX};
    return bad[v];
}

FIXTURE(size_t, size_t, 3)
{
    const size_t bad[] = {(size_t)valid_number(t), 0, SIZE_MAX, SIZE_MAX / 2};
    return bad[v];
}

FIXTURE(uint64_t, uint64_t, 1)
{
    return v ? UINT64_MAX : 1;
}

FIXTURE(uint16_t, uint16_t, 1)
{
    return v ? UINT16_MAX : 1;
}

FIXTURE(bool, bool, 0)
{
    return is(t, "sync");
}

FIXTURE(double, double, 6)
{
    const double bad[] = {0.5, NAN, INFINITY, -INFINITY, -1, 0, 1e308};
    return is(t, "epoch") && v == 0 ? 1 : bad[v];
}

FIXTURE(float, float, 2)
{
    const float bad[] = {0.5f, NAN, INFINITY};
    return bad[v];
}

/* ---- texts ---- */

static const struct {
    const char *function, *text;
} texts[] = {
    {"cz_archive_read", NULL},
    {"cz_group_create_world", "self"},
    {"cz_ddp_register_hook_by_name", "all_reduce"},
    {"cz_hook_find", "all_reduce"},
    {"cz_optim_state", "momentum_buffer"},
    {"cz_optim_scalar", "step"},
    {"cz_optim_set_hyper", "lr"},
    {"cz_optim_get_hyper", "lr"},
    {"cz_state_dict_remove", "integer"},
    {"cz_state_dict_kind", "integer"},
    {"cz_state_dict_get_integer", "integer"},
    {"cz_state_dict_get_real", "real"},
    {"cz_state_dict_get_text", "text"},
    {"cz_state_dict_get_texts", "texts"},
    {"cz_state_dict_get_tensor", "tensor"},
    {"cz_state_dict_get_dict", "dict"},
    {"cz_rule_find", "adamw"},
    {"cz_model_find", "weight"},
};

static const char *make_file_of_tensors(trial *t);

static const char *valid_text(trial *t)
{
    char *path;
    if (in(t, "cz_archive_open"))
        return make_file_of_tensors(t);
    if (is(t, "format"))
        return "a line";
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++)
        if (in(t, texts[i].function))
            return texts[i].text;
    if (!is(t, "path") && !is(t, "folder"))
        return "new";
    path = have(t, sizeof t->folder + 32);
    sprintf(path, "%s/%s", t->folder, is(t, "folder") ? "saves" : "file");
    return path;
}

static char *long_text(trial *t)
{
    char *text = have(t, LONG_TEXT);
    return memset(text, 'x', LONG_TEXT - 1);
}

FIXTURE(const_char_p, const char *, 5)
{
    static const char *const what[] = {NULL, NULL, "empty", "long", "no UTF-8", "conversions"};
    t->what = v ? what[v] : t->what;
    if (v == 2)
        return "";
    if (v == 3)
        return long_text(t);
    if (v == 4)
        return "\x1b[31m\xff\xfe\n";
    if (v == 5) /* a format may hold some, a text has none that counts */
        return is(t, "format") ? "%%" : "%s%n%s%ld";
    return v == 1 ? NULL : valid_text(t);
}

FIXTURE(const_char_p_const_p, const char *const *, 4)
{
    const char **list = have(t, NAMED * sizeof *list);
    for (int i = 0; i < NAMED; i++)
        list[i] = i % 2 ? "second" : "first";
    if (v == 2)
        list[1] = NULL;
    if (v == 3)
        list[1] = "";
    if (v == 4)
        list[1] = long_text(t);
    return v == 1 ? NULL : list;
}

/* A safetensors file; each rank has one of its own. */
static const char *make_file_of_tensors(trial *t)
{
    static const char header[] =
        "{\"weight\":{\"dtype\":\"F32\",\"shape\":[4],\"data_offsets\":[0,16]}}";
    const uint64_t length = sizeof header - 1;
    const float elements[4] = {1, 2, 3, 4};
    char *path = have(t, sizeof t->folder + 32);
    sprintf(path, "%s/rank%d.safetensors", t->folder, cz_group_rank(t->world));
    FILE *file = fopen(path, "wb");
    if (!file || fwrite(&length, sizeof length, 1, file) != 1 ||
        fwrite(header, length, 1, file) != 1 || fwrite(elements, sizeof elements, 1, file) != 1 ||
        fclose(file) != 0)
        abort();
    return path;
}

/* ---- memory ---- */

static float *floats(trial *t)
{
    float *memory = have(t, FLOATS * sizeof *memory);
    for (int i = 0; i < FLOATS; i++)
        memory[i] = 1;
    return memory;
}

static void *memory_named(trial *t)
{
    static char endpoint;
    if (is(t, "context") || is(t, "argument"))
        return t;
    if (is(t, "state") || is(t, "queue"))
        return NULL;
    if (is(t, "endpoint"))
        return &endpoint;
    if (is(t, "object") && in(t, "cz_object_free"))
        return t->object;
    return floats(t);
}

FIXTURE(void_p, void *, 1)
{
    return v ? NULL : memory_named(t);
}

FIXTURE(const_void_p, const void *, 1)
{
    return v ? NULL : memory_named(t);
}

/* Lists of numbers: in order where they are places, else all alike. */
static bool is_order(const trial *t)
{
    return is(t, "order") || is(t, "group_params") || is(t, "params") || is(t, "range_begins");
}

FIXTURE(const_int64_t_p, const int64_t *, 4)
{
    const int64_t bad[] = {is(t, "shape") ? 4 : 2, 0, -1, INT64_MAX, INT64_MIN};
    int64_t *list = have(t, NAMED * sizeof *list);
    for (int i = 0; i < NAMED; i++)
        list[i] = v == 0 && is_order(t) ? i : bad[v];
    return v == 1 ? NULL : list;
}

FIXTURE(const_int_p, const int *, 4)
{
    const int bad[] = {0, 0, -1, INT_MAX, INT_MIN};
    int *list = have(t, NAMED * sizeof *list);
    for (int i = 0; i < NAMED; i++)
        list[i] = bad[v];
    if (v == 0 && in(t, "cz_zero_reshard")) /* its partition takes none */
        return NULL;
    return v == 1 ? NULL : list;
}

FIXTURE(const_double_p, const double *, 2)
{
    enum { OF_EACH_PART = 4 * NAMED };
    double *list = have(t, OF_EACH_PART * sizeof *list);
    for (int i = 0; i < OF_EACH_PART; i++)
        list[i] = v ? NAN : 1;
    return v == 1 ? NULL : list;
}

FIXTURE(const_uint64_t_p, const uint64_t *, 1)
{
    return v ? NULL : have(t, 2 * sizeof(uint64_t));
}

static cz_status run_part(int part, void *context)
{
    return CZ_OK;
}

FIXTURE(cz_parts_run, cz_parts_run, 1)
{
    return v ? NULL : run_part;
}

/* Where results go. */
#define RESULT(word, type)                                                                         \
    FIXTURE(word, type *, 1)                                                                       \
    {                                                                                              \
        return v ? NULL : have(t, NAMED * sizeof(type));                                           \
    }
RESULT(bool_p, bool)
RESULT(int_p, int)
RESULT(uint64_t_p, uint64_t)
RESULT(int64_t_p, int64_t)
RESULT(uint32_t_p, uint32_t)
RESULT(size_t_p, size_t)
RESULT(double_p, double)
RESULT(cz_dtype_p, cz_dtype)
RESULT(const_void_pp, const void *)
RESULT(const_char_pp, const char *)
RESULT(const_cz_state_dict_pp, const cz_state_dict *)

FIXTURE(void_pp, void **, 1)
{
    void **const place = in(t, "cz_broadcast_object") ? &t->object : have(t, sizeof *place);
    return v ? NULL : place;
}

FIXTURE(const_char_p_const_pp, const char *const **, 1)
{
    const char *const **const place = have(t, sizeof *place);
    return v ? NULL : place;
}

/* ---- functions ---- */

static cz_status nothing_on_ranks(cz_group *world, void *context)
{
    return CZ_OK;
}

static cz_status nothing_then(cz_status status, void *context)
{
    return status;
}

static double half(int64_t epoch, int64_t param_group, void *context)
{
    return 0.5;
}

static void quiet(cz_log_level level, const char *line, void *context)
{
}

FIXTURE(cz_rank_main, cz_rank_main, 1)
{
    return v ? NULL : nothing_on_ranks;
}

FIXTURE(cz_continuation, cz_continuation, 1)
{
    return v ? NULL : nothing_then;
}

FIXTURE(cz_sched_function, cz_sched_function, 1)
{
    return v ? NULL : half;
}

static cz_status visit_no_generation(const cz_archive_generation *generation, void *context)
{
    return CZ_OK;
}

FIXTURE(cz_archive_visitor, cz_archive_visitor, 1)
{
    return v ? NULL : visit_no_generation;
}

FIXTURE(cz_log_sink, cz_log_sink, 0)
{
    return quiet;
}

/* ---- handles ---- */

#define HANDLE_MAKER(type)                                                                         \
    static void make_##type(trial *t);                                                             \
    static type *ensure_##type(trial *t)                                                           \
    {                                                                                              \
        if (!t->type)                                                                              \
            make_##type(t);                                                                        \
        return t->type;                                                                            \
    }

#define HANDLE(type)                                                                               \
    HANDLE_MAKER(type)                                                                             \
    FIXTURE(type##_p, type *, 1)                                                                   \
    {                                                                                              \
        type *const handle = ensure_##type(t); /* what all ranks make together all make */         \
        return v ? NULL : handle;                                                                  \
    }                                                                                              \
    FIXTURE(const_##type##_p, const type *, 1)                                                     \
    {                                                                                              \
        return arg_##type##_p(t, v);                                                               \
    }                                                                                              \
    FIXTURE(type##_pp, type **, 2)                                                                 \
    {                                                                                              \
        void *const handle = is(t, "out") ? NULL : ensure_##type(t);                               \
        t->out_##type = handle || v == 1 ? NULL : (type *)t; /* whoever fails sets it to NULL */   \
        return v == 1 ? NULL : place_of((void **)&t->out_##type, (void **)&t->type, handle, v);    \
    }

/* Where a new handle goes, where the present one is (`handle`), or where none is. */
static void *place_of(void **out, void **present, void *handle, int v)
{
    static _Thread_local void *none;
    if (v == 2 && handle)
        return &none;
    return handle ? present : out;
}

HANDLE(cz_archive)
HANDLE(cz_work)
HANDLE(cz_join)
HANDLE(cz_checkpoint)
HANDLE(cz_zero)
HANDLE(cz_ddp)
HANDLE(cz_parts)
HANDLE(cz_powersgd)
HANDLE(cz_in_backward)
HANDLE(cz_post_local_optim)
HANDLE(cz_averager)
HANDLE(cz_optim)
HANDLE(cz_model)
HANDLE(cz_plan)
HANDLE(cz_shapes)
HANDLE(cz_sampler)
HANDLE(cz_shared)

/* Nobody but its owner destroys it. */
FIXTURE(const_cz_shard_map_p, const cz_shard_map *, 1)
{
    const cz_shard_map *const map = cz_test_shard_map(ensure_cz_zero(t));
    return v ? NULL : map;
}

/* Those of which a call may take several. */
HANDLE_MAKER(cz_sched)
HANDLE_MAKER(cz_state_dict)

FIXTURE(cz_sched_p, cz_sched *, 1)
{
    return v ? NULL : ensure_cz_sched(t);
}

FIXTURE(const_cz_sched_p, const cz_sched *, 1)
{
    return v ? NULL : ensure_cz_sched(t);
}

FIXTURE(cz_sched_pp, cz_sched **, 2)
{
    if (is(t, "members")) {
        must(t, cz_sched_create_step(&t->members[0], ensure_cz_optim(t), 2, 0.5, NULL), "a member");
        if (v == 2)
            cz_sched_destroy(&t->members[0]);
        return v == 1 ? NULL : t->members;
    }
    void *const handle = is(t, "out") ? NULL : ensure_cz_sched(t);
    t->out_cz_sched = handle || v == 1 ? NULL : (cz_sched *)t;
    return v == 1 ? NULL : place_of((void **)&t->out_cz_sched, (void **)&t->cz_sched, handle, v);
}

FIXTURE(cz_state_dict_p, cz_state_dict *, 1)
{
    return v ? NULL : ensure_cz_state_dict(t);
}

FIXTURE(const_cz_state_dict_p, const cz_state_dict *, 1)
{
    if (is(t, "source") || is(t, "b")) {
        cz_state_dict_destroy(&t->spare);
        must(t, cz_state_dict_copy(&t->spare, ensure_cz_state_dict(t)), "another dictionary");
        return v ? NULL : t->spare;
    }
    return v ? NULL : ensure_cz_state_dict(t);
}

FIXTURE(cz_state_dict_pp, cz_state_dict **, 2)
{
    static _Thread_local cz_state_dict *child;
    if (is(t, "child"))
        return v == 1 ? NULL : &child;
    void *const handle = is(t, "out") ? NULL : ensure_cz_state_dict(t);
    t->out_cz_state_dict = handle || v == 1 ? NULL : (cz_state_dict *)t;
    return v == 1 ? NULL
                  : place_of((void **)&t->out_cz_state_dict, (void **)&t->cz_state_dict, handle, v);
}

FIXTURE(cz_group_p, cz_group *, 1)
{
    return v ? NULL : t->world;
}

FIXTURE(const_cz_group_p, const cz_group *, 1)
{
    return v ? NULL : t->world;
}

FIXTURE(cz_group_pp, cz_group **, 2)
{
    static _Thread_local cz_group *none;
    if (is(t, "out"))
        return v == 1 ? NULL : t->groups;
    must(t, cz_group_create_self(&t->cz_group, NULL), "a group");
    return v == 0 ? &t->cz_group : v == 1 ? NULL : &none;
}

FIXTURE(cz_bucket_p, cz_bucket *, 1)
{
    return v ? NULL : t->bucket;
}

FIXTURE(const_cz_bucket_p, const cz_bucket *, 1)
{
    return v ? NULL : t->bucket;
}

FIXTURE(cz_optim_p_const_p, cz_optim *const *, 2)
{
    cz_optim **list = have(t, NAMED * sizeof *list);
    list[0] = v == 2 ? NULL : ensure_cz_optim(t);
    return v == 1 ? NULL : list;
}

static void make_cz_model(trial *t)
{
    const int64_t shape[] = {4, 4};
    must(t, cz_model_create(&t->cz_model), "a model");
    if (in(t, "cz_model_set_gradients_flat"))
        must(t, cz_model_add_flat(t->cz_model, floats(t), NULL, CZ_F32, 2, NULL, shape), "a block");
    must(t, cz_model_add(t->cz_model, "weight", floats(t), floats(t), CZ_F32, 2, shape),
         "a weight");
    must(t, cz_model_add(t->cz_model, "bias", floats(t), floats(t), CZ_F32, 1, shape), "a bias");
    must(t, cz_model_add_buffer(t->cz_model, "mean", floats(t), CZ_F32, 1, shape), "a buffer");
}

static const int64_t first_param[] = {0};
static const cz_param_group first_group = {
    .size = sizeof(cz_param_group), .params = first_param, .param_count = 1, .hypers = NULL};

static const cz_moving_average average = CZ_MOVING_AVERAGE_INIT;

static void make_cz_optim(trial *t)
{
    cz_optim_options options = CZ_OPTIM_OPTIONS_INIT;
    options.average = &average;    /* something to evaluate */
    options.groups = &first_group; /* the second parameter can still be added */
    options.group_count = 1;
    must(t,
         cz_optim_create(&t->cz_optim, ensure_cz_model(t), cz_rule_sgd(),
                         CZ_HYPERS({"lr", 0.5}, {"momentum", 0.5}), &options),
         "an optimizer");
}

static void make_cz_ddp(trial *t)
{
    must(t, cz_ddp_create(&t->cz_ddp, t->world, ensure_cz_model(t), NULL), "a ddp");
}

static bool needs_overlap(const trial *t)
{
    return in(t, "cz_zero_set_overlap");
}

static void make_cz_zero(trial *t)
{
    cz_zero_options options = CZ_ZERO_OPTIONS_INIT;
    options.average = &average;
    options.groups = &first_group;
    options.group_count = 1;
    if (needs_overlap(t)) {
        options.groups = NULL;
        options.group_count = 0;
        options.ddp = ensure_cz_ddp(t);
        options.overlap = CZ_OVERLAP_STEP;
    }
    must(t,
         cz_zero_create(&t->cz_zero, t->world, ensure_cz_model(t), cz_rule_adamw(), NULL, &options),
         "a sharded optimizer");
}

static void make_cz_parts(trial *t)
{
    const cz_parts_options options = {sizeof options, 4, 0};
    must(t, cz_parts_create(&t->cz_parts, t->world, ensure_cz_model(t), &options), "parts");
}

static void make_cz_averager(trial *t)
{
    must(t, cz_averager_create_periodic(&t->cz_averager, t->world, ensure_cz_model(t), 1, NULL),
         "an averager");
}

static void make_cz_post_local_optim(trial *t)
{
    must(t,
         cz_post_local_optim_create(&t->cz_post_local_optim, ensure_cz_optim(t),
                                    ensure_cz_averager(t)),
         "a post-local optimizer");
}

static void make_cz_checkpoint(trial *t)
{
    cz_checkpoint_options options = CZ_CHECKPOINT_OPTIONS_INIT;
    char folder[sizeof t->folder + 32];
    options.model = ensure_cz_model(t);
    options.optim = ensure_cz_optim(t);
    sprintf(folder, "%s/saves", t->folder);
    must(t, cz_checkpoint_create(&t->cz_checkpoint, t->world, folder, &options), "a checkpoint");
}

/* A generation, where a call is about its ranks. */
static void make_cz_archive(trial *t)
{
    char folder[sizeof t->folder + 32];
    const char *path = folder;
    if (in(t, "cz_archive_read_dict"))
        must(t, cz_checkpoint_save(ensure_cz_checkpoint(t), NULL), "a save");
    else
        path = make_file_of_tensors(t);
    sprintf(folder, "%s/saves", t->folder);
    must(t, cz_archive_open(&t->cz_archive, path, CZ_NEWEST), "an archive");
}

static void make_cz_work(trial *t)
{
    must(t, cz_all_reduce(t->world, floats(t), 4, CZ_F32, CZ_SUM, CZ_START("work", &t->cz_work)),
         "a work");
}

static void make_cz_join(trial *t)
{
    const cz_joinable joinable = cz_test_join_optim(ensure_cz_optim(t));
    must(t, cz_join_begin(&t->cz_join, t->world, &joinable, 1, NULL), "a join");
}

static void make_cz_powersgd(trial *t)
{
    must(t, cz_powersgd_create(&t->cz_powersgd, ensure_cz_model(t), NULL), "a PowerSGD");
}

static void make_cz_in_backward(trial *t)
{
    must(t, cz_in_backward_create(&t->cz_in_backward, (cz_optim *[]){ensure_cz_optim(t)}, 1, NULL),
         "optimizers in the backward pass");
}

static void make_cz_sched(trial *t)
{
    if (in(t, "cz_sched_step_metric"))
        must(t, cz_sched_create_plateau(&t->cz_sched, ensure_cz_optim(t), NULL), "a scheduler");
    else
        must(t, cz_sched_create_step(&t->cz_sched, ensure_cz_optim(t), 2, 0.5, NULL),
             "a scheduler");
}

static void make_cz_shapes(trial *t)
{
    must(t, cz_shapes_from_model(&t->cz_shapes, ensure_cz_model(t)), "shapes");
}

static void make_cz_plan(trial *t)
{
    must(t, cz_plan_create(&t->cz_plan, ensure_cz_shapes(t), NULL), "a plan");
}

static void make_cz_sampler(trial *t)
{
    cz_sampler_options options = CZ_SAMPLER_OPTIONS_INIT;
    options.sample_count = 16;
    options.global_batch = 4;
    must(t, cz_sampler_create(&t->cz_sampler, &options), "a sampler");
}

static void make_cz_shared(trial *t)
{
    must(t, cz_shared_create(&t->cz_shared, t->world, 64, NULL), "shared memory");
}

static void make_cz_state_dict(trial *t)
{
    const cz_tensor tensor = {floats(t), CZ_F32, CZ_DENSE, 1, {4}, NULL};
    cz_state_dict *dict, *child;
    must(t, cz_state_dict_create(&dict), "a dictionary");
    must(t, cz_state_dict_set_integer(dict, "integer", 1), "an integer");
    must(t, cz_state_dict_set_real(dict, "real", 1), "a real");
    must(t, cz_state_dict_set_text(dict, "text", "text"), "a text");
    must(t, cz_state_dict_set_texts(dict, "texts", (const char *[]){"a", "b"}, 2), "texts");
    must(t, cz_state_dict_set_tensor(dict, "tensor", &tensor), "a tensor");
    must(t, cz_state_dict_add_dict(dict, "dict", &child), "a dictionary in it");
    t->cz_state_dict = dict;
}

/* ---- structs ---- */

static void valid_cz_tensor(trial *t, cz_tensor *tensor)
{
    const cz_tensor valid = {floats(t), CZ_F32, CZ_DENSE, 1, {4}, NULL};
    *tensor = valid;
}

static void valid_cz_view(trial *t, cz_view *view)
{
    *view = (cz_view){"layer.*", 2, 1, {4}};
}

static void valid_cz_param_group(trial *t, cz_param_group *group)
{
    static const int64_t second[] = {1};
    group->params = second;
    group->param_count = 1;
}

static void valid_cz_hyper(trial *t, cz_hyper *hypers)
{
    hypers[0] = (cz_hyper){"lr", 0.5};
}

static void valid_cz_parts_options(trial *t, cz_parts_options *options)
{
    options->count = 4;
}

static void valid_cz_averager_level(trial *t, cz_averager_level *level)
{
    level->period = 2;
    level->ranks = cz_group_size(t->world);
}

static void valid_cz_sampler_options(trial *t, cz_sampler_options *options)
{
    options->sample_count = 16;
    options->global_batch = 4;
}

static void valid_cz_checkpoint_options(trial *t, cz_checkpoint_options *options)
{
    options->model = ensure_cz_model(t);
    options->optim = ensure_cz_optim(t);
}

static void valid_cz_zero_options(trial *t, cz_zero_options *options)
{
    options->groups = &first_group;
    options->group_count = 1;
}

static void valid_cz_optim_options(trial *t, cz_optim_options *options)
{
    options->groups = &first_group;
    options->group_count = 1;
}

static void valid_cz_hook(trial *t, cz_hook *hook)
{
    must(t, cz_hook_find(hook, "all_reduce", NULL, NULL), "a hook");
}

static void valid_cz_load_result(trial *t, cz_load_result *result)
{
    t->loaded = result; /* its dictionaries are the caller's */
}

static void valid_cz_joinable(trial *t, cz_joinable *joinable)
{
    *joinable = cz_test_join_optim(ensure_cz_optim(t));
}

static void valid_cz_device(trial *t, cz_device *device)
{
    *device = *cz_device_cpu();
}

static void valid_cz_rule(trial *t, cz_rule *rule)
{
    static atomic_int number; /* both ranks of a trial come here */
    char *name = have(t, 32);
    *rule = *cz_rule_adamw();
    if (!in(t, "cz_rule_register"))
        return;
    sprintf(name, "rule%d", number++);
    rule->name = name;
}

extern const cz_backend cz__backend_self; /* exported by nobody, found in the static library */

static void valid_cz_backend(trial *t, cz_backend *backend)
{
    *backend = cz__backend_self;
}

static void *allocate_nothing(size_t bytes, size_t alignment, void *context)
{
    return NULL;
}

static void release_nothing(void *memory, size_t bytes, void *context)
{
}

static void valid_cz_allocator(trial *t, cz_allocator *allocator)
{
    allocator->allocate = allocate_nothing;
    allocator->release = release_nothing;
}

static void valid_cz_span_iterator(trial *t, cz_span_iterator *iterator)
{
    cz_span_iterate(cz_test_shard_map(ensure_cz_zero(t)), 0, iterator);
}

/* ---- what has to come before a call ---- */

static void begin_pass(trial *t)
{
    must(t, cz_ddp_begin(ensure_cz_ddp(t), true), "a pass");
}

static void mark_all(trial *t)
{
    begin_pass(t);
    for (int64_t p = 0; p < 2; p++)
        must(t, cz_ddp_mark_ready(t->cz_ddp, p), "a mark");
}

static void consolidate(trial *t)
{
    must(t, cz_zero_step(ensure_cz_zero(t), NULL, NULL), "a step");
    must(t, cz_zero_consolidate_state_dict(t->cz_zero, CZ_ALL_RANKS), "a state");
}

static void take_zero_state(trial *t)
{
    consolidate(t);
    must(t, cz_zero_state_dict(t->cz_zero, &t->cz_state_dict), "a state");
}

static void take_optim_state(trial *t)
{
    must(t, cz_optim_step(ensure_cz_optim(t), NULL, NULL), "a step");
    must(t, cz_optim_state_dict(t->cz_optim, &t->cz_state_dict), "a state");
}

static void step_optim(trial *t)
{
    must(t, cz_optim_step(ensure_cz_optim(t), NULL, NULL), "a step");
}

static void take_fingerprint(trial *t)
{
    uint64_t print[2];
    must(t, cz_zero_fingerprint(ensure_cz_zero(t), print), "a fingerprint");
}

static void take_averager_state(trial *t)
{
    must(t, cz_averager_state_dict(ensure_cz_averager(t), &t->cz_state_dict), "a state");
}

static void take_post_local_state(trial *t)
{
    must(t, cz_post_local_optim_state_dict(ensure_cz_post_local_optim(t), &t->cz_state_dict),
         "a state");
}

static void take_sched_state(trial *t)
{
    must(t, cz_sched_state_dict(ensure_cz_sched(t), &t->cz_state_dict), "a state");
}

static void take_powersgd_state(trial *t)
{
    must(t, cz_powersgd_state_dict(ensure_cz_powersgd(t), &t->cz_state_dict), "a state");
}

static void save(trial *t)
{
    must(t, cz_checkpoint_save(ensure_cz_checkpoint(t), NULL), "a save");
}

static void export_file(trial *t)
{
    char path[sizeof t->folder + 32];
    sprintf(path, "%s/file", t->folder);
    must(t, cz_checkpoint_export(ensure_cz_checkpoint(t), path, NULL), "an export");
}

static void begin_step(trial *t)
{
    must(t, cz_in_backward_begin(ensure_cz_in_backward(t), NULL), "a step");
}

/* Whole at any time: another rank may be reading it. */
static void write_shapes(trial *t)
{
    char path[sizeof t->folder + 32], draft[sizeof t->folder + 32];
    sprintf(path, "%s/file", t->folder);
    sprintf(draft, "%s/draft%d", t->folder, cz_group_rank(t->world));
    FILE *file = fopen(draft, "w");
    if (!file || fputs("weight f32 4 4\n", file) < 0 || fclose(file) != 0 ||
        rename(draft, path) != 0)
        abort();
}

static void broadcast_object(trial *t)
{
    size_t bytes;
    must(t, cz_broadcast_object(t->world, "object", 7, 0, &t->object, &bytes), "an object");
}

static const struct {
    const char *function;
    void (*run)(trial *t);
} preparations[] = {
    {"cz_ddp_mark_ready", begin_pass},
    {"cz_ddp_finish", mark_all},
    {"cz_ddp_abandon", begin_pass},
    {"cz_zero_state_dict", consolidate},
    {"cz_zero_load_state_dict", take_zero_state},
    {"cz_zero_check_fingerprint", take_fingerprint},
    {"cz_optim_load_state_dict", take_optim_state},
    {"cz_optim_state", step_optim},
    {"cz_averager_load_state_dict", take_averager_state},
    {"cz_post_local_optim_load_state_dict", take_post_local_state},
    {"cz_sched_load_state_dict", take_sched_state},
    {"cz_powersgd_load_state_dict", take_powersgd_state},
    {"cz_checkpoint_load", save},
    {"cz_checkpoint_fetch_own", save},
    {"cz_checkpoint_import", export_file},
    {"cz_in_backward_mark_ready", begin_step},
    {"cz_in_backward_end", begin_step},
    {"cz_shapes_read", write_shapes},
    {"cz_object_free", broadcast_object},
};

#endif
