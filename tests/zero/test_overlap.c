/* SPDX-License-Identifier: MIT */
/* Steps inside the passes of a data-parallel model, from the first pass on: with several parameter
 * groups, schedules, checkpoints, sub-groups, frozen and unused parameters, numbers of
 * micro-batches that change, marks in any order and from several threads, and every rule. Always
 * the bits of one unsharded process. */
#include "zero/every_rule.h"
#include "group/group_test.h"
#include "support/passes.h"

enum { PARAMS = 9, STEPS = 6, PARTITIONS = 5 };
static const int64_t sizes[PARAMS] = {40, 0, 3, 131, 7, 16, 300, 1, 64};

typedef struct mode {
    cz_overlap overlap;
    bool late, all_reduce;
    const char *hook;
} mode;
static const mode modes[] = {{CZ_OVERLAP_INTERLEAVED, false, false, NULL},
                             {CZ_OVERLAP_INTERLEAVED, true, false, NULL},
                             {CZ_OVERLAP_STEP, false, false, NULL},
                             {CZ_OVERLAP_INTERLEAVED, false, false, "reduce_scatter"},
                             {CZ_OVERLAP_INTERLEAVED, true, true, "all_reduce"}};
enum { MODES = sizeof modes / sizeof *modes };

static cz_test_passes plain(void)
{
    return (cz_test_passes){.param_count = PARAMS,
                            .sizes = sizes,
                            .dtype = CZ_F32,
                            .rule = cz_rule_adam(),
                            .buckets = CZ_DDP_OPTIONS_INIT};
}

/* Partial sums need all of a parameter's gradient first: then each step is at the end of its
 * pass. */
static mode mode_for(const cz_rule *rule, int k)
{
    mode m = modes[k % MODES];
    if (rule->sum_count > 0) {
        m.overlap = CZ_OVERLAP_STEP;
        m.late = false;
    }
    return m;
}

/* In each mode and partition, on numbers of ranks and with caps that go round; from there on other
 * ranks, and back, with other partitions. */
static void check(cz_test_passes t, const char *what)
{
    static const size_t caps[] = {1, 64, 300, 1200, 1 << 20};
    static const int worlds[] = {1, 2, 3, 5, 7};
    for (int k = 0; k < MODES * PARTITIONS * (SLOW ? 1 : 2); k++) {
        const mode m = mode_for(t.rule, k);
        const int partition = k / MODES % PARTITIONS,
                  world = worlds[(k + k / MODES * 2 + k / 25) % 5];
        const cz_test_stretch stretches[] = {
            {world, STEPS / 2, (cz_partition)partition, m.overlap},
            {1 + (world + k) % 7, 1, (cz_partition)((partition + 1) % PARTITIONS), m.overlap},
            {worlds[k / 3 % 5], STEPS - STEPS / 2 - 1, (cz_partition)((partition + 3) % PARTITIONS),
             m.overlap},
            {0, 0, CZ_PARTITION_ELEMENTS, CZ_OVERLAP_NONE}};
        char why[256];
        t.late = m.late;
        t.hook = m.hook;
        t.buckets.all_reduce = m.all_reduce;
        t.buckets.bucket_bytes = caps[(k + k / MODES) % 5];
        t.buckets.first_bucket_bytes = caps[k / 2 % 5];
        t.flat = k & 1;
        t.views = (k & 2) != 0;
        if (cz_test_passes_run(&t, stretches, why) != CZ_OK)
            fail_msg("%s, world size %d, partition %d, mode %d, caps %zu and %zu: %s", what, world,
                     partition, k % MODES, t.buckets.first_bucket_bytes, t.buckets.bucket_bytes,
                     why);
    }
}

/* ---- several groups ---- */

static const int64_t some[] = {0, 3, 7}, others[] = {8, 1, 2}, rest[] = {6, 5, 4};

TEST(steps_inside_passes_with_several_groups)
{
    const cz_param_group groups[] = {
        {sizeof *groups, some, 3, CZ_HYPERS({"lr", 0.5}, {"weight_decay", 0.125})},
        {sizeof *groups, others, 3, CZ_HYPERS({"lr", 0.25}, {"momentum", 0})},
        {sizeof *groups, rest, 3, CZ_HYPERS({"nesterov", 1}, {"weight_decay", 0.5})}};
    cz_test_passes t = plain();
    t.rule = cz_rule_sgd();
    t.hypers = CZ_HYPERS({"lr", 0.125}, {"momentum", 0.5});
    t.groups = groups;
    t.group_count = 3;
    check(t, "groups");
}

/* ---- rates that change ---- */

static cz_status every_other_step(cz_sched **out, cz_optim *optim)
{
    return cz_sched_create_step(out, optim, 2, 0.5, NULL);
}

TEST(a_schedule)
{
    const cz_param_group groups[] = {{sizeof *groups, some, 3, CZ_HYPERS({"lr", 0.5})},
                                     {sizeof *groups, others, 3, NULL},
                                     {sizeof *groups, rest, 3, CZ_HYPERS({"lr", 0.0625})}};
    cz_test_passes t = plain();
    t.groups = groups;
    t.group_count = 3;
    t.schedule = every_other_step;
    check(t, "schedule");
}

/* ---- checkpoints ---- */

/* Between passes: state is taken out, and what was taken out before is put back and again forth. */
static cz_status take_and_load(const cz_test_subject *subject, cz_group *group, int step)
{
    cz_state_dict *dict = NULL;
    CZ_TRY(cz_zero_consolidate_state_dict(subject->zero, CZ_ALL_RANKS));
    CZ_TRY(cz_zero_state_dict(subject->zero, &dict));
    const cz_status status = cz_zero_load_state_dict(subject->zero, dict);
    cz_state_dict_destroy(&dict);
    return status;
}

TEST(checkpoints_between_passes)
{
    cz_test_passes t = plain();
    t.rule = cz_rule_adamw();
    t.visit = take_and_load;
    check(t, "checkpoints");
}

/* ---- micro-batches; gradients that come and go; frozen parameters ---- */

static int four_one_two(int step)
{
    static const int counts[] = {4, 1, 2};
    return counts[step % 3];
}

TEST(micro_batches)
{
    cz_test_passes t = plain();
    t.micro_batches = four_one_two;
    check(t, "micro-batches");
}

/* One comes in the fourth step, one is gone after the second, one is nobody's every other step, one
 * is rank 0's only, one is not rank 0's. */
static bool comes_and_goes(int rank, int step, int micro, int64_t param)
{
    switch (param) {
    case 0:
        return step >= 3;
    case 3:
        return step < 2;
    case 4:
        return step % 2 == 0;
    case 6:
        return step % 3 != 1 || rank == 0;
    case 8:
        return rank > 0;
    default:
        return true;
    }
}

TEST(gradients_that_come_and_go)
{
    cz_test_passes t = plain();
    t.uses = comes_and_goes;
    t.buckets.find_unused = 1;
    check(t, "unused");
    t.micro_batches = four_one_two;
    check(t, "unused and micro-batches");
}

static cz_status freeze(const cz_test_subject *subject, int step)
{
    CZ_TRY(cz_model_set_requires_grad(subject->model, 3, step >= 2));
    CZ_TRY(cz_model_set_requires_grad(subject->model, 6, step % 2 == 0));
    return cz_model_set_requires_grad(subject->model, 8, step < 1 || step > 3);
}

TEST(frozen_between_steps)
{
    cz_test_passes t = plain();
    t.edit = freeze;
    check(t, "frozen");
    t.dtype = CZ_F64;
    t.micro_batches = four_one_two;
    check(t, "frozen and micro-batches");
}

/* ---- groups that are not the world; threads ---- */

TEST(sub_groups)
{
    cz_test_passes t = plain();
    t.sub_group = true;
    t.edit = freeze;
    check(t, "sub-group");
}

TEST(marks_from_several_threads)
{
    cz_test_passes t = plain();
    t.threads = 3;
    check(t, "threads");
    t.micro_batches = four_one_two;
    t.uses = comes_and_goes;
    t.buckets.find_unused = 1;
    check(t, "threads and unused");
}

/* ---- every rule ---- */

TEST(every_rule)
{
    for (int k = 0; k < EVERY_RULE; k++) {
        cz_test_passes t = plain();
        t.rule = cz_rule_find(every_rule[k].rule);
        t.hypers = every_rule[k].hypers;
        t.dtype = k % 2 ? CZ_F64 : CZ_F32;
        check(t, every_rule[k].rule);
    }
}
