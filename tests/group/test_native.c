/* SPDX-License-Identifier: MIT */
/* Groups whose backend has collectives of its own: right results, no headers except in checked
 * mode, and what the backend refuses is done by the library. */
#include "group/collective.h"
#include "group/native_backend.h"
#include "support/training.h"

static const int worlds[] = {1, 2, 3, 5};
enum { WORLDS = sizeof worlds / sizeof *worlds, COUNT = 70 };

/* Element i of rank r, a small whole number: sums are exact in every type. */
static double number(int r, int64_t i)
{
    return (double)((r * 37 + i * 11) % 101 - 50);
}

static double sum_of(int size, int64_t i)
{
    double sum = 0;
    for (int r = 0; r < size; r++)
        sum += number(r, i);
    return sum;
}

static double most_of(int size, int64_t i)
{
    double most = number(0, i);
    for (int r = 1; r < size; r++)
        most = number(r, i) > most ? number(r, i) : most;
    return most;
}

static void set(cz_dtype dtype, void *to, int64_t count, int rank)
{
    for (int64_t i = 0; i < count; i++)
        native_store(dtype, to, i, number(rank, i));
}

#define CHECK_EACH(what, dtype, memory, count, wanted)                                             \
    for (int64_t i = 0; i < (count); i++)                                                          \
    CHECK(native_load(dtype, memory, i) == (wanted), "%s of %s: element %d is %g", what,           \
          cz_dtype_name(dtype), (int)i, native_load(dtype, memory, i))

/* ---- results ---- */

static cz_status check_reductions(cz_group *group, cz_dtype dtype)
{
    const int rank = cz_group_rank(group), size = cz_group_size(group);
    double in[COUNT * MANY_RANKS], out[COUNT];
    const int64_t begin = (int64_t)rank * COUNT;
    char *own = (char *)in + (size_t)begin * cz_dtype_size(dtype);
    set(dtype, in, COUNT, rank);
    CZ_TRY(cz_all_reduce(group, in, COUNT, dtype, CZ_SUM, NULL));
    CHECK_EACH("all_reduce", dtype, in, COUNT, sum_of(size, i));
    set(dtype, in, COUNT, rank);
    CZ_TRY(cz_all_reduce(group, in, COUNT, dtype, CZ_MAX, NULL));
    CHECK_EACH("all_reduce (max)", dtype, in, COUNT, most_of(size, i));
    set(dtype, in, (int64_t)size * COUNT, rank);
    CZ_TRY(cz_reduce_scatter(group, in, out, COUNT, dtype, CZ_SUM, NULL));
    CHECK_EACH("reduce_scatter", dtype, out, COUNT, sum_of(size, begin + i));
    CHECK_EACH("input of reduce_scatter", dtype, in, (int64_t)size * COUNT, number(rank, i));
    CZ_TRY(cz_reduce_scatter(group, in, own, COUNT, dtype, CZ_SUM, NULL)); /* in place */
    CHECK_EACH("reduce_scatter in place", dtype, own, COUNT, sum_of(size, begin + i));
    if (dtype > CZ_F64)
        return CZ_OK;
    native_store(dtype, out, 0, rank % 2 ? 3.0 : 1.5);
    CZ_TRY(cz_all_reduce(group, out, 1, dtype, CZ_AVERAGE, NULL));
    const double mean = (size / 2 * 3.0 + (size - size / 2) * 1.5) / size;
    CHECK(native_load(dtype, out, 0) == (dtype == CZ_F32 ? (double)(float)mean : mean),
          "the average of %s is %g", cz_dtype_name(dtype), native_load(dtype, out, 0));
    return CZ_OK;
}

static cz_status check_moves(cz_group *group, cz_dtype dtype)
{
    const int rank = cz_group_rank(group), size = cz_group_size(group);
    double in[COUNT], out[COUNT * MANY_RANKS];
    for (int root = 0; root < size; root++) {
        set(dtype, in, COUNT, rank);
        CZ_TRY(cz_broadcast(group, in, COUNT, dtype, root, NULL));
        CHECK_EACH("broadcast", dtype, in, COUNT, number(root, i));
    }
    set(dtype, in, COUNT, rank);
    CZ_TRY(cz_all_gather(group, in, out, COUNT, dtype, NULL));
    CHECK_EACH("all_gather", dtype, out, (int64_t)size * COUNT,
               number((int)(i / COUNT), i % COUNT));
    memset(out, 0, sizeof out);
    char *own = (char *)out + (size_t)(rank * COUNT) * cz_dtype_size(dtype);
    set(dtype, own, COUNT, rank);
    CZ_TRY(cz_all_gather(group, own, out, COUNT, dtype, NULL));
    CHECK_EACH("all_gather in place", dtype, out, (int64_t)size * COUNT,
               number((int)(i / COUNT), i % COUNT));
    return cz_barrier(group, NULL);
}

static cz_status each_rank(cz_group *group, void *arg)
{
    static const cz_dtype dtypes[] = {CZ_F32, CZ_F64, CZ_I32, CZ_I64};
    CHECK(!has_ordered_sums(group), "sums are said to have an order");
    for (int d = 0; d < 4; d++) {
        CZ_TRY(check_reductions(group, dtypes[d]));
        CZ_TRY(check_moves(group, dtypes[d]));
    }
    CZ_TRY(cz_all_reduce(group, NULL, 0, CZ_F32, CZ_SUM, NULL)); /* nothing: not even started */
    return cz_broadcast(group, NULL, 0, CZ_I64, 0, NULL);
}

/* What each_rank starts, on all ranks together. */
static void expect_runs(int world)
{
    assert_int_equal(atomic_load(&native_runs[NATIVE_ALL_REDUCE]), world * (4 * 2 + 2));
    assert_int_equal(atomic_load(&native_runs[NATIVE_REDUCE_SCATTER]), world * 4 * 2);
    assert_int_equal(atomic_load(&native_runs[NATIVE_ALL_GATHER]), world * 4 * 2);
    assert_int_equal(atomic_load(&native_runs[NATIVE_BROADCAST]), world * 4 * world);
    assert_int_equal(atomic_load(&native_runs[NATIVE_BARRIER]), world * 4);
}

/* But for the first operation, by which ranks compare their options. */
TEST(results_without_headers)
{
    for (int w = 0; w < WORLDS; w++) {
        native_expect(&native_backend, worlds[w], 0, each_rank, NULL);
        expect_runs(worlds[w]);
        assert_int_equal(atomic_load(&native_headers), 2 * (worlds[w] - 1));
        assert_int_equal(atomic_load(&native_messages), 0);
    }
}

TEST(headers_in_checked_mode)
{
    for (int w = 0; w < WORLDS; w++) {
        const int world = worlds[w], operations = 4 * 2 + 2 + 4 * (2 + 2 + world + 1) + 2;
        native_expect(&native_backend, world, 1, each_rank, NULL);
        expect_runs(world);
        assert_int_equal(atomic_load(&native_headers), operations * 2 * (world - 1));
        assert_int_equal(atomic_load(&native_messages), 0);
    }
}

/* Added as they come, not in the order of the tree: (1e8 - 1e8) + 1 instead of (1 + 1e8) - 1e8. */
static cz_status each_rank_arrives(cz_group *group, void *arg)
{
    static const float values[] = {1, 1e8f, -1e8f};
    atomic_int *come = arg;
    const int rank = cz_group_rank(group);
    float value = values[rank];
    cz_work *work;
    CZ_TRY(cz_barrier(group, NULL)); /* the first operation has a header */
    CHECK(comes(come, (rank + 2) % 3), "the others did not come"); /* 1, then 2, then 0 */
    CZ_TRY(cz_all_reduce(group, &value, 1, CZ_F32, CZ_SUM, CZ_START("late", &work)));
    bool done;
    CZ_TRY(cz_work_test(work, &done)); /* now it is with the backend */
    CHECK(comes(&native_runs[NATIVE_ALL_REDUCE], (rank + 2) % 3 + 1), "it was not started");
    atomic_fetch_add(come, 1);
    CZ_TRY(cz_work_wait(work));
    cz_work_destroy(&work);
    CHECK(value == 1, "the sum is %g", value);
    return CZ_OK;
}

TEST(sums_in_order_of_arrival)
{
    atomic_int come = 0;
    native_expect(&native_backend, 3, 0, each_rank_arrives, &come);
}

/* ---- in flight ---- */

enum { FLIGHTS = 40 };

typedef struct follow_up {
    cz_group *group;
    int32_t value;
} follow_up;

static cz_status start_follow_up(cz_status status, void *context)
{
    follow_up *f = context;
    CZ_TRY(status);
    return cz_all_reduce(f->group, &f->value, 1, CZ_I32, CZ_SUM, CZ_LABEL("follow-up"));
}

/* Natives, the library's own and what continuations start, of two groups, all at once. */
static cz_status each_rank_flies(cz_group *group, void *arg)
{
    const int size = cz_group_size(group), rank = cz_group_rank(group);
    int32_t values[FLIGHTS];
    follow_up next[FLIGHTS];
    cz_work *works[FLIGHTS];
    cz_group *reversed;
    uint64_t state = (uint64_t)rank;
    CZ_TRY(cz_group_split(group, 0, -rank, &reversed));
    for (int i = 0; i < FLIGHTS; i++) {
        cz_group *on = i % 4 == 3 ? reversed : group;
        values[i] = i == 0 ? 0 : rank + i;
        next[i] = (follow_up){on, i};
        CZ_TRY(i % 3 == 2 ? cz_reduce(on, &values[i], &values[i], 1, CZ_I32, CZ_MAX, 0,
                                      CZ_START("reduce", &works[i]))
                          : cz_all_reduce(on, &values[i], 1, CZ_I32, CZ_SUM,
                                          CZ_START("all_reduce", &works[i])));
        CZ_TRY(cz_work_then(works[i], start_follow_up, &next[i]));
        nap(draw(&state, 4) ? 0 : 300, &state);
    }
    for (int i = FLIGHTS - 1; i >= 0; i--) {
        CZ_TRY(cz_work_wait(works[i]));
        cz_work_destroy(&works[i]);
        CHECK(next[i].value == size * i, "follow-up %d is %d", i, next[i].value);
        CHECK(i % 3 == 2 || i == 0 || values[i] == size * (size - 1) / 2 + size * i, "sum %d is %d",
              i, values[i]);
    }
    cz_group_destroy(&reversed);
    return CZ_OK;
}

TEST(many_in_flight)
{
    for (int round = 0; round < (SLOW ? 3 : 10); round++)
        for (int w = 0; w < WORLDS; w++)
            native_expect(&native_backend, worlds[w], round > 0, each_rank_flies, NULL);
}

static cz_status each_rank_splits(cz_group *group, void *arg)
{
    cz_group *sub;
    CZ_TRY(cz_group_split(group, cz_group_rank(group) % 2, 0, &sub));
    const cz_status status = each_rank(sub, NULL);
    cz_group_destroy(&sub);
    return status;
}

/* Sub-groups use them, too: of two, every header is one of the split itself. */
TEST(sub_groups)
{
    for (int w = 0; w < WORLDS; w++) {
        native_expect(&native_backend, worlds[w], 0, each_rank_splits, NULL);
        assert_int_equal(atomic_load(&native_runs[NATIVE_BARRIER]), worlds[w] * 4);
        assert_int_equal(atomic_load(&native_headers),
                         2 * 2 * (worlds[w] - 1)); /* two agreements */
    }
}

/* ---- what the backend does not do ---- */

static cz_status each_rank_falls_back(cz_group *group, void *arg)
{
    const int size = cz_group_size(group), rank = cz_group_rank(group);
    uint16_t all[MANY_RANKS][COUNT], wanted[COUNT], mine[COUNT];
    const void *inputs[MANY_RANKS];
    for (int r = 0; r < size; r++) {
        fill(CZ_BF16, (uint64_t)r, COUNT, all[r]);
        inputs[r] = all[r];
    }
    for (int reduction = CZ_SUM; reduction <= CZ_PRODUCT; reduction++) {
        plain_reduce(CZ_BF16, (cz_reduction)reduction, size, inputs, COUNT, wanted);
        memcpy(mine, all[rank], sizeof mine);
        CZ_TRY(cz_all_reduce(group, mine, COUNT, CZ_BF16, (cz_reduction)reduction, NULL));
        CHECK(memcmp(mine, wanted, sizeof mine) == 0, "reduction %d has other bits", reduction);
    }
    int32_t product = rank + 1;
    CZ_TRY(cz_all_reduce(group, &product, 1, CZ_I32, CZ_PRODUCT, NULL));
    return cz_broadcast(group, mine, COUNT, CZ_U8, size - 1, NULL);
}

TEST(what_the_backend_refuses)
{
    for (int checked = 0; checked < 2; checked++)
        for (int w = 0; w < WORLDS; w++) {
            const int world = worlds[w];
            native_expect(&native_backend, world, checked, each_rank_falls_back, NULL);
            for (int k = 0; k < NATIVE_KINDS; k++)
                assert_int_equal(atomic_load(&native_runs[k]), 0);
            assert_int_equal(atomic_load(&native_headers),
                             (CZ_PRODUCT - CZ_SUM + 3) * 2 * (world - 1));
            assert_true(world == 1 || atomic_load(&native_messages) > 0);
        }
}

static cz_status each_rank_mixed(cz_group *group, void *arg)
{
    CHECK(has_ordered_sums(group), "sums are said to have no order");
    CZ_TRY(check_reductions(group, CZ_F32));
    return check_moves(group, CZ_F32);
}

/* A backend that only broadcasts: everything else is the library's, and so are the bits of sums. */
TEST(entries_that_are_missing)
{
    cz_backend table = native_backend;
    table.all_reduce = table.reduce_scatter = table.all_gather = table.barrier = NULL;
    for (int w = 0; w < WORLDS; w++) {
        const int world = worlds[w];
        native_expect(&table, world, 0, each_rank_mixed, NULL);
        assert_int_equal(atomic_load(&native_runs[NATIVE_BROADCAST]), world * world);
        assert_int_equal(atomic_load(&native_headers), (2 + 2 + 1 + 2 + 1) * 2 * (world - 1));
    }
}

TEST(who_orders_sums)
{
    cz_group *group = NULL;
    assert_ok(cz_group_create_self(&group, NULL));
    assert_true(has_ordered_sums(group));
    cz_group_destroy(&group);
}

/* ---- the parts above ---- */

static cz_status each_rank_trains(cz_group *group, void *arg)
{
    static const int64_t sizes[] = {7, 1000, 0, 129};
    const cz_test_training training = {
        .param_count = 4, .sizes = sizes, .dtype = CZ_F32, .rule = cz_rule_adam()};
    const int rank = cz_group_rank(group), size = cz_group_size(group);
    cz_test_memory memory, reference;
    cz_zero *zero = NULL;
    cz_optim *optim = NULL;
    bool same = false;
    CZ_TRY(cz__agree(group, CZ_OK, 42, &same, "alike"));
    CHECK(same, "equal fingerprints are different");
    CZ_TRY(cz_test_memory_create(&memory, &training));
    CZ_TRY(cz_test_memory_create(&reference, &training));
    CZ_TRY(cz_optim_create(&optim, reference.model, training.rule, NULL, NULL));
    CZ_TRY(cz_zero_create(&zero, group, memory.model, training.rule, NULL, NULL));
    cz_status status = CZ_OK;
    for (int step = 0; step < 3 && status == CZ_OK; step++) {
        for (int p = 0; p < 4; p++)
            for (int64_t i = 0; i < sizes[p]; i++) {
                double sum = 0; /* exact */
                for (int r = 0; r < size; r++)
                    sum += cz_test_gradient(r, step, i);
                cz_test_store(memory.grads[p], CZ_F32, i, cz_test_gradient(rank, step, i));
                cz_test_store(reference.grads[p], CZ_F32, i, (float)sum / (float)size);
            }
        status = cz_zero_step(zero, NULL, NULL);
        THEN(cz_optim_step(optim, NULL, NULL));
        for (int p = 0; p < 4 && status == CZ_OK; p++)
            if (memcmp(memory.values[p], reference.values[p], (size_t)sizes[p] * sizeof(float)))
                status = cz_fail(CZ_ERR_INTERNAL, "step %d: parameter %d", step, p);
    }
    cz_zero_destroy(&zero);
    cz_optim_destroy(&optim);
    cz_test_memory_destroy(&memory);
    cz_test_memory_destroy(&reference);
    return status;
}

TEST(the_sharded_optimizer)
{
    for (int w = 0; w < WORLDS; w++)
        native_expect(&native_backend, worlds[w], 0, each_rank_trains, NULL);
}
