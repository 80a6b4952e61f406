/* SPDX-License-Identifier: MIT */
/* Parameters as views of buckets: the same bits as where they were, the program is told every
 * address, and gets its own memory back in the end. */
#include <string.h>

#include "support/cz_test.h"
#include "support/training.h"
#include "support/spans.h"
#include "zero/bucket.h"

enum { PARAMS = 7, STEPS = 6 };
static const int64_t sizes[PARAMS] = {9, 0, 4, 100, 1, 33, 4};
static const cz_test_training layout = {.param_count = PARAMS, .sizes = sizes, .dtype = CZ_F32};
static const cz_test_training flat = {
    .param_count = PARAMS, .sizes = sizes, .dtype = CZ_F32, .flat = true};

typedef struct subject {
    cz_test_memory memory;
    void *told[PARAMS];
    int calls;
    cz_zero *zero;
} subject;

static void moved(int64_t param, void *value, void *context)
{
    subject *s = context;
    s->told[param] = value;
    s->calls++;
}

static void clear(subject *s)
{
    cz_zero_destroy(&s->zero);
    cz_test_memory_destroy(&s->memory);
}

static cz_status create(subject *s, cz_group *group, const cz_test_training *training,
                        cz_partition partition, bool views)
{
    static const int64_t members[] = {0, 1, 2, 3, 4};
    const cz_param_group first = {sizeof first, members, 5, NULL};
    cz_zero_options options = CZ_ZERO_OPTIONS_INIT;
    options.partition = partition;
    options.groups = &first;
    options.group_count = 1;
    options.parameters_as_bucket_view = views;
    options.moved = moved;
    options.moved_context = s;
    CZ_TRY(cz_test_memory_create(&s->memory, training));
    memcpy(s->told, s->memory.values, sizeof s->told);
    return cz_zero_create(&s->zero, group, s->memory.model, cz_rule_adam(), NULL, &options);
}

/* Freezing, thawing, a group that is added, other shards. */
static cz_status train(subject *s, cz_group *group)
{
    const cz_param_group second = {sizeof second, (int64_t[]){6, 5}, 2, NULL};
    for (int step = 0; step < STEPS; step++) {
        if (step == 1 || step == 3)
            CZ_TRY(cz_model_set_requires_grad(s->memory.model, 3, step == 3));
        if (step == 2)
            CZ_TRY(cz_zero_add_param_group(s->zero, &second));
        if (step == 4)
            CZ_TRY(cz_zero_reshard(s->zero, CZ_PARTITION_GREEDY, NULL, 0));
        if (step == 5)
            CZ_TRY(cz_zero_reshard(s->zero, CZ_PARTITION_ELEMENTS, NULL, 0));
        for (int p = 0; p < PARAMS; p++)
            for (int64_t i = 0; i < sizes[p]; i++)
                cz_test_store(s->memory.grads[p], CZ_F32, i,
                              cz_test_gradient(cz_group_rank(group), step, i + p));
        CZ_TRY(cz_zero_step(s->zero, NULL, NULL));
    }
    return CZ_OK;
}

static cz_status addresses_are_right(const subject *s)
{
    for (int p = 0; p < PARAMS; p++)
        if (cz__model_value(s->memory.model, p)->data != s->told[p])
            return cz_fail(CZ_ERR_STATE, "the program was not told where parameter %d is", p);
    return CZ_OK;
}

static cz_status values_equal(const subject *a, const subject *b)
{
    for (int p = 0; p < PARAMS; p++)
        if (memcmp(a->told[p], b->told[p], (size_t)sizes[p] * sizeof(float)) != 0)
            return cz_fail(CZ_ERR_STATE, "parameter %d differs", p);
    return CZ_OK;
}

/* In one piece: what a rank owns of parameters in groups, whatever lies between them in the map. */
static cz_status buckets_are_whole(const subject *s, cz_group *group)
{
    for (int r = 0; r < cz_group_size(group); r++) {
        cz_span_iterator iterator;
        cz_span span;
        void *data;
        int64_t count, wanted = 0;
        cz_span_iterate(cz_test_shard_map(s->zero), r, &iterator);
        while (cz_span_next(&iterator, &span))
            if (cz__zero_is_trained(s->zero, span.param))
                wanted += span.end - span.begin;
        find_bucket(s->zero, cz_device_cpu(), r, &data, &count);
        if (count != wanted || !data != !wanted)
            return cz_fail(CZ_ERR_STATE, "the bucket of rank %d has %d elements, wanted %d", r,
                           (int)count, (int)wanted);
    }
    return CZ_OK;
}

static cz_status same_bits(subject *plain, subject *viewed, cz_group *group, cz_partition partition)
{
    CZ_TRY(create(plain, group, &layout, partition, false));
    CZ_TRY(create(viewed, group, &layout, partition, true));
    if (plain->calls != 0 || viewed->calls != 5)
        return cz_fail(CZ_ERR_STATE, "%d and %d calls", plain->calls, viewed->calls);
    CZ_TRY(addresses_are_right(viewed));
    CZ_TRY(buckets_are_whole(viewed, group));
    CZ_TRY(train(plain, group));
    CZ_TRY(train(viewed, group));
    CZ_TRY(addresses_are_right(viewed));
    CZ_TRY(values_equal(plain, viewed));
    CZ_TRY(buckets_are_whole(viewed, group)); /* all are in groups now, and trainable */
    cz_zero_destroy(&viewed->zero);
    for (int p = 0; p < PARAMS; p++)
        if (viewed->told[p] != viewed->memory.values[p])
            return cz_fail(CZ_ERR_STATE, "parameter %d did not come back", p);
    CZ_TRY(addresses_are_right(viewed));
    return values_equal(plain, viewed);
}

static cz_status same_bits_body(cz_group *group, void *context)
{
    subject plain = {0}, viewed = {0};
    const cz_status status = same_bits(&plain, &viewed, group, *(const cz_partition *)context);
    clear(&plain);
    clear(&viewed);
    return status;
}

TEST(the_same_bits_elsewhere)
{
    for (int world = 1; world <= 5; world++) {
        assert_ranks_ok(world, same_bits_body, &(cz_partition){CZ_PARTITION_GREEDY});
        assert_ranks_ok(world, same_bits_body, &(cz_partition){CZ_PARTITION_ELEMENTS});
    }
}

/* A flat block stays; a model that is gone gets nothing back; nobody to tell is an error on all. */
static cz_status edges(subject *s, cz_group *group)
{
    cz_zero_options options = CZ_ZERO_OPTIONS_INIT;
    void *data;
    int64_t count;
    CZ_TRY(create(s, group, &flat, CZ_PARTITION_ELEMENTS, true));
    if (s->calls != 0)
        return cz_fail(CZ_ERR_STATE, "a flat block moved");
    find_bucket(s->zero, cz_device_cpu(), 0, &data, &count);
    if (data != s->memory.values[0] || count == 0)
        return cz_fail(CZ_ERR_STATE, "the bucket of rank 0 has %d elements", (int)count);
    clear(s);
    CZ_TRY(create(s, group, &layout, CZ_PARTITION_GREEDY, true));
    cz_model_destroy(&s->memory.model);
    s->calls = 0;
    cz_zero_destroy(&s->zero);
    if (s->calls != 0)
        return cz_fail(CZ_ERR_STATE, "values of a model that is gone moved");
    clear(s);
    CZ_TRY(cz_test_memory_create(&s->memory, &layout));
    options.parameters_as_bucket_view = 1;
    const cz_status status =
        cz_zero_create(&s->zero, group, s->memory.model, cz_rule_adam(), NULL, &options);
    return status == CZ_ERR_ARGUMENT && strstr(cz_last_error(), "option moved is NULL")
               ? CZ_OK
               : cz_fail(CZ_ERR_STATE, "got %s", cz_status_name(status));
}

RANK_BODY(edges, subject, clear, group)

TEST(edges)
{
    assert_ranks_ok(1, edges_body, NULL);
    assert_ranks_ok(3, edges_body, NULL);
}
