/* SPDX-License-Identifier: MIT */
/* Updates of 16-bit values with masters: every rule against itself in f32, whose results the
 * masters are, bit by bit, and the values rounded to nearest even; wherever spans are cut. */
#include "rule/mixed.h"
#include "shard/shard.h"

#define STEPS 4

static mixed m;

static const cz_hyper *hypers_of(const char *rule, int variant)
{
    static cz_hyper list[8];
    static const char *const names[] = {"weight_decay", "momentum", "amsgrad", "centered", "lerp"};
    const cz_rule *found = cz_rule_find(rule);
    int count = 0;
    list[count++] = (cz_hyper){"lr", 0.02};
    for (int n = 0; n < 5; n++)
        for (int h = 0; variant && h < found->hyper_count; h++)
            if (strcmp(found->hypers[h].name, names[n]) == 0)
                list[count++] = (cz_hyper){names[n], n < 2 ? 0.25 : 1};
    list[count] = (cz_hyper){NULL, 0};
    return list;
}

static void expect_twins(const cz_optim *optim, const cz_optim *twin)
{
    for (int p = 0; p < MIXED_PARAMS; p++) {
        for (int64_t i = 0; i < mixed_counts[p]; i++)
            mixed_expect_value(&m, p, i);
        if (m.dtypes[p] != CZ_F32)
            mixed_expect_slot(optim, p, "master_param", 0, mixed_counts[p], m.twins[p]);
        for (int e = 0; e < cz__optim_slot_count(twin); e++) {
            const char *slot = cz__optim_element_slot(twin, p, e).name;
            const void *data;
            int64_t count;
            assert_ok(cz_optim_state(twin, p, slot, 0, &data, &count));
            if (data)
                mixed_expect_slot(optim, p, slot, 0, mixed_counts[p], data);
        }
    }
}

static void run(const char *rule, int variant, cz_dtype first, cz_dtype second, cz_dtype gradient)
{
    cz_optim *optim, *twin;
    const cz_hyper *hypers = hypers_of(rule, variant);
    mixed_create(&m, first, second, gradient);
    assert_ok(cz_optim_create(&optim, m.model, cz_rule_find(rule), hypers, NULL));
    assert_ok(cz_optim_create(&twin, m.twin, cz_rule_find(rule), hypers, NULL));
    for (int step = 0; step < STEPS; step++) {
        mixed_set_gradients(&m, step);
        assert_ok(cz_optim_step(optim, NULL, NULL));
        assert_ok(cz_optim_step(twin, NULL, NULL));
        expect_twins(optim, twin);
    }
    cz_optim_destroy(&optim);
    cz_optim_destroy(&twin);
    mixed_destroy(&m);
}

TEST(every_rule_updates_masters_as_it_updates_f32)
{
    const char *rule;
    for (int r = 0; (rule = cz_rule_name(r)); r++)
        for (int variant = 0; variant < 2; variant++) {
            run(rule, variant, CZ_BF16, CZ_F16, CZ_BF16);
            run(rule, variant, CZ_F16, CZ_F32, CZ_F32);
            run(rule, variant, CZ_F32, CZ_BF16, CZ_F16);
        }
}

/* The same computed here, in the words of the papers, of one rule that has all of it. */
TEST(adamw_is_what_it_says)
{
    cz_optim *optim;
    static float first[MIXED_MOST], second[MIXED_MOST];
    memset(first, 0, sizeof first);
    memset(second, 0, sizeof second);
    mixed_create(&m, CZ_BF16, CZ_BF16, CZ_BF16);
    assert_ok(cz_optim_create(&optim, m.model, cz_rule_adamw(),
                              CZ_HYPERS({"lr", 0.01}, {"weight_decay", 0.1}), NULL));
    for (int step = 1; step <= STEPS; step++) {
        mixed_set_gradients(&m, step);
        assert_ok(cz_optim_step(optim, NULL, NULL));
        const float rate = (float)(-(0.01 / (1 - pow(0.9, step))));
        const float root = (float)sqrt(1 - pow(0.999, step));
        for (int64_t i = 0; i < mixed_counts[0]; i++) {
            const float g = cz__f32_from_bf16(m.gradients[0].half[i]);
            const float take1 = (float)(1 - 0.9), take2 = (float)(1 - 0.999);
            const float one = first[i] * 0.9f, other = take1 * g;
            const float square = take2 * g, kept = second[i] * 0.999f;
            first[i] = one + other;
            second[i] = kept + square * g;
            const float decayed = m.twins[0][i] * (float)(1 - 0.01 * 0.1);
            const float below = sqrtf(second[i]) / root + 1e-8f;
            m.twins[0][i] = decayed + rate * first[i] / below;
            mixed_expect_value(&m, 0, i);
        }
        mixed_expect_slot(optim, 0, "master_param", 0, mixed_counts[0], m.twins[0]);
    }
    cz_optim_destroy(&optim);
    mixed_destroy(&m);
}

/* Spans of several owners, each in tiles of uneven lengths, with the gradient as it is in memory or
 * in f32, as it comes out of a reduction. */
static void update_in_tiles(cz_optim *optim, const cz_shard_map *map, int rank, bool given)
{
    static float wide[MIXED_PARAMS][MIXED_MOST];
    const uint8_t present[MIXED_PARAMS] = {1, 1, 1};
    cz__tiles tiles = cz__optim_tiles(optim);
    cz_span_iterator iterator;
    cz_span span;
    int64_t length = 1;
    assert_ok(cz__optim_prepare(optim));
    if (!given)
        tiles.dtype = m.gradient_dtype;
    cz_span_iterate(map, rank, &iterator);
    while (cz_span_next(&iterator, &span))
        for (int64_t at = span.begin; at < span.end; at += length) {
            length = (length * 5 + 3) % 1999;
            length = length < span.end - at ? length : span.end - at;
            memcpy(wide[span.param] + at, m.twin_gradients[span.param] + at,
                   (size_t)length * sizeof(float));
            cz__optim_update_tile(&tiles, span.param, at, length,
                                  given ? (const void *)&wide[span.param][at]
                                        : &m.gradients[span.param].half[at]);
        }
    cz__optim_end_tiles(&tiles, present);
}

TEST(spans_and_tiles_may_be_cut_anywhere)
{
    static const int worlds[] = {1, 2, 3, 5, 7};
    for (int w = 0; w < 5; w++)
        for (int given = 0; given < 2; given++) {
            cz_shard_map *map;
            cz_optim *optims[7], *twin;
            mixed_create(&m, CZ_BF16, CZ_F16, CZ_BF16);
            assert_ok(cz__shard_map_create_even(&map, worlds[w], MIXED_PARAMS, mixed_counts, NULL,
                                                0, NULL, 2));
            assert_ok(cz_optim_create(&twin, m.twin, cz_rule_adamw(), NULL, NULL));
            for (int rank = 0; rank < worlds[w]; rank++) {
                assert_ok(cz__optim_create(&optims[rank], m.model, cz_rule_adamw(), NULL, NULL));
                assert_ok(cz__optim_set_map(optims[rank], map, rank));
            }
            for (int step = 0; step < 3; step++) {
                mixed_set_gradients(&m, step);
                assert_ok(cz_optim_step(twin, NULL, NULL));
                for (int rank = 0; rank < worlds[w]; rank++)
                    update_in_tiles(optims[rank], map, rank, given);
                for (int p = 0; p < MIXED_PARAMS; p++)
                    for (int64_t i = 0; i < mixed_counts[p]; i++)
                        mixed_expect_value(&m, p, i);
            }
            for (int rank = 0; rank < worlds[w]; rank++) {
                cz_span_iterator iterator;
                cz_span span;
                cz_span_iterate(map, rank, &iterator);
                while (cz_span_next(&iterator, &span))
                    mixed_expect_slot(optims[rank], (int)span.param, "master_param", span.begin,
                                      span.end, m.twins[span.param]);
                cz_optim_destroy(&optims[rank]);
            }
            cz_optim_destroy(&twin);
            cz__shard_map_destroy(&map);
            mixed_destroy(&m);
        }
}

/* ---- by chance ---- */

static uint64_t print_of(const cz_optim *optim)
{
    uint64_t print[2];
    assert_ok(cz_optim_fingerprint(optim, print));
    return print[0] ^ print[1] * 3;
}

static cz_optim *make_by_chance(const char *rule, cz_dtype state_dtype, uint64_t seed, int threads)
{
    cz_optim *optim;
    cz_optim_options options = CZ_OPTIM_OPTIONS_INIT;
    options.master = CZ_MASTER_NONE;
    options.state_dtype = state_dtype;
    options.seed = seed;
    options.threads = threads;
    assert_ok(cz_optim_create(&optim, m.model, cz_rule_find(rule), hypers_of(rule, 1), &options));
    return optim;
}

/* A step is the rule in f32 on what the values are, and each result one of the two beside it. */
TEST(without_masters_values_are_rounded_to_one_of_two)
{
    const char *rule;
    for (int r = 0; (rule = cz_rule_name(r)); r++) {
        int64_t up = 0, down = 0, inexact = 0;
        cz_optim *twin, *optim;
        mixed_create(&m, CZ_BF16, CZ_F16, CZ_BF16);
        assert_ok(cz_optim_create(&twin, m.twin, cz_rule_find(rule), hypers_of(rule, 1), NULL));
        optim = make_by_chance(rule, CZ_F32, 5, 0);
        assert_ok(cz_optim_step(optim, NULL, NULL));
        assert_ok(cz_optim_step(twin, NULL, NULL));
        for (int p = 0; p < MIXED_PARAMS; p++)
            for (int64_t i = 0; i < mixed_counts[p]; i++) {
                const float wide = m.twins[p][i], got = widen_one(m.dtypes[p], m.halves[p][i]);
                const uint16_t half = m.halves[p][i];
                const float nearer = widen_one(m.dtypes[p], (uint16_t)(half - 1));
                const float farther = widen_one(m.dtypes[p], (uint16_t)(half + 1));
                if (got == wide)
                    continue;
                inexact++;
                up += fabsf(got) > fabsf(wide);
                down += fabsf(got) < fabsf(wide);
                assert_true(fabsf(got) > fabsf(wide)
                                ? fabsf(nearer) < fabsf(wide) || !(half & 0x7fff)
                                : fabsf(farther) > fabsf(wide));
            }
        assert_true(inexact > 1000 && up > 100 && down > 100);
        const void *data;
        int64_t count;
        assert_ok(cz_optim_state(optim, 0, "master_param", 0, &data, &count));
        assert_null(data);
        cz_optim_destroy(&optim);
        cz_optim_destroy(&twin);
        mixed_destroy(&m);
    }
}

/* The same in tiles of several owners as at once; another seed, another step: other bits. */
TEST(chance_is_of_seed_step_parameter_slot_and_element)
{
    enum { MOST = 4 };
    static uint16_t results[MOST][MIXED_PARAMS][MIXED_MOST];
    for (int way = 0; way < MOST; way++) {
        mixed_create(&m, CZ_BF16, CZ_F16, CZ_BF16);
        if (way == 3) {
            cz_shard_map *map;
            cz_optim *optims[3];
            cz_optim_options options = CZ_OPTIM_OPTIONS_INIT;
            options.master = CZ_MASTER_NONE;
            options.state_dtype = CZ_BF16;
            options.seed = 7;
            assert_ok(
                cz__shard_map_create_even(&map, 3, MIXED_PARAMS, mixed_counts, NULL, 0, NULL, 2));
            for (int rank = 0; rank < 3; rank++) {
                assert_ok(cz__optim_create(&optims[rank], m.model, cz_rule_find("adamw"),
                                           hypers_of("adamw", 1), &options));
                assert_ok(cz__optim_set_map(optims[rank], map, rank));
            }
            for (int step = 0; step < 3; step++) {
                mixed_set_gradients(&m, step);
                for (int rank = 0; rank < 3; rank++)
                    update_in_tiles(optims[rank], map, rank, step == 1);
            }
            for (int rank = 0; rank < 3; rank++)
                cz_optim_destroy(&optims[rank]);
            cz__shard_map_destroy(&map);
        } else {
            cz_optim *optim = make_by_chance("adamw", CZ_BF16, way == 2 ? 8 : 7, way == 1 ? 3 : 1);
            for (int step = 0; step < 3; step++) {
                mixed_set_gradients(&m, step);
                assert_ok(cz_optim_step(optim, NULL, NULL));
            }
            cz_optim_destroy(&optim);
        }
        memcpy(results[way], m.halves, sizeof m.halves);
        mixed_destroy(&m);
    }
    assert_memory_equal(results[0], results[1], sizeof results[0]);
    assert_memory_equal(results[0], results[3], sizeof results[0]);
    assert_memory_not_equal(results[0], results[2], sizeof results[0]);
}

/* A rate that is too small for a value of 16 bits to move: with nearest rounding it would stay. */
TEST(small_steps_add_up)
{
    enum { COUNT = 2600, MANY = 256 };
    cz_optim *optim;
    cz_optim_options options = CZ_OPTIM_OPTIONS_INIT;
    double sum = 0;
    options.master = CZ_MASTER_NONE;
    mixed_create(&m, CZ_BF16, CZ_BF16, CZ_F32);
    for (int64_t i = 0; i < COUNT; i++) {
        mixed_set(&m, 0, i, 1);
        m.gradients[0].wide[i] = -1;
    }
    assert_ok(
        cz_optim_create(&optim, m.model, cz_rule_sgd(), CZ_HYPERS({"lr", 0x1p-12}), &options));
    for (int step = 0; step < MANY; step++)
        assert_ok(cz_optim_step(optim, NULL, NULL));
    for (int64_t i = 0; i < COUNT; i++)
        sum += (double)widen_one(CZ_BF16, m.halves[0][i]);
    /* each is 1 + MANY / 2^12 in the mean; a step has a variance of at most 2^-7 times 2^-12 */
    assert_true(fabs(sum / COUNT - 1 - MANY * 0x1p-12) < 4 * sqrt(MANY * 0x1p-19 / COUNT));
    cz_optim_destroy(&optim);
    mixed_destroy(&m);
}

/* Moments in bf16: each is what the rule makes of the moments that were, one of the two beside it,
 * and 0 where it is 0. */
TEST(state_in_bf16)
{
    cz_optim *optim, *twin;
    cz_optim_options options = CZ_OPTIM_OPTIONS_INIT;
    const void *data, *wide;
    int64_t count;
    options.state_dtype = CZ_BF16;
    mixed_create(&m, CZ_F32, CZ_BF16, CZ_F32);
    assert_ok(cz_optim_create(&optim, m.model, cz_rule_adam(), NULL, &options));
    assert_ok(cz_optim_create(&twin, m.twin, cz_rule_adam(), NULL, NULL));
    assert_int_equal(cz__optim_state_bytes(optim), 2 * 2 * (2600 + 37 + 1) + 4 * 37);
    assert_ok(cz_optim_step(optim, NULL, NULL));
    assert_ok(cz_optim_step(twin, NULL, NULL));
    for (int p = 0; p < MIXED_PARAMS; p++)
        for (int64_t i = 0; i < mixed_counts[p]; i++)
            mixed_expect_value(&m, p, i); /* the first step is of zeros, which are zeros in bf16 */
    for (int slot = 0; slot < 2; slot++) {
        const char *name = slot ? "exp_avg_sq" : "exp_avg";
        assert_ok(cz_optim_state(optim, 0, name, 0, &data, &count));
        assert_ok(cz_optim_state(twin, 0, name, 0, &wide, &count));
        for (int64_t i = 0; i < count; i++) {
            const float got = cz__f32_from_bf16(((const uint16_t *)data)[i]);
            const float exact = ((const float *)wide)[i];
            assert_true(fabsf(got - exact) < fabsf(exact) * 0x1p-7f || got == exact);
        }
    }
    const uint64_t print = print_of(optim);
    assert_ok(cz_optim_step(optim, NULL, NULL));
    assert_true(print_of(optim) != print);
    cz_optim_destroy(&optim);
    cz_optim_destroy(&twin);
    mixed_destroy(&m);
}
