/* SPDX-License-Identifier: MIT */
/* A sharded training of 16-bit values that stops and goes on with another number of ranks and
 * another partition ends with the bits of one process that never stopped. */
#include "checkpoint/small.h"
#include "czero/archive.h"
#include "rule/mixed.h"

enum { STAGES = 5, STEPS = 2 };

static char folder[FOLDER_BYTES];

typedef struct journey {
    cz_dtype first, second, gradient; /* types: two of values */
    cz_master master;
    cz_dtype state_dtype;
    int stage;
    uint64_t wanted[2]; /* fingerprint of the training in one process, after `stage` */
} journey;

/* Every rank has the same gradients, of few enough bits for their mean to be exact. */
static void set_gradients(mixed *m, int step)
{
    mixed_set_gradients(m, step);
    for (int p = 0; m->gradient_dtype == CZ_F32 && p < MIXED_PARAMS; p++)
        for (int64_t i = 0; i < mixed_counts[p]; i++) {
            float *gradient = &m->gradients[p].wide[i];
            *gradient = widen_one(CZ_BF16, narrow_one(CZ_BF16, *gradient));
        }
}

static cz_status train(const journey *j, mixed *m, cz_optim *optim, cz_zero *zero)
{
    for (int step = j->stage * STEPS; step < (j->stage + 1) * STEPS; step++) {
        set_gradients(m, step);
        CZ_TRY(zero ? cz_zero_step(zero, NULL, NULL) : cz_optim_step(optim, NULL, NULL));
    }
    return CZ_OK;
}

static cz_status want(const journey *j, const uint64_t print[2], const char *what)
{
    return memcmp(print, j->wanted, sizeof j->wanted) == 0
               ? CZ_OK
               : cz_fail(CZ_ERR_STATE, "stage %d: other bits %s", j->stage, what);
}

static cz_status stage_of(const journey *j, cz_group *group, mixed *m, cz_zero **zero,
                          cz_checkpoint **checkpoint)
{
    static const cz_partition partitions[] = {CZ_PARTITION_ELEMENTS, CZ_PARTITION_GREEDY};
    cz_zero_options options = CZ_ZERO_OPTIONS_INIT;
    cz_checkpoint_options of = CZ_CHECKPOINT_OPTIONS_INIT;
    cz_save_options save = CZ_SAVE_OPTIONS_INIT;
    uint64_t print[2];
    options.partition = partitions[j->stage / 2 % 2];
    options.master = j->master;
    options.state_dtype = j->state_dtype;
    options.seed = 9;
    CZ_TRY(cz_zero_create(zero, group, m->model, cz_rule_adamw(), NULL, &options));
    of.zero = *zero;
    CZ_TRY(cz_checkpoint_create(checkpoint, group, folder, &of));
    if (j->stage > 0)
        CZ_TRY(cz_checkpoint_load(*checkpoint, NULL, NULL));
    CZ_TRY(train(j, m, NULL, *zero));
    CZ_TRY(cz_zero_fingerprint(*zero, print));
    CZ_TRY(want(j, print, "trained"));
    save.step = j->stage + 1;
    return cz_checkpoint_save(*checkpoint, &save);
}

static cz_status run_stage(cz_group *group, void *arg)
{
    const journey *j = arg;
    cz_zero *zero = NULL;
    cz_checkpoint *checkpoint = NULL;
    mixed *m = calloc(1, sizeof *m);
    if (!m)
        return cz_fail(CZ_ERR_MEMORY, "no memory for a model");
    mixed_create(m, j->first, j->second, j->gradient);
    const cz_status status = stage_of(j, group, m, &zero, &checkpoint);
    cz_checkpoint_destroy(&checkpoint);
    cz_zero_destroy(&zero);
    mixed_destroy(m);
    free(m);
    return status;
}

/* Without ranks: the elements of all parts, each in its place. */
static void look(const journey *j)
{
    cz_archive *archive;
    uint64_t print[2];
    assert_ok(cz_archive_open(&archive, folder, CZ_NEWEST));
    assert_ok(cz_archive_fingerprint(archive, print));
    assert_ok(want(j, print, "in the archive"));
    cz_archive_destroy(&archive);
}

static void travel(journey j)
{
    static const int worlds[STAGES] = {3, 2, 5, 1, 7};
    cz_optim_options options = CZ_OPTIM_OPTIONS_INIT;
    cz_optim *alone;
    char why[256];
    mixed *m = calloc(1, sizeof *m);
    assert_non_null(m);
    mixed_create(m, j.first, j.second, j.gradient);
    options.master = j.master;
    options.state_dtype = j.state_dtype;
    options.seed = 9;
    assert_ok(cz_optim_create(&alone, m->model, cz_rule_adamw(), NULL, &options));
    make_folder(folder);
    for (j.stage = 0; j.stage < STAGES; j.stage++) {
        assert_ok(train(&j, m, alone, NULL));
        assert_ok(cz_optim_fingerprint(alone, j.wanted));
        if (cz_test_run_ranks(worlds[j.stage], run_stage, &j, why) != CZ_OK)
            fail_msg("%d ranks: %s", worlds[j.stage], why);
        look(&j);
    }
    remove_folder(folder);
    cz_optim_destroy(&alone);
    mixed_destroy(m);
    free(m);
}

TEST(masters)
{
    travel((journey){.first = CZ_BF16, .second = CZ_BF16, .gradient = CZ_BF16});
    travel((journey){.first = CZ_F16, .second = CZ_F16, .gradient = CZ_F32});
}

TEST(models_that_mix_types)
{
    travel((journey){.first = CZ_F32, .second = CZ_BF16, .gradient = CZ_BF16});
    travel((journey){.first = CZ_BF16, .second = CZ_F32, .gradient = CZ_F32});
    travel((journey){.first = CZ_F16, .second = CZ_BF16, .gradient = CZ_F16});
}

TEST(no_masters_and_moments_in_16_bits)
{
    travel((journey){.first = CZ_BF16,
                     .second = CZ_F16,
                     .gradient = CZ_BF16,
                     .master = CZ_MASTER_NONE,
                     .state_dtype = CZ_BF16});
    travel(
        (journey){.first = CZ_F32, .second = CZ_BF16, .gradient = CZ_F32, .state_dtype = CZ_BF16});
}
