/* SPDX-License-Identifier: MIT */
/* State where a shard map puts it: spans, empty parameters, views. */
#include "optim/two_params.h"
#include "shard/shard.h"
#include "optim/optim.h"

TEST(state_arguments)
{
    const void *data;
    int64_t count;
    cz_optim *optim;
    assert_ok(cz_optim_create(&optim, model, cz_rule_adam(), NULL, NULL));
    step(optim);
    assert_ok(cz_optim_state(optim, 1, "exp_avg", 30, &data, &count));
    assert_true(data && count == N - 30);
    assert_int_equal(cz_optim_state(optim, 0, "step", 0, &data, &count), CZ_ERR_ARGUMENT);
    assert_int_equal(cz_optim_state(optim, 0, "exp", 0, &data, &count), CZ_ERR_ARGUMENT);
    assert_int_equal(cz_optim_state(optim, 0, "exp_avg", N, &data, &count), CZ_ERR_ARGUMENT);
    assert_int_equal(cz_optim_state(optim, 0, "exp_avg", -1, &data, &count), CZ_ERR_ARGUMENT);
    assert_int_equal(cz_optim_state(optim, 2, "exp_avg", 0, &data, &count), CZ_ERR_ARGUMENT);
    assert_int_equal(cz_optim_state(optim, -1, "exp_avg", 0, &data, &count), CZ_ERR_ARGUMENT);
    assert_int_equal(cz_optim_state(optim, 0, NULL, 0, &data, &count), CZ_ERR_ARGUMENT);
    assert_int_equal(cz_optim_state(optim, 0, "exp_avg", 0, NULL, &count), CZ_ERR_ARGUMENT);
    assert_int_equal(cz_optim_state(optim, 0, "exp_avg", 0, &data, NULL), CZ_ERR_ARGUMENT);
    assert_int_equal(cz__optim_state_bytes(NULL), 0);
    assert_int_equal(cz__optim_group_count(NULL), 0);
    cz_optim_destroy(&optim);
}

/* The middle of a parameter is elsewhere or nowhere: runs end where ownership does. */
TEST(spans_of_a_map)
{
    static const int64_t counts[] = {N, N};
    const void *data;
    int64_t count;
    cz_shard_map *map, *other;
    cz_optim *optim;
    void *gradients[] = {grads[0], grads[1]};
    assert_ok(cz__shard_map_create_even(&map, 3, 2, counts, NULL, 0, NULL, 4));
    assert_ok(cz__shard_map_create_even(&other, 3, 1, counts, NULL, 0, NULL, 4));
    assert_ok(cz__optim_create(&optim, model, cz_rule_sgd(),
                               CZ_HYPERS({"lr", 1}, {"momentum", 0.5}), NULL));
    assert_int_equal(cz__optim_set_map(optim, other, 0), CZ_ERR_ARGUMENT);
    assert_int_equal(cz__optim_set_map(optim, map, 3), CZ_ERR_ARGUMENT);
    assert_int_equal(cz__optim_set_map(optim, map, -1), CZ_ERR_ARGUMENT);
    for (int n = 1; n <= 4; n++) { /* spans, slots, handle, arena: as if it had not been called */
        cz_test_fail_allocation(n);
        assert_int_equal(cz__optim_set_map(optim, map, 1), CZ_ERR_MEMORY);
        assert_true(cz_test_allocation_reset());
    }
    assert_ok(cz__optim_set_map(optim, map, 1));
    assert_int_equal(cz__optim_set_map(optim, map, 1), CZ_ERR_STATE);
    cz_span_iterator iterator;
    cz_span span;
    uint64_t bytes = 0;
    assert_ok(cz__optim_prepare(optim));
    const uint64_t told = cz__optim_update(optim, gradients);
    cz_span_iterate(map, 1, &iterator);
    while (cz_span_next(&iterator, &span)) {
        bytes += (uint64_t)(span.end - span.begin) * 4 * 5; /* p, buffer read and written, g read */
        assert_ok(cz_optim_state(optim, span.param, "momentum_buffer", span.begin, &data, &count));
        assert_true(data && count == span.end - span.begin);
        assert_int_equal(cz__optim_step_count(optim, span.param), 1);
        if (span.begin > 0) {
            assert_ok(cz_optim_state(optim, span.param, "momentum_buffer", 0, &data, &count));
            assert_true(!data && count == span.begin);
            assert_true(values[span.param][span.begin - 1] == 1);
        }
        assert_true(values[span.param][span.begin] == 0 && values[span.param][span.end - 1] == 0);
        if (span.end < N) {
            assert_ok(
                cz_optim_state(optim, span.param, "momentum_buffer", span.end, &data, &count));
            assert_true(!data && count == N - span.end);
            assert_true(values[span.param][span.end] == 1);
        }
    }
    assert_true(bytes > 0 && told == bytes);
    cz_optim_destroy(&optim);
    cz__shard_map_destroy(&map);
    cz__shard_map_destroy(&other);
}

/* An empty parameter counts its steps where it is at home. */
TEST(empty_parameters)
{
    static const int64_t none = 0, some = 5;
    static const int64_t counts[] = {0, 5};
    cz_model *another;
    cz_optim *optim;
    cz_shard_map *map;
    void *gradients[] = {grads[0], grads[0]};
    int64_t steps = 0;
    assert_ok(cz_model_create(&another));
    assert_ok(cz_model_add(another, "none", NULL, grads[1], CZ_F32, 1, &none));
    assert_ok(cz_model_add(another, "some", values[0], grads[0], CZ_F32, 1, &some));
    assert_ok(cz_optim_create(&optim, another, cz_rule_adam(), NULL, NULL));
    step(optim);
    assert_int_equal(cz__optim_step_count(optim, 0), 1);
    cz_optim_destroy(&optim);
    assert_ok(cz__shard_map_create_even(&map, 3, 2, counts, NULL, 0, NULL, 4));
    for (int rank = 0; rank < 3; rank++) { /* two ranks own nothing at all */
        assert_ok(cz__optim_create(&optim, another, cz_rule_adam(), NULL, NULL));
        assert_ok(cz__optim_set_map(optim, map, rank));
        cz__optim_update(optim, gradients);
        assert_int_equal(cz__optim_step_count(optim, 0), cz__shard_map_home(map, 0) == rank);
        steps += cz__optim_step_count(optim, 1);
        cz_optim_destroy(&optim);
    }
    assert_int_equal(steps, 1);
    cz__shard_map_destroy(&map);
    cz_model_destroy(&another);
}
