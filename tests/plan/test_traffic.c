/* SPDX-License-Identifier: MIT */
/* What ranks send in a step, as planned and as counted: the same number of bytes, on every rank. */
#define LARGE 5000
#include "plan/measure.h"

typedef struct run {
    const cz_plan_options *options;
    const cz_plan *plan;
} run;

static cz_status data_sent(cz_group *group, uint64_t *bytes)
{
    cz_group_info traffic = CZ_GROUP_INFO_INIT;
    CZ_TRY(cz_group_get_info(group, &traffic));
    *bytes = traffic.sent_bytes - traffic.header_bytes;
    return CZ_OK;
}

static cz_status compare(training *t, const run *r)
{
    const int rank = cz_group_rank(t->group);
    uint64_t before, after;
    cz_plan_memory planned = CZ_PLAN_MEMORY_INIT;
    for (int step = 0; step < 2; step++) /* the first passes teach the order of buckets */
        CZ_TRY(training_step(t));
    CZ_TRY(data_sent(t->group, &before));
    CZ_TRY(training_step(t));
    CZ_TRY(data_sent(t->group, &after));
    CZ_TRY(cz_plan_rank(r->plan, rank, &planned));
    return planned.sent_bytes == after - before
               ? CZ_OK
               : cz_fail(CZ_ERR_STATE, "rank %d: %llu bytes planned, %llu sent", rank,
                         (unsigned long long)planned.sent_bytes,
                         (unsigned long long)(after - before));
}

static cz_status each_rank(cz_group *group, void *context)
{
    const run *r = context;
    training t = {0};
    cz_status status = training_open(&t, group, r->options);
    THEN(compare(&t, r));
    training_close(&t);
    return status;
}

static void count(const way *w, const cz_plan_options *o)
{
    char why[256];
    cz_plan *plan = make_plan(o);
    run r = {o, plan};
    if (cz_test_run_ranks(o->world_size, each_rank, &r, why) != CZ_OK)
        fail_msg("%s, %d ranks, %d parts: %s", w->name, o->world_size, o->parts, why);
    cz_plan_destroy(&plan);
}

TEST(as_many_bytes_are_sent_as_planned)
{
    static const int worlds[] = {1, 2, 3, 5, 7};
    static const size_t buckets[] = {1 << 10, 30 << 10, 64 << 20};
    for (int w = 0; w < WAYS; w++)
        for (int k = 0; k < 5; k++) {
            const cz_plan_options o = options_of(&ways[w], worlds[k], buckets[(w + k) % 3]);
            count(&ways[w], &o);
        }
}

TEST(in_parts_as_many_bytes_are_sent_as_planned)
{
    static const int worlds[] = {1, 2, 3, 5, 12};
    static const size_t buckets[] = {1 << 10, 30 << 10, 64 << 20};
    for (int w = 0; w < WAYS; w++)
        for (int k = 0; k < 5 && !ways[w].wire; k++) {
            const cz_plan_options o =
                options_in_parts(&ways[w], worlds[k], buckets[(w + k) % 3], 12);
            count(&ways[w], &o);
        }
}
