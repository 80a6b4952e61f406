/* SPDX-License-Identifier: MIT */
/* What consolidation and loading send and hold, counted below the collectives. */
#include "support/spans.h"
#include "group/internal.h"
#include "zero/large.h"

static atomic_llong sent;

static cz_status count_send(void *endpoint, cz_transfer *transfer)
{
    atomic_fetch_add(&sent, (long long)transfer->bytes);
    return cz__backend_threads.post_send(endpoint, transfer);
}

static void run_counted(int world, cz_rank_main body, void *arg)
{
    cz_backend table = cz__backend_threads;
    void *endpoints[MANY_RANKS];
    cz_group *groups[MANY_RANKS];
    outcome outcomes[MANY_RANKS];
    table.post_send = count_send;
    assert_ok(cz__threads_create(endpoints, world));
    for (int r = 0; r < world; r++)
        assert_ok(cz_group_create_custom(&groups[r], r, world, &table, endpoints[r], NULL));
    run_groups(world, groups, body, arg, outcomes);
    for (int r = 0; r < world; r++)
        if (outcomes[r].status != CZ_OK)
            fail_msg("rank %d of %d: %s", r, world, outcomes[r].sentence);
}

/* ---- a model with much state ---- */

enum { SMALL = 1 << 16, LARGE = SLOW ? SMALL : 1 << 20 };
typedef struct subject {
    cz_model *model;
    cz_zero *zero;
    float *values; /* owned */
} subject;

static void clear(subject *s)
{
    cz_zero_destroy(&s->zero);
    cz_model_destroy(&s->model);
    free(s->values);
}

static cz_status open_subject(subject *s, cz_group *group, cz_partition partition)
{
    const cz_zero_options options = {
        .size = sizeof options, .partition = partition, .gradients = CZ_GRADIENTS_REDUCED};
    CZ_TRY(large_model(&s->model, &s->values));
    CZ_TRY(cz_zero_create(&s->zero, group, s->model, cz_rule_adam(), NULL, &options));
    return cz_zero_step(s->zero, NULL, NULL);
}

static long long state_bytes(void)
{
    return 2 * 8 * scale * (long long)sizeof(float);
}

/* What all ranks send while all of them do it. */
static cz_status measure(subject *s, cz_group *group, cz_status (*what)(subject *, int),
                         int argument, long long *bytes)
{
    CZ_TRY(cz_barrier(group, NULL));
    if (cz_group_rank(group) == 0)
        atomic_store(&sent, 0);
    CZ_TRY(cz_barrier(group, NULL));
    CZ_TRY(what(s, argument));
    CZ_TRY(cz_barrier(group, NULL));
    *bytes = atomic_load(&sent);
    return cz_barrier(group, NULL);
}

static cz_status consolidate(subject *s, int to)
{
    return cz_zero_consolidate_state_dict(s->zero, to);
}

#define BODY(name)                                                                                 \
    static cz_status name##_body(cz_group *group, void *context)                                   \
    {                                                                                              \
        subject s = {0};                                                                           \
        cz_status status = open_subject(&s, group, *(const cz_partition *)context);                \
        if (status == CZ_OK)                                                                       \
            status = name(&s, group);                                                              \
        clear(&s);                                                                                 \
        return status;                                                                             \
    }

/* ---- to one rank the state travels once, what the rank has itself not at all ---- */

static cz_status collect(subject *s, cz_group *group)
{
    const int world = cz_group_size(group);
    long long bytes;
    for (int to = 0; to<world; to += world> 1 ? world - 1 : 1) {
        CZ_TRY(measure(s, group, consolidate, to, &bytes));
        if (bytes > state_bytes() + state_bytes() / 10)
            return cz_fail(CZ_ERR_STATE, "%lld bytes to rank %d, the state has %lld", bytes, to,
                           state_bytes());
    }
    CZ_TRY(measure(s, group, consolidate, CZ_ALL_RANKS, &bytes));
    const long long least = (world - 1) * state_bytes();
    if (bytes > least + least / 10 + 65536)
        return cz_fail(CZ_ERR_STATE, "%lld bytes to all ranks, wanted %lld", bytes, least);
    return CZ_OK;
}
BODY(collect)

static void run_all(const int *worlds, int count, cz_rank_main body)
{
    for (int k = 0; k < count; k++)
        for (int partition = 0; partition < 2; partition++)
            run_counted(worlds[k], body, &(cz_partition){(cz_partition)partition});
}

TEST(consolidation_to_one_rank_sends_the_state_once)
{
    set_scale(LARGE); /* 64 MiB */
    run_all((const int[]){8}, 1, collect_body);
    set_scale(SMALL);
    run_all((const int[]){1, 2, 3, 5, 7, 9}, SLOW ? 4 : 6, collect_body);
}

/* ---- each rank can read its part of the state, all parts are the state, nobody is asked ---- */

static atomic_llong elements_read;

static cz_status read_slot(subject *s, const cz_span *span, const char *slot)
{
    const void *data;
    int64_t count;
    for (int64_t i = span->begin; i < span->end; i += count) {
        CZ_TRY(cz_optim_state(cz_zero_local_optim(s->zero), span->param, slot, i, &data, &count));
        if (!data || count < 1 || ((const float *)data)[0] != 0)
            return cz_fail(CZ_ERR_STATE, "element %d of parameter %d", (int)i, (int)span->param);
        atomic_fetch_add(&elements_read, count < span->end - i ? count : span->end - i);
    }
    return CZ_OK;
}

static cz_status read_own(subject *s, int rank)
{
    cz_span_iterator iterator;
    cz_span span;
    cz_span_iterate(cz_test_shard_map(s->zero), rank, &iterator);
    while (cz_span_next(&iterator, &span)) {
        CZ_TRY(read_slot(s, &span, "exp_avg"));
        CZ_TRY(read_slot(s, &span, "exp_avg_sq"));
    }
    return CZ_OK;
}

static cz_status save_own(subject *s, cz_group *group)
{
    long long bytes;
    if (cz_group_rank(group) == 0)
        atomic_store(&elements_read, 0);
    CZ_TRY(measure(s, group, read_own, cz_group_rank(group), &bytes));
    CHECK(bytes < 65536, "%lld bytes were sent", bytes); /* the barriers' */
    CHECK(atomic_load(&elements_read) == 2 * 8 * scale, "%lld elements",
          atomic_load(&elements_read));
    return CZ_OK;
}
BODY(save_own)

TEST(each_rank_reads_its_own_part_without_messages)
{
    set_scale(SMALL);
    run_all((const int[]){8, 1, 3}, 3, save_own_body);
}

/* ---- loading sends nothing but agreement, and holds nothing but the own share ---- */

static const cz_state_dict *saved;

static cz_status load(subject *s, int unused)
{
    return cz_zero_load_state_dict(s->zero, saved);
}

static cz_status load_share(subject *s, cz_group *group)
{
    const size_t state = cz_memory_bytes(CZ_MEMORY_STATE);
    const size_t dicts = cz_memory_bytes(CZ_MEMORY_STATE_DICT);
    long long bytes;
    CZ_TRY(cz_barrier(group, NULL));
    if (cz_group_rank(group) == 0)
        cz_memory_reset_peak();
    CZ_TRY(measure(s, group, load, 0, &bytes));
    CHECK(bytes < 65536, "%lld bytes were sent", bytes);
    CHECK(cz_memory_peak_bytes(CZ_MEMORY_STATE) <= state, "%zu bytes of state, %zu before",
          cz_memory_peak_bytes(CZ_MEMORY_STATE), state);
    CHECK(cz_memory_peak_bytes(CZ_MEMORY_STATE_DICT) <= dicts, "%zu bytes in dictionaries",
          cz_memory_peak_bytes(CZ_MEMORY_STATE_DICT));
    return cz_barrier(group, NULL);
}
BODY(load_share)

static cz_status save(subject *s, cz_group *group)
{
    cz_state_dict *dict = NULL;
    CZ_TRY(cz_zero_consolidate_state_dict(s->zero, 0));
    if (cz_group_rank(group) != 0)
        return CZ_OK;
    CZ_TRY(cz_zero_state_dict(s->zero, &dict));
    saved = dict;
    return CZ_OK;
}
BODY(save)

TEST(loading_holds_the_own_share_only)
{
    set_scale(SMALL);
    run_counted(8, save_body, &(cz_partition){CZ_PARTITION_ELEMENTS});
    run_all((const int[]){8, 6, 1, 3}, 4, load_share_body);
    cz_state_dict *dict = (cz_state_dict *)saved;
    cz_state_dict_destroy(&dict);
}

int main(void)
{
    gradient = calloc(8 * LARGE, sizeof *gradient);
    if (!gradient)
        return 1;
    const int failures = cz_test_run(NULL, NULL);
    free(gradient);
    return failures;
}
