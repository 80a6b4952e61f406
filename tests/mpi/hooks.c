/* SPDX-License-Identifier: MIT */
/* Every hook of the registry on MPI, alone and around others: the bits of the same work on thread
 * ranks of one process; and a hook that fails on one rank, at once or in a continuation. hooks
 * LEVEL train|fails, under mpirun. */
#include "mpi/mpi_test.h"

#include "czero/czero.h"

enum { PARAMS = 7, ELEMENTS = 975, PASSES = 5, RANKS = 9 };
static const int64_t shapes[PARAMS][2] = {{12, 10}, {11, 1}, {0, 1},  {9, 20},
                                          {20, 9},  {1, 1},  {23, 21}};

typedef struct kind {
    const char *hook, *around; /* NULL: nothing around it */
    int32_t rank, batched;     /* of PowerSGD's state; rank 0: it has none */
    bool mixed, recorded, local;
    bool zero; /* with a sharded optimizer */
} kind;

static const kind kinds[] = {
    {.hook = "all_reduce"},
    {.hook = "reduce_scatter"},
    {.hook = "reduce_scatter", .zero = true},
    {.hook = "no_op"},
    {.hook = "fp16_compress"},
    {.hook = "bf16_compress"},
    {.hook = "quantize_per_tensor"},
    {.hook = "quantize_per_channel"},
    {.hook = "powersgd", .rank = 1},
    {.hook = "powersgd", .rank = 3},
    {.hook = "powersgd_rank2"},
    {.hook = "powersgd", .rank = 2, .batched = 1},
    {.hook = "batched_powersgd"},
    {.hook = "batched_powersgd_rank2"},
    {.hook = "post_local_sgd", .local = true},
    {.hook = "mixed_precision", .mixed = true},
    {.hook = "powersgd", .rank = 2, .around = "record", .recorded = true},
    {.hook = "powersgd", .rank = 1, .around = "fp16_compress"},
    {.hook = "quantize_per_channel", .around = "bf16_compress"},
    {.hook = "zero_step", .zero = true},
    {.hook = "zero_step_interleaved", .zero = true},
};
enum { KINDS = sizeof kinds / sizeof *kinds };

/* A rank's model with a hook and all that it needs. */
typedef struct hooked {
    cz_model *model;
    float values[ELEMENTS], grads[ELEMENTS];
    cz_ddp *ddp;
    cz_zero *zero;
    cz_powersgd *powersgd;
    cz_post_local_sgd local;
    cz_hook_recorder recorder;
    cz_hook_record records[PARAMS];
    cz_mixed_precision mixed;
    cz_hook inner;
} hooked;

static int64_t size_of(int p)
{
    return shapes[p][0] * shapes[p][1];
}

static cz_status make_model(hooked *h)
{
    int64_t begin = 0;
    CZ_TRY(cz_model_create(&h->model));
    for (int p = 0; p < PARAMS; begin += size_of(p++)) {
        char name[24];
        snprintf(name, sizeof name, "p%d", p);
        CZ_TRY(cz_model_add(h->model, name, h->values + begin, h->grads + begin, CZ_F32, 2,
                            shapes[p]));
    }
    for (int64_t i = 0; i < ELEMENTS; i++)
        h->values[i] = (float)(i % 16) / 8;
    return CZ_OK;
}

/* In blocks of two ranks. */
static cz_status make_local(hooked *h, cz_group *group)
{
    const int rank = cz_group_rank(group);
    h->local = (cz_post_local_sgd)CZ_POST_LOCAL_SGD_INIT;
    h->local.start_iter = 2;
    return cz_group_split(group, rank / 2, rank, &h->local.subgroup);
}

static cz_status make_state(hooked *h, const kind *k, cz_group *group, void **state)
{
    cz_powersgd_options powersgd = CZ_POWERSGD_OPTIONS_INIT;
    powersgd.rank = k->rank;
    powersgd.batched = k->batched;
    powersgd.start_iter = 2;
    powersgd.min_compression_rate = 1;
    h->mixed = (cz_mixed_precision)CZ_MIXED_PRECISION_INIT;
    h->mixed.reduce_dtype = CZ_BF16;
    if (k->rank)
        CZ_TRY(cz_powersgd_create(&h->powersgd, h->model, &powersgd));
    if (k->local)
        CZ_TRY(make_local(h, group));
    *state = k->rank    ? (void *)h->powersgd
             : k->local ? (void *)&h->local
             : k->mixed ? (void *)&h->mixed
             : k->zero  ? (void *)h->zero
                        : NULL;
    if (strcmp(k->hook, "reduce_scatter") == 0)
        *state = NULL;
    return CZ_OK;
}

static cz_status register_hook(hooked *h, const kind *k, cz_group *group)
{
    void *state;
    CZ_TRY(make_state(h, k, group, &state));
    if (!k->around)
        return cz_ddp_register_hook_by_name(h->ddp, k->hook, state);
    h->inner = (cz_hook)CZ_HOOK_INIT;
    CZ_TRY(cz_hook_find(&h->inner, k->hook, h->model, state));
    if (!k->recorded)
        return cz_ddp_register_hook_by_name(h->ddp, k->around, &h->inner);
    for (int b = 0; b < PARAMS; b++)
        h->records[b] = (cz_hook_record)CZ_HOOK_RECORD_INIT;
    h->recorder = (cz_hook_recorder){sizeof h->recorder, &h->inner, h->records, PARAMS};
    return cz_ddp_register_hook_by_name(h->ddp, "record", &h->recorder);
}

static cz_status hooked_create(hooked *h, cz_group *group)
{
    cz_ddp_options options = CZ_DDP_OPTIONS_INIT;
    options.bucket_bytes = options.first_bucket_bytes = 1000;
    CZ_TRY(make_model(h));
    return cz_ddp_create(&h->ddp, group, h->model, &options);
}

static cz_status add_optimizer(hooked *h, cz_group *group)
{
    cz_zero_options options = CZ_ZERO_OPTIONS_INIT;
    options.ddp = h->ddp;
    return cz_zero_create(&h->zero, group, h->model, cz_rule_adam(), NULL, &options);
}

static void hooked_clear(hooked *h)
{
    cz_zero_destroy(&h->zero);
    cz_ddp_destroy(&h->ddp);
    cz_powersgd_destroy(&h->powersgd);
    cz_group_destroy(&h->local.subgroup);
    cz_model_destroy(&h->model);
}

/* Gradients with digits that rounding takes away, small enough for 16 bits; marks in an order of
 * this rank. */
static cz_status one_pass(hooked *h, int rank, int pass)
{
    static const int strides[] = {1, 2, 3, 5};
    for (int64_t i = 0; i < ELEMENTS; i++)
        h->grads[i] = value(rank + RANKS * pass, i) / 64;
    CZ_TRY(cz_ddp_begin(h->ddp, true));
    for (int k = 0; k < PARAMS; k++)
        CZ_TRY(cz_ddp_mark_ready(h->ddp, (k * strides[(rank + pass) % 4] + rank) % PARAMS));
    CZ_TRY(cz_ddp_finish(h->ddp));
    return h->zero ? cz_zero_step(h->zero, NULL, NULL) : CZ_OK;
}

/* ---- the same bits ---- */

typedef struct outcome {
    float grads[PASSES][ELEMENTS], values[ELEMENTS];
} outcome;

static cz_status run_kind(cz_group *group, const kind *k, outcome *out)
{
    hooked *h = calloc(1, sizeof *h);
    cz_status status = h ? hooked_create(h, group) : cz_fail(CZ_ERR_MEMORY, "test");
    if (status == CZ_OK && k->zero)
        status = add_optimizer(h, group);
    if (status == CZ_OK)
        status = register_hook(h, k, group);
    for (int pass = 0; pass < PASSES && status == CZ_OK; pass++) {
        status = one_pass(h, cz_group_rank(group), pass);
        memcpy(out->grads[pass], h->grads, sizeof h->grads);
    }
    if (status == CZ_OK)
        memcpy(out->values, h->values, sizeof h->values);
    if (h)
        hooked_clear(h);
    free(h);
    return status;
}

static outcome on_threads[KINDS][RANKS], on_mpi;

static cz_status thread_rank(cz_group *group, void *context)
{
    for (int k = 0; k < KINDS; k++)
        CZ_TRY(run_kind(group, &kinds[k], &on_threads[k][cz_group_rank(group)]));
    return CZ_OK;
}

static void run_on_threads(void)
{
    cz_launch_options options = CZ_LAUNCH_OPTIONS_INIT;
    options.ranks = world_size;
    setenv("CZERO_BACKEND", "threads", 1);
    OK(cz_launch(thread_rank, NULL, &options));
    unsetenv("CZERO_BACKEND");
    for (int r = 0; r < world_size; r++)
        CHECK(on_threads[0][r].values[1] != 0, "rank %d was not in this process", r);
}

static void check_that_all_are_here(void)
{
    for (int n = 0; cz_hook_name(n); n++) {
        int found = 0;
        for (int k = 0; k < KINDS; k++)
            found += strcmp(kinds[k].hook, cz_hook_name(n)) == 0 ||
                     (kinds[k].around && strcmp(kinds[k].around, cz_hook_name(n)) == 0);
        CHECK(found, "hook '%s' is not tried", cz_hook_name(n));
    }
}

static void train(cz_group *group)
{
    check_that_all_are_here();
    run_on_threads();
    for (int k = 0; k < KINDS; k++) {
        const outcome *wanted = &on_threads[k][my_rank];
        OK(run_kind(group, &kinds[k], &on_mpi));
        for (int pass = 0; pass < PASSES; pass++)
            CHECK(memcmp(on_mpi.grads[pass], wanted->grads[pass], sizeof wanted->grads[0]) == 0,
                  "%s (%d), pass %d: gradients differ", kinds[k].hook, k, pass);
        CHECK(memcmp(on_mpi.values, wanted->values, sizeof wanted->values) == 0,
              "%s (%d): values differ", kinds[k].hook, k);
    }
}

/* ---- one rank fails ---- */

typedef struct unlucky {
    int at; /* 0: at once, 1: in a continuation, 2: not at all */
} unlucky;

static bool is_due(const unlucky *u, int at, const cz_bucket *bucket)
{
    cz_bucket_info info = CZ_BUCKET_INFO_INIT;
    return u->at == at && cz_bucket_get_info(bucket, &info) == CZ_OK && info.index == 1 &&
           my_rank == world_size - 1;
}

static const unlucky *the_unlucky;

static cz_status second(cz_status status, void *context)
{
    cz_bucket *bucket = context;
    if (status != CZ_OK || is_due(the_unlucky, 1, bucket))
        return status != CZ_OK ? status : cz_fail(CZ_ERR_UNSUPPORTED, "no luck");
    cz_bucket_info info = CZ_BUCKET_INFO_INIT;
    CZ_TRY(cz_bucket_get_info(bucket, &info));
    return cz_all_reduce(info.group, info.buffer, info.count, CZ_F32, CZ_AVERAGE, NULL);
}

static cz_status run_unlucky(void *state, cz_bucket *bucket)
{
    cz_work *work = NULL;
    if (is_due(state, 0, bucket))
        return cz_fail(CZ_ERR_UNSUPPORTED, "no luck");
    cz_bucket_info info = CZ_BUCKET_INFO_INIT;
    CZ_TRY(cz_bucket_get_info(bucket, &info));
    CZ_TRY(cz_barrier(info.group, CZ_START("first", &work)));
    const cz_status status = cz_work_then(work, second, bucket);
    cz_work_destroy(&work);
    return status;
}

/* One sentence on all ranks. */
static void expect_failure(cz_status got, cz_group *group)
{
    char why[320] = "", first[320];
    snprintf(why, sizeof why, "%s", cz_last_error());
    CHECK(got == CZ_ERR_UNSUPPORTED && strstr(why, "'unlucky' failed in bucket 1") &&
              strstr(why, "parameter 'p") && strstr(why, "no luck"),
          "%s: %s", cz_status_name(got), why);
    memcpy(first, why, sizeof first);
    OK(cz_broadcast(group, first, sizeof first, CZ_U8, 0, NULL));
    CHECK(strcmp(first, why) == 0, "'%s' on rank 0, '%s' here", first, why);
}

/* A division by 64 rounds nothing, before the sum or after it. */
static void check_mean(const hooked *h, int pass)
{
    for (int64_t i = 0; i < ELEMENTS; i++) {
        const float mean = tree_sum(RANKS * pass, world_size, i) / 64 / (float)world_size;
        CHECK(h->grads[i] == mean, "element %d is %g, wanted %g", (int)i, (double)h->grads[i],
              (double)mean);
    }
}

static void fails(cz_group *group)
{
    static hooked h;
    static unlucky u = {.at = 2};
    const cz_hook hook = {sizeof hook, "unlucky", CZ_HOOK_WHOLE, run_unlucky, &u, NULL};
    the_unlucky = &u;
    OK(hooked_create(&h, group));
    OK(cz_ddp_register_hook(h.ddp, &hook));
    for (int round = 0; round < 6; round++) {
        u.at = round % 2;
        expect_failure(one_pass(&h, my_rank, round), group);
        u.at = 2;
        OK(one_pass(&h, my_rank, round));
        check_mean(&h, round);
    }
    hooked_clear(&h);
}

int main(int argc, char **argv)
{
    cz_group *group;
    cz_mpi_options mpi = CZ_MPI_OPTIONS_INIT;
    cz_group_options options = CZ_GROUP_OPTIONS_INIT;
    const level *at = begin(argc, argv);
    CHECK(world_size <= RANKS, "at most %d", RANKS);
    mpi.serialized_is_ours = at->ours;
    options.timeout_seconds = 60;
    OK(cz_group_create_mpi(&group, MPI_COMM_WORLD, &mpi, &options));
    if (argc > 2 && strcmp(argv[2], "train") == 0)
        train(group);
    if (argc > 2 && strcmp(argv[2], "fails") == 0)
        fails(group);
    cz_group_destroy(&group);
    MPI_Finalize();
    return 0;
}
