/* SPDX-License-Identifier: MIT */
/* Parameters that are cut at granules, or not at all: the bits of one unsharded process for every
 * rule, in every way of stepping; how even it is; what is refused. */
#include "group/group_test.h"
#include "shard/shard.h"
#include "support/passes.h"
#include "support/spans.h"
#include "support/stages.h"
#include "zero/every_rule.h"
#include "zero/granules.h"

#include <math.h>
#include <stddef.h>
#include <string.h>

static const int worlds[] = {1, 2, 3, 5, 7};
enum { WORLDS = sizeof worlds / sizeof *worlds };

/* ---- the same bits ---- */

/* Nothing is cut but at a multiple of its granule, and a rank has one span of a parameter. */
static cz_status cuts_at(const cz_test_subject *subject, cz_group *group, int64_t granule)
{
    const cz_shard_map *map = cz_test_shard_map(subject->zero);
    for (int64_t p = 0; p < GRANULE_PARAMS; p++) {
        const int64_t count = granule_sizes[p];
        int64_t unit = granule > 0 ? granule : 1;
        int spans[16] = {0};
        cz_span span;
        if (granule == CZ_GRANULE_ROW && granule_rows[p] > 0)
            unit = count / granule_rows[p];
        if (granule == CZ_GRANULE_WHOLE)
            unit = count + 1;
        for (int64_t e = 0; e < count; e = span.end) {
            if (!cz__shard_map_locate(map, p, e, &span) || span.begin != e)
                return cz_fail(CZ_ERR_STATE, "element %d of parameter %d", (int)e, (int)p);
            if ((span.begin % unit != 0 || (span.end % unit != 0 && span.end != count)))
                return cz_fail(CZ_ERR_STATE, "parameter %d has a span from %d to %d", (int)p,
                               (int)span.begin, (int)span.end);
            if (spans[span.rank]++ > 0)
                return cz_fail(CZ_ERR_STATE, "rank %d has two spans of parameter %d", span.rank,
                               (int)p);
        }
    }
    return CZ_OK;
}

static int64_t asked; /* of the training at hand */

static cz_status cuts_as_asked(const cz_test_subject *subject, cz_group *group)
{
    return cuts_at(subject, group, asked);
}

static cz_test_training training(const cz_rule *rule)
{
    return (cz_test_training){.param_count = GRANULE_PARAMS,
                              .sizes = granule_sizes,
                              .rows = granule_rows,
                              .dtype = CZ_F32,
                              .rule = rule,
                              .steps = 3};
}

static void train(const cz_test_training *t, int world, const char *what)
{
    char why[256];
    if (cz_test_train(t, world, cuts_as_asked, why) != CZ_OK)
        fail_msg("%s of %s, granule %d, world size %d: %s", what, t->rule->name, (int)asked, world,
                 why);
}

TEST(every_rule_with_every_granule)
{
    for (int k = 0; k < EVERY_RULE; k++)
        for (int g = 0; g < GRANULES; g++) {
            cz_rule rule;
            const cz_rule *original = cz_rule_find(every_rule[k].rule);
            if (original->update_tensor) /* is never cut */
                continue;
            cz_test_training t = training(with_granule(&rule, original, granules[g]));
            t.hypers = every_rule[k].hypers;
            t.gradients = (k + g) % 2 ? CZ_GRADIENTS_REDUCED : CZ_GRADIENTS_LOCAL;
            t.flat = k % 3 == 0 && granules[g] != CZ_GRANULE_ROW; /* which has no rows */
            asked = granules[g];
            train(&t, worlds[(k + g) % WORLDS], "steps");
        }
}

TEST(any_number_of_ranks)
{
    for (int world = 1; world <= 9; world++)
        for (int g = 0; g < GRANULES; g++) {
            cz_rule rule;
            cz_test_training t = training(with_granule(&rule, cz_rule_adam(), granules[g]));
            asked = granules[g];
            train(&t, world, "steps");
            t.shared = true;
            train(&t, world, "shared values");
        }
}

/* ---- several kinds in one optimizer ---- */

static cz_status is_mixed(const cz_test_subject *subject, cz_group *group)
{
    static const int64_t of[GRANULE_PARAMS] = {1, 1, 256, 256, 192, 3, 1, 256, 48};
    const cz_shard_map *map = cz_test_shard_map(subject->zero);
    cz_zero_info info = CZ_ZERO_INFO_INIT;
    cz_span span;
    CZ_TRY(cz_zero_get_info(subject->zero, &info));
    if (info.partition != CZ_PARTITION_ELEMENTS)
        return cz_fail(CZ_ERR_STATE, "partition %d", (int)info.partition);
    for (int64_t p = 0; p < GRANULE_PARAMS; p++)
        for (int64_t e = 0; e < granule_sizes[p]; e = span.end)
            if (!cz__shard_map_locate(map, p, e, &span) || e % of[p] != 0)
                return cz_fail(CZ_ERR_STATE, "parameter %d is cut at %d", (int)p, (int)e);
    return CZ_OK;
}

TEST(kinds_mix_and_go_through_dictionaries)
{
    for (int world = 1; world <= 9; world++) {
        cz_test_training t = training(world % 2 ? cz_rule_adam() : cz_rule_lamb());
        const stage list[] = {{world, 3, CZ_PARTITION_ELEMENTS, 0, 0.5, 0},
                              {10 - world, 2, CZ_PARTITION_GREEDY, 64, 0, 5},
                              {worlds[world % WORLDS], 3, CZ_PARTITION_ELEMENTS, 0, 0, 7}};
        char why[256];
        t.groups = granule_groups;
        t.group_count = GRANULE_GROUPS;
        if (cz_test_train(&t, world, is_mixed, why) != CZ_OK)
            fail_msg("world size %d: %s", world, why);
        check_stages(NULL, &t, list, 3, NULL);
    }
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
enum { MODES = sizeof modes / sizeof *modes };

TEST(passes_of_every_kind)
{
    static const size_t caps[] = {1, 300, 2000, 1 << 20};
    for (int k = 0; k < MODES * (GRANULES + 1); k++) {
        const mode *m = &modes[k % MODES];
        const int g = k / MODES, world = worlds[(k + g) % WORLDS];
        const cz_test_stretch stretches[] = {
            {world, 3, CZ_PARTITION_ELEMENTS, m->overlap},
            {worlds[k % WORLDS], 2, CZ_PARTITION_ELEMENTS, m->overlap},
            {0, 0, CZ_PARTITION_ELEMENTS, CZ_OVERLAP_NONE}};
        cz_rule rule;
        char why[256];
        cz_test_passes t = {.param_count = GRANULE_PARAMS,
                            .sizes = granule_sizes,
                            .dtype = k % 2 ? CZ_F32 : CZ_F64,
                            .shared = k % 4 == 1,
                            .rule = cz_rule_adam(),
                            .buckets = CZ_DDP_OPTIONS_INIT,
                            .late = m->late,
                            .hook = m->hook,
                            .flat = k % 3 == 0};
        t.views = t.shared ? t.flat : k % 5 == 0;
        t.buckets.all_reduce = m->all_reduce;
        t.buckets.bucket_bytes = t.buckets.first_bucket_bytes = caps[(k + g) % 4];
        if (g < GRANULES)
            t.rule = with_granule(&rule, cz_rule_adam(), granules[g]);
        t.groups = g < GRANULES ? NULL : granule_groups;
        t.group_count = g < GRANULES ? 0 : GRANULE_GROUPS;
        if (cz_test_passes_run(&t, stretches, why) != CZ_OK)
            fail_msg("world size %d, mode %d, granule %d: %s", world, k % MODES, g, why);
    }
}

/* ---- what is asked for ---- */

typedef struct one_rank {
    cz_group *group;
    cz_test_memory memory;
    cz_zero *zero;
} one_rank;

static cz_status with_rank(cz_group *group, cz_status (*test)(one_rank *r))
{
    const cz_test_training t = training(NULL);
    one_rank r = {.group = group};
    cz_status status = cz_test_memory_create(&r.memory, &t);
    THEN(test(&r));
    cz_zero_destroy(&r.zero);
    cz_test_memory_destroy(&r.memory);
    return status;
}

static cz_status make(one_rank *r, const cz_rule *rule, int64_t granule)
{
    static const int64_t params[] = {0, 1, 2, 3, 4, 5, 6, 7, 8};
    cz_param_group whole = CZ_PARAM_GROUP_INIT;
    cz_zero_options options = CZ_ZERO_OPTIONS_INIT;
    whole.params = params;
    whole.param_count = GRANULE_PARAMS;
    whole.granule = granule;
    options.groups = &whole;
    options.group_count = 1;
    return cz_zero_create(&r->zero, r->group, r->memory.model, rule, NULL, &options);
}

/* Blocks of 6, and rows: of 192 those are blocks, of 3 two of them are one. */
static cz_status both_are_kept(one_rank *r)
{
    cz_rule rule;
    cz_span span;
    CZ_TRY(make(r, with_granule(&rule, cz_rule_adam(), 6), CZ_GRANULE_ROW));
    const cz_shard_map *map = cz_test_shard_map(r->zero);
    for (int64_t e = 0; e < 768; e = span.end)
        if (!cz__shard_map_locate(map, 4, e, &span) || e % 192 != 0)
            return cz_fail(CZ_ERR_STATE, "768 in rows of 192 are cut at %d", (int)e);
    for (int64_t e = 0; e < 255; e = span.end)
        if (!cz__shard_map_locate(map, 5, e, &span) || e % 6 != 0)
            return cz_fail(CZ_ERR_STATE, "255 in rows of 3 are cut at %d", (int)e);
    return CZ_OK;
}

static cz_status wrong_granule(one_rank *r)
{
    cz_rule rule;
    if (make(r, cz_rule_adam(), -3) != CZ_ERR_ARGUMENT || !strstr(cz_last_error(), "granule"))
        return cz_fail(CZ_ERR_STATE, "a group's granule of -3: %.150s", cz_last_error());
    if (make(r, with_granule(&rule, cz_rule_adam(), -3), 0) != CZ_ERR_ARGUMENT ||
        !strstr(cz_last_error(), "rule adam: its granule is -3, wanted: a number of elements"))
        return cz_fail(CZ_ERR_STATE, "a rule's granule of -3: %.150s", cz_last_error());
    return CZ_OK;
}

/* On all ranks, before anything is made. */
static cz_status other_granule(one_rank *r)
{
    if (make(r, cz_rule_adam(), cz_group_rank(r->group) == 1 ? 256 : 0) != CZ_ERR_MISMATCH ||
        !strstr(cz_last_error(), "granule"))
        return cz_fail(CZ_ERR_STATE, "another granule on rank 1: %.150s", cz_last_error());
    return CZ_OK;
}

static cz_status both_are_kept_body(cz_group *group, void *context)
{
    return with_rank(group, both_are_kept);
}

static cz_status wrong_granule_body(cz_group *group, void *context)
{
    return with_rank(group, wrong_granule);
}

static cz_status other_granule_body(cz_group *group, void *context)
{
    return with_rank(group, other_granule);
}

TEST(what_a_rule_and_a_group_ask_for_are_both_kept)
{
    for (int world = 1; world <= 5; world++)
        assert_ranks_ok(world, both_are_kept_body, NULL);
}

TEST(what_is_no_granule_is_refused)
{
    assert_ranks_ok(3, wrong_granule_body, NULL);
    assert_ranks_ok(3, other_granule_body, NULL);
}

/* ---- costs ---- */

static unsigned no_slots(const double *hypers)
{
    return 0;
}

static void nothing_to_prepare(const cz_rule_step *step, double *coefficients, unsigned *flags)
{
}

static void plus_gradient(const cz_tensor_update *update)
{
    float *value = update->param->data;
    for (int64_t i = 0; i < cz_tensor_count(update->param); i++)
        value[i] += ((const float *)update->grad)[i];
}

/* The more, the smaller it is: elements would deal out otherwise. */
static double smaller_is_more(const cz_tensor *param, void *context)
{
    return 1e9 / (double)(10 + cz_tensor_count(param));
}

static double no_number(const cz_tensor *param, void *context)
{
    return cz_tensor_count(param) == 257 ? NAN : 1;
}

static cz_rule whole_rule(double (*cost)(const cz_tensor *, void *))
{
    return (cz_rule){.abi = CZ_RULE_ABI,
                     .size = sizeof(cz_rule),
                     .name = "whole",
                     .slots_used = no_slots,
                     .prepare = nothing_to_prepare,
                     .update_tensor = plus_gradient,
                     .cost = cost};
}

static cz_status is_even_in_cost(const cz_test_subject *subject, cz_group *group)
{
    const cz_shard_map *map = cz_test_shard_map(subject->zero);
    double sums[16] = {0}, most = 0, sum = 0, largest = 0;
    for (int64_t p = 0; p < GRANULE_PARAMS; p++) {
        const cz_tensor tensor = {.dimensions = 1, .shape = {granule_sizes[p]}};
        const double cost = granule_sizes[p] > 0 ? smaller_is_more(&tensor, NULL) : 0;
        sums[cz__shard_map_home(map, p)] += cost;
        sum += cost;
        largest = cost > largest ? cost : largest;
    }
    for (int r = 0; r < cz_group_size(group); r++)
        most = sums[r] > most ? sums[r] : most;
    const double mean = sum / cz_group_size(group);
    if (most > 1.05 * mean && most > largest * 1.0001)
        return cz_fail(CZ_ERR_STATE, "the fullest rank has %g times the mean", most / mean);
    return CZ_OK;
}

TEST(whole_tensors_are_dealt_out_by_their_cost)
{
    const cz_rule rule = whole_rule(smaller_is_more);
    cz_test_training t = training(&rule);
    char why[256];
    for (int world = 1; world <= 5; world++)
        if (cz_test_train(&t, world, is_even_in_cost, why) != CZ_OK)
            fail_msg("world size %d: %s", world, why);
}

/* A table of an older program has none of the new fields, and what is behind it is not read. */
TEST(a_shorter_table_asks_for_nothing)
{
    cz_rule rule = whole_rule(no_number);
    rule.size = offsetof(cz_rule, granule);
    rule.granule = -77;
    cz_test_training t = training(&rule);
    char why[256];
    if (cz_test_train(&t, 3, NULL, why) != CZ_OK)
        fail_msg("%s", why);
    rule.size--;
    assert_int_equal(cz_test_train(&t, 1, NULL, why), CZ_ERR_UNSUPPORTED);
}

static cz_status costs_nothing_known(one_rank *r)
{
    const cz_rule rule = whole_rule(no_number);
    if (make(r, &rule, 0) != CZ_ERR_ARGUMENT ||
        !strstr(cz_last_error(), "rule whole: the cost of parameter 'p2' is"))
        return cz_fail(CZ_ERR_STATE, "a cost of NaN: %.150s", cz_last_error());
    return CZ_OK;
}

static cz_status costs_nothing_known_body(cz_group *group, void *context)
{
    return with_rank(group, costs_nothing_known);
}

TEST(a_cost_that_is_no_number_is_refused)
{
    assert_ranks_ok(2, costs_nothing_known_body, NULL);
}
