/* SPDX-License-Identifier: MIT */
/* Shards of a model that mixes f32, bf16 and f16, saved by 3 ranks, loaded by 2 and then by 5, each
 * time cut in another way: the bits of an unsharded optimizer that never stopped. */
#include "base/half.h"
#include "checkpoint/small.h"
#include "czero/archive.h"

enum { PARAMS = 5, MOST = 2600, STAGES = 3, STEPS = 2 };

/* The first is the widest: even cuts are at lines of the narrowest. */
static const int64_t counts[PARAMS] = {37, 2600, 1, 1001, 65};
static const cz_dtype dtypes[PARAMS] = {CZ_F32, CZ_BF16, CZ_F16, CZ_F32, CZ_F16};
static const int worlds[STAGES] = {3, 2, 5};

static char folder[FOLDER_BYTES];

typedef struct trial {
    cz_master master;
    cz_dtype state_dtype;
    cz_partition partitions[STAGES];
    const char *suffix; /* NULL: generations */
    int stage;
} trial;

typedef struct side {
    cz_model *model;
    float values[PARAMS][MOST], gradients[PARAMS][MOST]; /* room for the widest */
} side;

static float number(int64_t a, int64_t b, int64_t c)
{
    return (float)((a * 7919 + b * 104729 + c * 1299709) % 251 - 125) / 64;
}

static void put(cz_dtype dtype, void *to, int64_t i, float value)
{
    if (dtype == CZ_F32)
        ((float *)to)[i] = value;
    else
        ((uint16_t *)to)[i] = dtype == CZ_F16 ? cz__f16_from_f32(value) : cz__bf16_from_f32(value);
}

static cz_status open_side(side **out, int64_t seed)
{
    side *s = *out = calloc(1, sizeof *s);
    CHECK(s, "no memory");
    CZ_TRY(cz_model_create(&s->model));
    for (int p = 0; p < PARAMS; p++) {
        char name[16];
        snprintf(name, sizeof name, "p%d", p);
        for (int64_t i = 0; i < counts[p]; i++)
            put(dtypes[p], s->values[p], i, number(p, i, seed));
        CZ_TRY(
            cz_model_add(s->model, name, s->values[p], s->gradients[p], dtypes[p], 1, &counts[p]));
    }
    return CZ_OK;
}

static void close_side(side **s)
{
    if (*s)
        cz_model_destroy(&(*s)->model);
    free(*s);
    *s = NULL;
}

/* All ranks have the same gradients, of so few bits that their mean is exact. */
static void set_gradients(side *s, int step)
{
    for (int p = 0; p < PARAMS; p++)
        for (int64_t i = 0; i < counts[p]; i++)
            put(dtypes[p], s->gradients[p], i, number(p, i, step + 17));
}

static cz_status want_same(cz_zero *zero, const side *mine, const cz_optim *optim,
                           const side *whole, const char *when)
{
    uint64_t prints[2][2];
    cz_state_dict *dicts[2] = {NULL, NULL};
    for (int p = 0; p < PARAMS; p++)
        CHECK(memcmp(mine->values[p], whole->values[p], sizeof mine->values[p]) == 0,
              "%s: other values of parameter %d", when, p);
    CZ_TRY(cz_zero_fingerprint(zero, prints[0]));
    CZ_TRY(cz_optim_fingerprint(optim, prints[1]));
    CHECK(memcmp(prints[0], prints[1], sizeof prints[0]) == 0, "%s: other state", when);
    CZ_TRY(cz_zero_consolidate_state_dict(zero, CZ_ALL_RANKS));
    cz_status status = cz_zero_state_dict(zero, &dicts[0]);
    THEN(cz_optim_state_dict(optim, &dicts[1]));
    if (status == CZ_OK && !cz_state_dict_equal(dicts[0], dicts[1]))
        status = cz_fail(CZ_ERR_STATE, "%s: dictionaries differ", when);
    cz_state_dict_destroy(&dicts[0]);
    cz_state_dict_destroy(&dicts[1]);
    return status;
}

/* From generations or a consolidated file, and to them. */
static cz_status pass_on(const trial *t, cz_group *group, cz_zero *zero, bool save)
{
    char path[FOLDER_BYTES + 32];
    cz_checkpoint *checkpoint = NULL;
    cz_checkpoint_options of = CZ_CHECKPOINT_OPTIONS_INIT;
    cz_save_options how = CZ_SAVE_OPTIONS_INIT;
    cz_export_options out = CZ_EXPORT_OPTIONS_INIT;
    of.zero = zero;
    how.step = t->stage;
    snprintf(path, sizeof path, "%s/out%s", folder, t->suffix ? t->suffix : "");
    cz_status status = cz_checkpoint_create(&checkpoint, group, folder, &of);
    if (t->suffix)
        THEN(save ? cz_checkpoint_export(checkpoint, path, &out)
                  : cz_checkpoint_import(checkpoint, path, NULL, NULL));
    else
        THEN(save ? cz_checkpoint_save(checkpoint, &how)
                  : cz_checkpoint_load(checkpoint, NULL, NULL));
    cz_checkpoint_destroy(&checkpoint);
    return status;
}

static cz_status go_on(const trial *t, cz_group *group, side *mine, cz_zero *zero, side *whole,
                       cz_optim *optim)
{
    const int begin = t->stage * STEPS;
    for (int step = 0; step < begin; step++) {
        set_gradients(whole, step);
        CZ_TRY(cz_optim_step(optim, NULL, NULL));
    }
    if (t->stage > 0) {
        CZ_TRY(pass_on(t, group, zero, false));
        CZ_TRY(want_same(zero, mine, optim, whole, "loaded"));
    }
    for (int step = begin; step < begin + STEPS; step++) {
        set_gradients(mine, step);
        set_gradients(whole, step);
        CZ_TRY(cz_zero_step(zero, NULL, NULL));
        CZ_TRY(cz_optim_step(optim, NULL, NULL));
        CZ_TRY(want_same(zero, mine, optim, whole, "trained"));
        if (step == begin) {
            CZ_TRY(cz_zero_reshard(zero, t->partitions[(t->stage + 1) % STAGES], NULL, 0));
            CZ_TRY(want_same(zero, mine, optim, whole, "cut anew"));
        }
    }
    CZ_TRY(cz_zero_reshard(zero, t->partitions[t->stage], NULL, 0));
    return pass_on(t, group, zero, true);
}

static cz_status check_archive(const cz_optim *optim)
{
    cz_archive *archive = NULL;
    uint64_t prints[2][2];
    CZ_TRY(cz_archive_open(&archive, folder, CZ_NEWEST));
    cz_status status = cz_archive_fingerprint(archive, prints[0]);
    THEN(cz_optim_fingerprint(optim, prints[1]));
    if (status == CZ_OK && memcmp(prints[0], prints[1], sizeof prints[0]) != 0)
        status = cz_fail(CZ_ERR_STATE, "the archive has other bits");
    cz_archive_destroy(&archive);
    return status;
}

static cz_status each_rank(cz_group *group, void *arg)
{
    const trial *t = arg;
    side *mine = NULL, *whole = NULL;
    cz_zero *zero = NULL;
    cz_optim *optim = NULL;
    cz_zero_options options = CZ_ZERO_OPTIONS_INIT;
    cz_optim_options plain = CZ_OPTIM_OPTIONS_INIT;
    options.partition = t->partitions[t->stage];
    options.master = plain.master = t->master;
    options.state_dtype = plain.state_dtype = t->state_dtype;
    options.seed = plain.seed = 9;
    options.u8_from = plain.u8_from = 100;
    cz_status status = open_side(&mine, t->stage); /* what is loaded is not what was there */
    THEN(open_side(&whole, 0));
    THEN(cz_zero_create(&zero, group, mine->model, cz_rule_adamw(), NULL, &options));
    THEN(cz_optim_create(&optim, whole->model, cz_rule_adamw(), NULL, &plain));
    THEN(go_on(t, group, mine, zero, whole, optim));
    if (!t->suffix)
        THEN(check_archive(optim));
    cz_zero_destroy(&zero);
    cz_optim_destroy(&optim);
    close_side(&mine);
    close_side(&whole);
    return status;
}

static void run(const char *suffix)
{
    static const trial trials[] = {
        {.partitions = {CZ_PARTITION_ELEMENTS, CZ_PARTITION_GREEDY, CZ_PARTITION_ELEMENTS}},
        {.partitions = {CZ_PARTITION_GREEDY, CZ_PARTITION_ELEMENTS, CZ_PARTITION_GREEDY},
         .state_dtype = CZ_BF16},
        {.partitions = {CZ_PARTITION_ELEMENTS, CZ_PARTITION_ELEMENTS, CZ_PARTITION_GREEDY},
         .master = CZ_MASTER_NONE},
        {.partitions = {CZ_PARTITION_ELEMENTS, CZ_PARTITION_GREEDY, CZ_PARTITION_ELEMENTS},
         .master = CZ_MASTER_NONE,
         .state_dtype = CZ_BF16},
        {.partitions = {CZ_PARTITION_ELEMENTS, CZ_PARTITION_GREEDY, CZ_PARTITION_ELEMENTS},
         .state_dtype = CZ_U8},
    };
    char why[256];
    for (size_t k = 0; k < sizeof trials / sizeof *trials; k++) {
        trial t = trials[k];
        t.suffix = suffix;
        make_folder(folder);
        for (t.stage = 0; t.stage < STAGES; t.stage++)
            if (cz_test_run_ranks(worlds[t.stage], each_rank, &t, why) != CZ_OK)
                fail_msg("trial %d, %d ranks: %s", (int)k, worlds[t.stage], why);
        remove_folder(folder);
    }
}

TEST(generations)
{
    run(NULL);
}

TEST(consolidated_files)
{
    run(".safetensors");
}

TEST(files_of_pytorch)
{
    run(".pt");
}
