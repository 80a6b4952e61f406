/* SPDX-License-Identifier: MIT */
/* Values in memory that ranks share: the bits of one unsharded process, whatever the step and where
 * it is made; an owner writes no sooner than all ranks have read; what cannot be right is refused
 * by name. */
#include "group/group_test.h"

#include "czero/averaging.h"
#include "czero/hooks.h"
#include "czero/shared.h"
#include "support/passes.h"
#include "support/training.h"

enum { PARAMS = 9, STEPS = 5 };
static const int64_t sizes[PARAMS] = {40, 0, 3, 131, 7, 16, 9000, 1, 64};
static const int worlds[] = {1, 2, 3, 5, 7};
enum { WORLDS = sizeof worlds / sizeof *worlds };

/* ---- the same bits ---- */

static cz_test_training training(void)
{
    static const cz_hyper hypers[] = {{"lr", 0.5}, {NULL, 0}};
    return (cz_test_training){.param_count = PARAMS,
                              .sizes = sizes,
                              .dtype = CZ_F32,
                              .shared = true,
                              .rule = cz_rule_adam(),
                              .hypers = hypers,
                              .steps = STEPS};
}

/* Nothing but gradients and agreements travels: what was sent is less than all values. */
static cz_status sends_no_values(const cz_test_subject *subject, cz_group *group)
{
    cz_trace_totals sync = CZ_TRACE_TOTALS_INIT;
    CZ_TRY(cz_zero_trace(subject->zero, CZ_TRACE_SYNC, &sync));
    return sync.bytes == 0 ? CZ_OK
                           : cz_fail(CZ_ERR_STATE, "%llu bytes of values were brought",
                                     (unsigned long long)sync.bytes);
}

static void train(const cz_test_training *t, int world, const char *what)
{
    char why[256];
    if (cz_test_train(t, world, sends_no_values, why) != CZ_OK)
        fail_msg("%s, world size %d, partition %d, gradients %d: %s", what, world,
                 (int)t->partition, (int)t->gradients, why);
}

static void in_every_mode(cz_test_training t, const char *what)
{
    int owners[PARAMS];
    for (int k = 0; k < WORLDS * 3 * 2; k++) {
        const int world = worlds[k / 6];
        for (int p = 0; p < PARAMS; p++)
            owners[p] = (p * p + 1) % world;
        t.partition = (cz_partition)(k % 3);
        t.gradients = k / 3 % 2 ? CZ_GRADIENTS_REDUCED : CZ_GRADIENTS_LOCAL;
        t.owners = t.partition == CZ_PARTITION_GIVEN ? owners : NULL;
        t.flat = k & 1;
        train(&t, world, what);
    }
}

TEST(steps_on_shared_values_have_the_bits_of_one_process)
{
    in_every_mode(training(), "adam");
    cz_test_training t = training();
    t.rule = cz_rule_sgd();
    t.hypers = CZ_HYPERS({"lr", 0.5}, {"momentum", 0.75});
    t.dtype = CZ_F64;
    in_every_mode(t, "sgd");
}

/* Partial sums: an update in two passes. */
TEST(a_rule_with_sums)
{
    cz_test_training t = training();
    t.rule = cz_test_probe_rule();
    t.hypers = NULL;
    in_every_mode(t, "sums");
}

static bool some(int rank, int step, int64_t param)
{
    return (rank + step + param) % 3 != 0;
}

TEST(gradients_of_some_ranks)
{
    cz_test_training t = training();
    t.has_gradient = some;
    for (int k = 0; k < WORLDS * 2; k++) {
        t.partition = (cz_partition)(k % 2);
        train(&t, worlds[k / 2], "some gradients");
    }
}

/* Frozen for a while, owners change, a clipped step is a step in parts. */
static cz_status reshape(const cz_test_subject *subject, int step)
{
    CZ_TRY(cz_model_set_requires_grad(subject->model, 3, step != 1 && step != 2));
    if (!subject->zero || step < 1)
        return CZ_OK;
    return cz_zero_reshard(subject->zero, step % 2 ? CZ_PARTITION_GREEDY : CZ_PARTITION_ELEMENTS,
                           NULL, 0);
}

TEST(owners_change)
{
    cz_test_training t = training();
    t.edit = reshape;
    for (int k = 0; k < WORLDS; k++)
        train(&t, worlds[k], "owners change");
}

/* ---- inside passes ---- */

typedef struct mode {
    cz_overlap overlap;
    bool late, all_reduce;
    const char *hook;
} mode;
static const mode modes[] = {{CZ_OVERLAP_NONE, false, false, NULL},
                             {CZ_OVERLAP_INTERLEAVED, false, false, NULL},
                             {CZ_OVERLAP_INTERLEAVED, true, false, NULL},
                             {CZ_OVERLAP_STEP, false, false, NULL},
                             {CZ_OVERLAP_INTERLEAVED, false, false, "reduce_scatter"},
                             {CZ_OVERLAP_INTERLEAVED, true, true, "all_reduce"}};
enum { MODES = sizeof modes / sizeof *modes, PARTITIONS = 5 };

static cz_test_passes passes(void)
{
    return (cz_test_passes){.param_count = PARAMS,
                            .sizes = sizes,
                            .dtype = CZ_F32,
                            .shared = true,
                            .rule = cz_rule_adam(),
                            .buckets = CZ_DDP_OPTIONS_INIT};
}

/* Every mode with every partition and number of ranks over the rounds. */
static void pass(cz_test_passes t, const char *what)
{
    static const size_t caps[] = {1, 64, 300, 1200, 1 << 20};
    for (int k = 0; k < MODES * PARTITIONS; k++) {
        const mode *m = &modes[k % MODES];
        const int world = worlds[(k + k / MODES) % WORLDS];
        const cz_test_stretch stretches[] = {
            {world, STEPS - 2, (cz_partition)(k / MODES), m->overlap},
            {worlds[k % WORLDS], 2, (cz_partition)((k + 1) % PARTITIONS), m->overlap},
            {0, 0, CZ_PARTITION_ELEMENTS, CZ_OVERLAP_NONE}};
        char why[256];
        t.late = m->late;
        t.hook = m->hook;
        t.buckets.all_reduce = m->all_reduce;
        t.buckets.bucket_bytes = t.buckets.first_bucket_bytes = caps[(k + k / MODES) % 5];
        t.flat = k & 1;
        t.views = t.flat; /* where nothing moves */
        if (cz_test_passes_run(&t, stretches, why) != CZ_OK)
            fail_msg("%s, world size %d, mode %d, partition %d: %s", what, world, k % MODES,
                     k / MODES, why);
    }
}

static bool uses_some(int rank, int step, int micro, int64_t param)
{
    return param == 6 || (rank * 5 + step * 3 + param) % 4 != 0;
}

static int twice(int64_t param)
{
    return param % 3 == 0 ? 2 : 1;
}

static int three_micro_batches(int step)
{
    return 1 + step % 3;
}

TEST(passes)
{
    pass(passes(), "passes");
}

TEST(passes_of_every_kind)
{
    cz_test_passes t = passes();
    t.marks = twice;
    t.micro_batches = three_micro_batches;
    pass(t, "several marks");
    t = passes();
    t.uses = uses_some;
    t.buckets.find_unused = true;
    pass(t, "unused parameters");
    t = passes();
    t.threads = 3;
    pass(t, "threads that mark");
}

TEST(a_sub_group)
{
    cz_test_passes t = passes();
    char why[256];
    t.sub_group = true;
    for (int overlap = 0; overlap < 3; overlap++) {
        const cz_test_stretch stretch = {3, STEPS, CZ_PARTITION_ELEMENTS, (cz_overlap)overlap};
        if (cz_test_passes_on(&t, stretch, why) != CZ_OK)
            fail_msg("a sub-group, overlap %d: %s", overlap, why);
    }
}

/* ---- the order of reads and writes ---- */

typedef struct wait {
    atomic_int inside; /* ranks that are about to step, or do */
    bool whole_steps;  /* a step that is no single pass */
} wait;

/* The last rank comes late, and reads until it does: nobody may have written. */
static cz_status come_late(cz_group *group, void *context)
{
    wait *w = context;
    const int size = cz_group_size(group), rank = cz_group_rank(group);
    const cz_test_training t = training();
    cz_step_options options = CZ_STEP_OPTIONS_INIT;
    cz_test_memory memory;
    cz_zero *zero = NULL;
    cz_status status = cz_test_memory_share(&memory, &t, group);
    options.norm = w->whole_steps;
    THEN(cz_zero_create(&zero, group, memory.model, t.rule, t.hypers, NULL));
    for (int step = 1; step <= STEPS && status == CZ_OK; step++) {
        float before[131];
        memcpy(before, memory.values[3], sizeof before);
        for (int64_t i = 0; i < sizes[3]; i++)
            ((float *)memory.grads[3])[i] = (float)(rank + i);
        if (rank == size - 1) {
            if (!comes(&w->inside, step * (size - 1)))
                status = cz_fail(CZ_ERR_STATE, "the others do not come");
            usleep(2000);
            if (memcmp(before, memory.values[3], sizeof before) != 0)
                status = cz_fail(CZ_ERR_STATE, "step %d: values were written too early", step);
        } else {
            atomic_fetch_add(&w->inside, 1);
        }
        const cz_status stepped = cz_zero_step(zero, &options, NULL);
        status = status == CZ_OK ? stepped : status;
        if (status == CZ_OK && memcmp(before, memory.values[3], sizeof before) == 0)
            status = cz_fail(CZ_ERR_STATE, "step %d: nothing was updated", step);
    }
    cz_zero_destroy(&zero);
    cz_test_memory_destroy(&memory);
    return status;
}

TEST(nobody_writes_before_all_have_read)
{
    for (int world = 2; world <= 3; world++)
        for (int whole = 0; whole < 2; whole++) {
            wait w = {.whole_steps = whole};
            expect_ok(world, 0, come_late, &w);
        }
}

/* ---- a reader that breaks the rule ---- */

typedef enum misuse { NONE, MARKS_UNASKED, ASKS_AFTER_MARK } misuse;

typedef struct reader {
    cz_group *group;
    cz_test_memory memory;
    cz_ddp *ddp;
    cz_zero *zero;
} reader;

/* Rank 1 does it in the second pass, with parameter 3. */
static cz_status read_pass(reader *r, int pass, misuse wrong)
{
    const bool here = pass == 1 && cz_group_rank(r->group) == 1;
    CZ_TRY(cz_ddp_begin(r->ddp, true));
    for (int64_t p = 0; p < PARAMS; p++)
        if (!(here && wrong == MARKS_UNASKED && p == 3))
            CZ_TRY(cz_zero_wait_param(r->zero, p));
    for (int64_t p = PARAMS - 1; p >= 0; p--)
        (void)cz_ddp_mark_ready(r->ddp, p); /* what fails here fails at the end */
    if (here && wrong == ASKS_AFTER_MARK &&
        (cz_zero_wait_param(r->zero, 3) != CZ_ERR_STATE ||
         !strstr(cz_last_error(), "rank 1 asks for parameter 3 'p3' after its last mark")))
        return cz_fail(CZ_ERR_INTERNAL, "asked after its mark: %s", cz_last_error());
    const cz_status status = cz_ddp_finish(r->ddp);
    if (wrong == MARKS_UNASKED && pass == 1)
        return status == CZ_ERR_STATE &&
                       strstr(cz_last_error(), "rank 1 marks parameter 3 'p3', which it has not")
                   ? CZ_OK
                   : cz_fail(CZ_ERR_INTERNAL, "marked unasked: %s", cz_last_error());
    return status == CZ_OK ? cz_zero_step(r->zero, NULL, NULL) : status;
}

static cz_status read_passes(reader *r, misuse wrong)
{
    const cz_test_training t = training();
    cz_zero_options options = CZ_ZERO_OPTIONS_INIT;
    CZ_TRY(cz_test_memory_share(&r->memory, &t, r->group));
    CZ_TRY(cz_ddp_create(&r->ddp, r->group, r->memory.model, NULL));
    options.ddp = r->ddp;
    options.overlap = CZ_OVERLAP_INTERLEAVED;
    options.overlap_gather = 1;
    CZ_TRY(cz_zero_create(&r->zero, r->group, r->memory.model, t.rule, t.hypers, &options));
    for (int pass = 0; pass < 3; pass++)
        CZ_TRY(read_pass(r, pass, wrong));
    return CZ_OK;
}

static cz_status reader_body(cz_group *group, void *context)
{
    reader r = {.group = group};
    const cz_status status = read_passes(&r, *(const misuse *)context);
    cz_zero_destroy(&r.zero);
    cz_ddp_destroy(&r.ddp);
    cz_test_memory_destroy(&r.memory);
    return status;
}

TEST(readers_out_of_order)
{
    cz_group_options checked = CZ_GROUP_OPTIONS_INIT;
    checked.checked = 1;
    checked.timeout_seconds = 60;
    for (misuse wrong = NONE; wrong <= ASKS_AFTER_MARK; wrong++)
        for (int world = 2; world <= 3; world++) {
            outcome outcomes[MANY_RANKS];
            run_ranks(world, &checked, reader_body, &wrong, outcomes);
            for (int r = 0; r < world; r++)
                if (outcomes[r].status != CZ_OK)
                    fail_msg("misuse %d, rank %d of %d: %s", (int)wrong, r, world,
                             outcomes[r].sentence);
        }
}

/* ---- values from one rank, and from a dictionary ---- */

/* They are there already; nothing travels. */
static cz_status broadcast(cz_group *group, void *context)
{
    const cz_test_training t = training();
    cz_group_info before = CZ_GROUP_INFO_INIT, after = before;
    cz_test_memory memory;
    cz_zero *zero = NULL;
    cz_status status = cz_test_memory_share(&memory, &t, group);
    THEN(cz_zero_create(&zero, group, memory.model, t.rule, t.hypers, NULL));
    THEN(cz_group_get_info(group, &before));
    if (status == CZ_OK && cz_group_rank(group) == 1)
        ((float *)memory.values[0])[5] = 77;
    for (int k = 0; k < 2 && status == CZ_OK; k++)
        status = cz_zero_broadcast_parameters(zero, 1);
    THEN(cz_zero_check_replicas(zero));
    THEN(cz_group_get_info(group, &after));
    if (status == CZ_OK && ((float *)memory.values[0])[5] != 77)
        status = cz_fail(CZ_ERR_STATE, "rank 1's value did not come");
    if (status == CZ_OK && after.sent_bytes - before.sent_bytes > 36000)
        status = cz_fail(CZ_ERR_STATE, "%llu bytes were sent",
                         (unsigned long long)(after.sent_bytes - before.sent_bytes));
    cz_zero_destroy(&zero);
    cz_test_memory_destroy(&memory);
    return status;
}

TEST(broadcast)
{
    expect_ok(3, 0, broadcast, NULL);
}

/* ---- refusals ---- */

typedef struct place {
    cz_shared *shared;
    void *block; /* in it */
    float own[64];
    cz_model *model;
} place;

/* Two parameters of 8 elements: `first` and `second` give the address of each. */
static cz_status make_model(place *at, float *first, float *second)
{
    cz_model_destroy(&at->model);
    CZ_TRY(cz_model_create(&at->model));
    CZ_TRY(cz_model_add(at->model, "first", first, at->own + 32, CZ_F32, 1, (int64_t[]){8}));
    return cz_model_add(at->model, "second", second, at->own + 40, CZ_F32, 1, (int64_t[]){8});
}

static cz_status refused(cz_group *group, const place *at, const cz_zero_options *options,
                         cz_status wanted, const char *sentence)
{
    cz_zero *zero = NULL;
    const cz_status status = cz_zero_create(&zero, group, at->model, cz_rule_adam(), NULL, options);
    if (status == wanted && !zero && strstr(cz_last_error(), sentence))
        return CZ_OK;
    const cz_status wrong = cz_fail(CZ_ERR_STATE, "wanted '%s', got %s '%.150s'", sentence,
                                    cz_status_name(status), status ? cz_last_error() : "");
    cz_zero_destroy(&zero);
    return wrong;
}

static void told(int64_t param, void *value, void *context)
{
}

static cz_status refuse_places(cz_group *group, place *at)
{
    const int rank = cz_group_rank(group);
    float *shared = at->block;
    CZ_TRY(make_model(at, shared, at->own));
    CZ_TRY(refused(group, at, NULL, CZ_ERR_ARGUMENT, "'second' is not; wanted all or none"));
    CZ_TRY(make_model(at, rank ? at->own : shared, rank ? at->own + 8 : shared + 8));
    CZ_TRY(refused(group, at, NULL, CZ_ERR_MISMATCH,
                   "the memory of values is a rank's own on rank 1"));
    CZ_TRY(make_model(at, shared + (rank ? 8 : 0), shared + 16));
    CZ_TRY(
        refused(group, at, NULL, CZ_ERR_MISMATCH, "of parameter 0 'first' is byte 32 on rank 1"));
    CZ_TRY(make_model(at, shared, shared + 8));
    const cz_zero_options views = {
        .size = sizeof views, .parameters_as_bucket_view = 1, .moved = told};
    return refused(group, at, &views, CZ_ERR_UNSUPPORTED, "out of the memory that ranks share");
}

/* Blocks of other groups, and what is no sharded optimizer. */
static cz_status refuse_others(cz_group *group, place *at)
{
    float *shared = at->block;
    cz_group *alone = NULL;
    cz_optim *optim = NULL;
    cz_averager *averager = NULL;
    CZ_TRY(make_model(at, shared, shared + 8));
    CZ_TRY(cz_group_create_self(&alone, NULL));
    const cz_status status = refused(alone, at, NULL, CZ_ERR_ARGUMENT, "share, the group has 1");
    cz_group_destroy(&alone);
    CZ_TRY(status);
    CHECK(cz_optim_create(&optim, at->model, cz_rule_adam(), NULL, NULL) == CZ_ERR_UNSUPPORTED &&
              strstr(cz_last_error(), "writes it once"),
          "an unsharded optimizer: %s", cz_last_error());
    CHECK(cz_averager_create_periodic(&averager, group, at->model, 2, NULL) == CZ_ERR_UNSUPPORTED &&
              strstr(cz_last_error(), "no mean"),
          "an averager: %s", cz_last_error());
    return CZ_OK;
}

static cz_status refuse(cz_group *group, void *context)
{
    place at = {0};
    CZ_TRY(cz_shared_create(&at.shared, group, 64 * sizeof(float), &at.block));
    cz_status status = refuse_places(group, &at);
    THEN(refuse_others(group, &at));
    cz_model_destroy(&at.model);
    cz_shared_destroy(&at.shared);
    return status;
}

TEST(refusals)
{
    expect_ok(2, 0, refuse, NULL);
    expect_ok(3, 0, refuse, NULL);
}
