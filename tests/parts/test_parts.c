/* SPDX-License-Identifier: MIT */
/* Parts of a batch: the same bits on any number of ranks, which are those of a plain loop that adds
 * the gradients of all parts in a tree and updates with an unsharded optimizer. */
#include "group/group_test.h"
#include "support/part_trials.h"

typedef struct subject {
    const part_trial *trial;
    const part_values *expected;
} subject;

static cz_status rank_main(cz_group *group, void *arg)
{
    const subject *s = arg;
    return part_trial_run(group, s->trial, s->expected);
}

static void try_on(const part_trial *t, const int *worlds, int count, size_t segment_bytes)
{
    part_values e;
    const subject s = {t, &e};
    assert_ok(part_trial_work_out(t, &e));
    for (int w = 0; w < count; w++) {
        cz_group_options options = CZ_GROUP_OPTIONS_INIT;
        outcome outcomes[MANY_RANKS];
        options.timeout_seconds = 60;
        options.segment_bytes = segment_bytes;
        if (worlds[w] > t->parts)
            continue;
        run_ranks(worlds[w], &options, rank_main, (void *)&s, outcomes);
        assert_all_ok(worlds[w], outcomes, "way %d, %d parts, weighing %d, absent %d, norm %g",
                      t->way, t->parts, t->weighing, t->some_absent, t->max_norm);
    }
    part_values_free(&e);
}

enum { ALL_COUNT = 5, FEW_COUNT = 2 };
static const int all_worlds[ALL_COUNT] = {1, 2, 3, 5, 7}, few_worlds[FEW_COUNT] = {1, 3};
/* A sanitizer sees in three ranks what it would see in more. */
#define ALL SANITIZED ? few_worlds : all_worlds, SANITIZED ? FEW_COUNT : ALL_COUNT
#define FEW few_worlds, FEW_COUNT

/* ---- the same bits ---- */

TEST(any_number_of_ranks)
{
    static const int parts[] = {1, 2, 3, 5, 7, 8, 12, 13, 31};
    for (int k = 0; k < (int)(sizeof parts / sizeof *parts); k++) {
        const part_trial t = plain_part_trial(ALONE, parts[k]);
        try_on(&t, ALL, 0);
    }
}

TEST(every_way_of_stepping)
{
    for (int way = 0; way < WAYS; way++) {
        const part_trial t = plain_part_trial((stepping)way, 12);
        try_on(&t, ALL, 0);
    }
}

/* Cut at blocks, or not at all. */
TEST(granules_in_every_way_of_stepping)
{
    static const int64_t granules[] = {3, 256, CZ_GRANULE_WHOLE};
    for (int way = 0; way < WAYS; way++) {
        part_trial t = plain_part_trial((stepping)way, 7);
        cz_rule rule = *cz_rule_adamw();
        rule.granule = granules[way % 3];
        t.rule = &rule;
        try_on(&t, ALL, 0);
    }
}

TEST(large_parameters_and_small_segments)
{
    for (int way = 0; way < WAYS; way++) {
        part_trial t = plain_part_trial((stepping)way, 7);
        t.sizes = large_params;
        t.bucket_bytes = 1 << 16;
        try_on(&t, FEW, way % 2 ? 0 : 256);
        t.some_absent = true;
        try_on(&t, FEW, way % 2 ? 256 : 0);
    }
}

TEST(weights)
{
    for (int way = 0; way < WAYS; way++)
        for (int weighing = UNEVEN; weighing < WEIGHINGS; weighing++) {
            part_trial t = plain_part_trial((stepping)way, 12);
            t.weighing = (weights_kind)weighing;
            try_on(&t, ALL, 0);
        }
}

TEST(as_many_parts_as_ranks)
{
    static const int parts[] = {1, 2, 3, 5};
    for (int way = 0; way < WAYS; way++)
        for (int k = 0; k < (int)(sizeof parts / sizeof *parts); k++)
            for (int weighing = 0; weighing < WEIGHINGS; weighing++) {
                part_trial t = plain_part_trial((stepping)way, parts[k]);
                t.weighing = (weights_kind)weighing;
                try_on(&t, &parts[k], 1, 0);
                t.some_absent = true;
                try_on(&t, &parts[k], 1, 0);
            }
}

TEST(parameters_that_some_parts_do_not_use)
{
    for (int way = 0; way < WAYS; way++) {
        part_trial t = plain_part_trial((stepping)way, 12);
        t.some_absent = true;
        try_on(&t, ALL, 0);
        t.weighing = SOME_ZERO;
        try_on(&t, FEW, 0);
    }
}

TEST(clipping)
{
    static const stepping ways[] = {ALONE, ALONE_WHOLE, OVERLAP_NONE, WHOLE};
    for (int k = 0; k < (int)(sizeof ways / sizeof *ways); k++) {
        part_trial t = plain_part_trial(ways[k], 12);
        t.max_norm = 0.5;
        try_on(&t, ALL, 0);
    }
}

TEST(other_rules_and_types)
{
    static const stepping ways[] = {ALONE, ALONE_WHOLE, OVERLAP_NONE, WHOLE};
    for (int k = 0; k < (int)(sizeof ways / sizeof *ways); k++) {
        part_trial t = plain_part_trial(ways[k], 13);
        t.rule = cz_test_probe_rule(); /* partial sums */
        try_on(&t, FEW, 0);
        t.rule = cz_rule_lamb();
        try_on(&t, FEW, 0);
        t.rule = cz_rule_schedule_free_adamw();
        try_on(&t, FEW, 0);
        t.rule = cz_rule_adam();
        t.dtype = CZ_F64;
        t.weighing = UNEVEN;
        try_on(&t, FEW, 0);
    }
}
