/* SPDX-License-Identifier: MIT */
/* Where things live: the fixed layout, owners that are given, what is trained and what is
 * frozen. */
#include <stdlib.h>

#include "support/cz_test.h"
#include "support/training.h"
#include "support/spans.h"
#include "shard/shard.h"

/* -1 for frozen parameters: they go where the load is least. */
static cz_status given_body(cz_group *group, void *context)
{
    const int64_t sizes[] = {100, 50, 30, 40};
    const int owners[] = {0, 1, -1, -1}, wanted[] = {0, 1, 1, 1};
    const cz_test_training small = {.param_count = 4, .sizes = sizes, .dtype = CZ_F32};
    cz_test_memory memory;
    cz_zero *zero = NULL;
    cz_zero_options options = CZ_ZERO_OPTIONS_INIT;
    options.partition = CZ_PARTITION_GIVEN;
    options.owners = owners;
    options.owner_count = 4;
    cz_status status = cz_test_memory_create(&memory, &small);
    for (int64_t p = 2; p < 4 && status == CZ_OK; p++)
        status = cz_model_set_requires_grad(memory.model, p, false);
    THEN(cz_zero_create(&zero, group, memory.model, cz_rule_adam(), NULL, &options));
    for (int64_t p = 0; p < 4 && status == CZ_OK; p++)
        if (cz__shard_map_home(cz_test_shard_map(zero), p) != wanted[p])
            status = cz_fail(CZ_ERR_STATE, "parameter %d lives on rank %d", (int)p,
                             cz__shard_map_home(cz_test_shard_map(zero), p));
    cz_zero_destroy(&zero);
    cz_test_memory_destroy(&memory);
    return status;
}

TEST(frozen_parameters_get_owners_by_load)
{
    assert_ranks_ok(2, given_body, NULL);
}

static cz_status lives(const cz_test_training *t, cz_group *group, const int64_t *frozen,
                       cz_test_memory *memory, cz_zero **zero)
{
    cz_zero_options options = CZ_ZERO_OPTIONS_INIT;
    options.partition = t->partition;
    CZ_TRY(cz_test_memory_create(memory, t));
    for (; frozen && *frozen >= 0; frozen++)
        CZ_TRY(cz_model_set_requires_grad(memory->model, *frozen, false));
    return cz_zero_create(zero, group, memory->model, cz_rule_adam(), NULL, &options);
}

static void check_spans(const cz_test_training *t, const int64_t *frozen, const cz_span *wanted)
{
    cz_test_memory memory = {0};
    cz_group *group = NULL;
    cz_zero *zero = NULL;
    cz_span_iterator iterator;
    cz_span span;
    assert_ok(cz_group_create_self(&group, NULL));
    assert_ok(lives(t, group, frozen, &memory, &zero));
    cz_span_iterate(cz_test_shard_map(zero), 0, &iterator);
    for (; wanted->end > 0; wanted++) {
        assert_true(cz_span_next(&iterator, &span));
        assert_int_equal(span.param, wanted->param);
        assert_int_equal(span.end, wanted->end);
    }
    assert_false(cz_span_next(&iterator, &span));
    cz_zero_destroy(&zero);
    cz_test_memory_destroy(&memory);
    cz_group_destroy(&group);
}

/* The order of a rank's spans is that of the fixed layout. */
TEST(the_fixed_layout)
{
    static const int64_t sizes[] = {10, 20, 0, 30}, frozen[] = {3, 0, -1};
    cz_test_training t = {.param_count = 4, .sizes = sizes, .dtype = CZ_F32};
    check_spans(&t, NULL, (cz_span[]){{3, 0, 30, 0}, {1, 0, 20, 0}, {0, 0, 10, 0}, {0, 0, 0, 0}});
    check_spans(&t, frozen, (cz_span[]){{1, 0, 20, 0}, {3, 0, 30, 0}, {0, 0, 10, 0}, {0, 0, 0, 0}});
    t.flat = true;
    check_spans(&t, NULL, (cz_span[]){{0, 0, 10, 0}, {1, 0, 20, 0}, {3, 0, 30, 0}, {0, 0, 0, 0}});
    check_spans(&t, frozen, (cz_span[]){{1, 0, 20, 0}, {0, 0, 10, 0}, {3, 0, 30, 0}, {0, 0, 0, 0}});
    t.partition = CZ_PARTITION_GREEDY;
    check_spans(&t, frozen, (cz_span[]){{3, 0, 30, 0}, {1, 0, 20, 0}, {0, 0, 10, 0}, {0, 0, 0, 0}});
}

/* What is trained and what is frozen are each even. */
static cz_status even_body(cz_group *group, void *context)
{
    static const int64_t sizes[] = {1000, 500}, frozen[] = {0, -1};
    const cz_test_training t = {.param_count = 2, .sizes = sizes, .dtype = CZ_F32};
    cz_test_memory memory = {0};
    cz_zero *zero = NULL;
    cz_status status = lives(&t, group, frozen, &memory, &zero);
    int64_t owned[2] = {0, 0};
    cz_span_iterator iterator;
    cz_span span;
    cz_span_iterate(cz_test_shard_map(zero), cz_group_rank(group), &iterator);
    while (cz_span_next(&iterator, &span))
        owned[span.param] += span.end - span.begin;
    for (int p = 0; p < 2 && status == CZ_OK; p++)
        if (llabs((long long)(owned[p] - sizes[p] / cz_group_size(group))) > 16)
            status = cz_fail(CZ_ERR_STATE, "%d elements of parameter %d", (int)owned[p], p);
    cz_zero_destroy(&zero);
    cz_test_memory_destroy(&memory);
    return status;
}

TEST(trained_and_frozen_are_each_even)
{
    assert_ranks_ok(5, even_body, NULL);
}
