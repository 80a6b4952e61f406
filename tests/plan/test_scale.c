/* SPDX-License-Identifier: MIT */
/* A million parameters of a million elements on 16,384 ranks take no more memory than their lists
 * do. */
#include "czero/plan.h"
#include "support/cz_test.h"

enum { PARAMS = 1000000, RANKS = 16384 };

static cz_shapes *make_shapes(void)
{
    const int64_t shape[] = {1000, 1000};
    char name[40];
    cz_shapes *shapes;
    assert_ok(cz_shapes_create(&shapes));
    for (int p = 0; p < PARAMS; p++) {
        snprintf(name, sizeof name, "transformer.layer%d.weight", p);
        assert_ok(cz_shapes_add(shapes, name, CZ_F32, 2, shape, CZ_SHAPE_PARAM));
    }
    return shapes;
}

static void check(const cz_shapes *shapes, cz_plan_options o)
{
    cz_plan *plan;
    cz_plan_memory least = CZ_PLAN_MEMORY_INIT, most = least, sum = least;
    const int64_t made = cz_test_allocations_made();
    if (cz_plan_create(&plan, shapes, &o) != CZ_OK)
        fail_msg("%s", cz_last_error());
    assert_ok(cz_plan_ranks(plan, &least, &most, NULL, &sum));
    assert_int_equal(most.param_bytes, UINT64_C(4000000000000));
    assert_true(sum.state_bytes >= UINT64_C(8000000000000)); /* and not much more: */
    assert_true(sum.state_bytes <= UINT64_C(8000000000000) + RANKS * UINT64_C(128));
    if (o.partition == CZ_PARTITION_ELEMENTS)
        assert_true(most.state_bytes - least.state_bytes <= 128);
    assert_true(cz_test_allocations_made() - made < 100);
    assert_true(cz_test_allocation_peak() < 200 << 20);
    cz_plan_destroy(&plan);
}

TEST(a_plan_for_many_ranks_needs_little_memory)
{
    cz_shapes *shapes = make_shapes();
    cz_plan_options o = CZ_PLAN_OPTIONS_INIT;
    o.world_size = RANKS;
    check(shapes, o);
    o.partition = CZ_PARTITION_GREEDY;
    check(shapes, o);
    o.partition = CZ_PARTITION_ELEMENTS;
    o.overlap = CZ_OVERLAP_INTERLEAVED;
    check(shapes, o);
    cz_shapes_destroy(&shapes);
    assert_int_equal(cz_test_allocations_held(), 0);
}
