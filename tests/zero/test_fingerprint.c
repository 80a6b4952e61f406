/* SPDX-License-Identifier: MIT */
/* One number for all values and state: the same however they are dealt out, another one where a bit
 * differs, that of the checkpoint that is saved, and memory that has changed since is named. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "czero/archive.h"
#include "czero/checkpoint.h"
#include "support/cz_test.h"
#include "support/training.h"

enum { PARAMS = 4, STEPS = 3 };
static const int64_t sizes[PARAMS] = {40, 3, 0, 700};

typedef struct trial {
    cz_partition partition;
    const cz_rule *rule;
    cz_dtype dtype;
    bool some; /* one parameter is in no group, one is frozen */
    const char *folder;
    uint64_t print[2], before[2]; /* of an unsharded optimizer */
} trial;

static const cz_hyper rate[] = {{"lr", 0.125}, {0}};
static const int64_t listed[] = {3, 0};
static const cz_param_group two_of_four = {sizeof two_of_four, listed, 2, NULL};

static cz_test_training layout_of(const trial *t)
{
    return (cz_test_training){.param_count = PARAMS, .sizes = sizes, .dtype = t->dtype};
}

/* Gradients whose mean over ranks is exact and the same for any number of them. */
static void fill(const cz_test_memory *memory, cz_dtype dtype, int step)
{
    for (int p = 0; p < PARAMS; p++)
        for (int64_t i = 0; i < sizes[p]; i++)
            cz_test_store(memory->grads[p], dtype, i, cz_test_gradient(p, step, i));
}

static cz_status reference(trial *t)
{
    const cz_test_training layout = layout_of(t);
    cz_optim_options options = CZ_OPTIM_OPTIONS_INIT;
    cz_test_memory memory;
    cz_optim *optim;
    options.groups = t->some ? &two_of_four : NULL;
    options.group_count = t->some;
    CZ_TRY(cz_test_memory_create(&memory, &layout));
    if (t->some)
        CZ_TRY(cz_model_set_requires_grad(memory.model, 0, false));
    CZ_TRY(cz_optim_create(&optim, memory.model, t->rule, rate, &options));
    CZ_TRY(cz_optim_fingerprint(optim, t->before));
    for (int step = 0; step < STEPS; step++) {
        fill(&memory, t->dtype, step);
        CZ_TRY(cz_optim_step(optim, NULL, NULL));
    }
    CZ_TRY(cz_optim_fingerprint(optim, t->print));
    cz_optim_destroy(&optim);
    cz_test_memory_destroy(&memory);
    return CZ_OK;
}

typedef struct subject {
    cz_test_memory memory;
    cz_zero *zero;
} subject;

static cz_status create(subject *s, const trial *t, cz_group *group)
{
    const cz_test_training layout = layout_of(t);
    cz_zero_options options = CZ_ZERO_OPTIONS_INIT;
    options.partition = t->partition;
    options.groups = t->some ? &two_of_four : NULL;
    options.group_count = t->some;
    CZ_TRY(cz_test_memory_create(&s->memory, &layout));
    if (t->some)
        CZ_TRY(cz_model_set_requires_grad(s->memory.model, 0, false));
    return cz_zero_create(&s->zero, group, s->memory.model, t->rule, rate, &options);
}

static void clear(subject *s)
{
    cz_zero_destroy(&s->zero);
    cz_test_memory_destroy(&s->memory);
}

static cz_status is_print(cz_zero *zero, const uint64_t wanted[2], const char *when)
{
    uint64_t print[2];
    CZ_TRY(cz_zero_fingerprint(zero, print));
    if (memcmp(print, wanted, sizeof print) != 0)
        return cz_fail(CZ_ERR_INTERNAL, "%s: another fingerprint", when);
    return cz_zero_check_fingerprint(zero);
}

static cz_status save(const subject *s, const trial *t, cz_group *group)
{
    cz_checkpoint_options options = CZ_CHECKPOINT_OPTIONS_INIT;
    cz_checkpoint *checkpoint;
    options.model = s->memory.model;
    options.zero = s->zero;
    CZ_TRY(cz_checkpoint_create(&checkpoint, group, t->folder, &options));
    const cz_status status = cz_checkpoint_save(checkpoint, NULL);
    cz_checkpoint_destroy(&checkpoint);
    return status;
}

static cz_status train(subject *s, const trial *t, cz_group *group)
{
    CZ_TRY(is_print(s->zero, t->before, "before the first step"));
    for (int step = 0; step < STEPS; step++) {
        fill(&s->memory, t->dtype, step);
        CZ_TRY(cz_zero_step(s->zero, NULL, NULL));
    }
    CZ_TRY(is_print(s->zero, t->print, "after the last step"));
    CZ_TRY(cz_zero_reshard(s->zero, CZ_PARTITION_ELEMENTS, NULL, 0));
    CZ_TRY(is_print(s->zero, t->print, "after new shards"));
    return t->folder ? save(s, t, group) : CZ_OK;
}

static cz_status rank_main(cz_group *group, void *arg)
{
    subject s = {0};
    cz_status status = create(&s, arg, group);
    THEN(train(&s, arg, group));
    clear(&s);
    return status;
}

TEST(the_same_for_every_partition_and_number_of_ranks)
{
    const cz_rule *const rules[] = {cz_rule_adamw(), cz_rule_sgd(), cz_rule_nadam()};
    const cz_partition partitions[] = {CZ_PARTITION_ELEMENTS, CZ_PARTITION_GREEDY};
    const int worlds[] = {1, 2, 3, 5};
    for (int k = 0; k < 3 * 2 * 4; k++) {
        trial t = {.partition = partitions[k / 3 % 2],
                   .rule = rules[k % 3],
                   .dtype = k % 2 ? CZ_F64 : CZ_F32,
                   .some = k >= 12};
        assert_ok(reference(&t));
        assert_ranks_ok(worlds[k / 6], rank_main, &t);
    }
}

TEST(that_of_the_checkpoint)
{
    char folder[] = "fingerprint.XXXXXX", command[64];
    trial t = {.rule = cz_rule_nadam(), .dtype = CZ_F32, .folder = folder};
    cz_archive *archive;
    uint64_t print[2];
    assert_non_null(mkdtemp(folder));
    assert_ok(reference(&t));
    for (int world = 1; world <= 3; world += 2) {
        assert_ranks_ok(world, rank_main, &t);
        assert_ok(cz_archive_open(&archive, folder, CZ_NEWEST));
        assert_ok(cz_archive_fingerprint(archive, print));
        assert_memory_equal(print, t.print, sizeof print);
        cz_archive_destroy(&archive);
    }
    snprintf(command, sizeof command, "rm -r %s", folder);
    assert_int_equal(system(command), 0);
}

/* ---- what has changed ---- */

static cz_status flip(subject *s, cz_group *group)
{
    const void *data;
    int64_t count;
    uint64_t print[2];
    const cz_optim *optim = cz_zero_local_optim(s->zero);
    const int rank = cz_group_rank(group);
    CZ_TRY(expect(cz_zero_check_fingerprint(s->zero), CZ_ERR_STATE, "no fingerprint was taken"));
    fill(&s->memory, CZ_F32, 0);
    CZ_TRY(cz_zero_step(s->zero, NULL, NULL));
    CZ_TRY(cz_zero_fingerprint(s->zero, print));
    CZ_TRY(cz_zero_check_fingerprint(s->zero));
    if (rank == 1) {
        CZ_TRY(cz_optim_state(optim, 3, "exp_avg_sq", 699, &data, &count));
        if (!data) /* the last rank of two has the end of the last parameter */
            CZ_TRY(cz_optim_state(optim, 3, "exp_avg_sq", 0, &data, &count));
        ((uint8_t *)(uintptr_t)data)[2] ^= 4;
    }
    CZ_TRY(
        expect(cz_zero_check_fingerprint(s->zero), CZ_ERR_MISMATCH, "exp_avg_sq of parameter 3"));
    if (!strstr(cz_last_error(), "rank 1") || !strstr(cz_last_error(), "after 1 steps"))
        return cz_fail(CZ_ERR_INTERNAL, "the sentence is: %s", cz_last_error());
    CZ_TRY(cz_zero_step(s->zero, NULL, NULL));
    return expect(cz_zero_check_fingerprint(s->zero), CZ_ERR_STATE,
                  "a step came after the last fingerprint");
}

static cz_status flip_main(cz_group *group, void *arg)
{
    const trial t = {.rule = cz_rule_adamw(), .dtype = CZ_F32};
    subject s = {0};
    cz_status status = create(&s, &t, group);
    THEN(flip(&s, group));
    clear(&s);
    return status;
}

TEST(memory_that_has_changed_is_named)
{
    assert_ranks_ok(2, flip_main, NULL);
}

/* In checked mode the next step finds a value that one rank alone has. */
static cz_status drift(subject *s, cz_group *group)
{
    const int rank = cz_group_rank(group);
    fill(&s->memory, CZ_F32, 0);
    CZ_TRY(cz_zero_step(s->zero, NULL, NULL));
    ((uint8_t *)s->memory.values[3])[100] ^= rank == 1;
    CZ_TRY(expect(cz_zero_step(s->zero, NULL, NULL), CZ_ERR_MISMATCH,
                  "rank 1 holds other values of parameter 3"));
    ((uint8_t *)s->memory.values[3])[100] ^= rank == 1;
    return cz_zero_step(s->zero, NULL, NULL);
}

static cz_status drift_main(cz_group *group, void *arg)
{
    const trial t = {.rule = cz_rule_adamw(), .dtype = CZ_F32};
    subject s = {0};
    cz_status status = create(&s, &t, group);
    THEN(drift(&s, group));
    clear(&s);
    return status;
}

TEST(values_that_drift_are_named_in_checked_mode)
{
    assert_int_equal(setenv("CZERO_DEBUG", "collectives", 1), 0);
    assert_ranks_ok(3, drift_main, NULL);
    assert_int_equal(unsetenv("CZERO_DEBUG"), 0);
}

/* ---- single bits and places ---- */

static void print_of(float *values, uint64_t print[2])
{
    const int64_t shape[] = {64};
    cz_model *model;
    cz_optim *optim;
    assert_ok(cz_model_create(&model));
    assert_ok(cz_model_add(model, "w", values, NULL, CZ_F32, 1, shape));
    assert_ok(cz_optim_create(&optim, model, cz_rule_sgd(), CZ_HYPERS({"lr", 0.5}), NULL));
    assert_ok(cz_optim_fingerprint(optim, print));
    cz_optim_destroy(&optim);
    cz_model_destroy(&model);
}

TEST(every_bit_and_every_place_counts)
{
    float values[64];
    uint64_t plain[2], other[2];
    for (int i = 0; i < 64; i++)
        values[i] = (float)i / 7 - 3;
    print_of(values, plain);
    for (int bit = 0; bit < 64 * 32; bit++) {
        ((uint8_t *)values)[bit / 8] ^= (uint8_t)(1 << bit % 8);
        print_of(values, other);
        assert_true(other[0] != plain[0] && other[1] != plain[1]);
        ((uint8_t *)values)[bit / 8] ^= (uint8_t)(1 << bit % 8);
    }
    for (int i = 1; i < 64; i++) { /* two change places */
        const float first = values[0];
        values[0] = values[i];
        values[i] = first;
        print_of(values, other);
        assert_true(other[0] != plain[0] && other[1] != plain[1]);
        values[i] = values[0];
        values[0] = first;
    }
    print_of(values, other);
    assert_memory_equal(other, plain, sizeof plain);
}

TEST(a_chain_knows_its_links_and_their_order)
{
    const uint64_t a[2] = {1, 2}, b[2] = {3, 4};
    uint64_t chains[5][2] = {{0}};
    cz_fingerprint_chain(chains[0], 1, a);
    cz_fingerprint_chain(chains[0], 2, b);
    cz_fingerprint_chain(chains[1], 1, b);
    cz_fingerprint_chain(chains[1], 2, a);
    cz_fingerprint_chain(chains[2], 1, a);
    cz_fingerprint_chain(chains[2], 3, b);
    cz_fingerprint_chain(chains[3], 1, a);
    cz_fingerprint_chain(chains[4], 1, a);
    cz_fingerprint_chain(chains[4], 2, b);
    assert_memory_equal(chains[0], chains[4], sizeof chains[0]);
    for (int i = 0; i < 4; i++)
        for (int k = 0; k < i; k++)
            assert_true(chains[i][0] != chains[k][0] && chains[i][1] != chains[k][1]);
    cz_fingerprint_chain(NULL, 1, a);
    cz_fingerprint_chain(chains[0], 1, NULL);
}
