/* SPDX-License-Identifier: MIT */
/* The golden files are there and are read exactly; the recorded inputs are the stream. */
#include "support/cz_test.h"

#include <string.h>

static const int64_t counts[] = {35, 13, 1};

TEST(inputs_are_the_stream)
{
    static const float scale[] = {1, 0.5f, 2, 1, 0.25f, 1, 4, 0.125f, 1, 0.5f};
    cz_test_gold *gold = cz_test_gold_open("inputs.gold");
    assert_non_null(gold);
    const cz_test_case *c = cz_test_gold_find(gold, "inputs");
    assert_non_null(c);
    for (int tensor = 0; tensor < 3; tensor++)
        for (int step = 0; step <= 10; step++) {
            float wanted[35];
            char key[32];
            int64_t count;
            if (step == 0)
                snprintf(key, sizeof key, "p%d", tensor);
            else
                snprintf(key, sizeof key, "g.%d.%d", step, tensor);
            const float *got = cz_test_case_f32(c, key, &count);
            assert_int_equal(count, counts[tensor]);
            cz_test_stream_f32((uint64_t)(step ? 1000 * step + tensor : 1 + tensor), count, wanted);
            for (int i = 0; i < count && step; i++)
                wanted[i] = step == 3 && i % 7 == 0 ? 0 : wanted[i] * scale[step - 1];
            assert_memory_equal(got, wanted, (size_t)count * sizeof *wanted);
        }
    cz_test_gold_close(&gold);
    assert_null(gold);
}

TEST(records_of_all_types)
{
    int64_t count;
    cz_test_gold *gold = cz_test_gold_open("optim_sgd.gold");
    assert_non_null(gold);
    const cz_test_case *c = cz_test_gold_case(gold, 0);
    assert_string_equal(cz_test_case_name(c), "sgd.default.f32");
    assert_ptr_equal(c, cz_test_gold_find(gold, "sgd.default.f32"));
    assert_null(cz_test_gold_find(gold, "sgd"));
    assert_null(cz_test_gold_case(gold, cz_test_gold_count(gold)));
    assert_string_equal(cz_test_case_str(c, "group0.options"),
                        "dampening=0.0 lr=0.1 maximize=0 momentum=0.0 nesterov=0 weight_decay=0.0");
    const int64_t *params = cz_test_case_i64(c, "group0.params", &count);
    assert_true(count == 3 && params[0] == 0 && params[1] == 1 && params[2] == 2);
    assert_non_null(cz_test_case_i64(c, "nograd.param1.steps", &count)); /* there, and empty */
    assert_int_equal(count, 0);
    assert_null(cz_test_case_i64(c, "group1.params", &count));
    assert_null(cz_test_case_f64(c, "t1.p2", NULL)); /* the type counts */
    assert_true(cz_test_case_f32(c, "t1.p2", &count)[0] == -0x1.cd9c5cp-2f);
    c = cz_test_gold_find(gold, "sgd.default.f64");
    assert_non_null(cz_test_case_f64(c, "t10.p1", &count));
    assert_int_equal(count, 13);
    cz_test_gold_close(&gold);
}

TEST(every_file_is_whole)
{
    static const struct {
        const char *name;
        int64_t cases;
    } files[] = {{"inputs.gold", 1},
                 {"optim_sgd.gold", 18},
                 {"optim_adam.gold", 18},
                 {"optim_adamw.gold", 10},
                 {"optim_adamax.gold", 10},
                 {"optim_adadelta.gold", 10},
                 {"optim_adagrad.gold", 12},
                 {"optim_rmsprop.gold", 14},
                 {"optim_rprop.gold", 10},
                 {"optim_radam.gold", 4},
                 {"optim_nadam_v1131.gold", 2},
                 {"optim_lerp_variants.gold", 10},
                 {"optim_lion.gold", 8},
                 {"optim_lamb.gold", 10},
                 {"optim_lars.gold", 10},
                 {"optim_ademamix.gold", 8},
                 {"optim_schedule_free_sgd.gold", 8},
                 {"optim_schedule_free_adamw.gold", 8},
                 {"optim_adam_mini.gold", 8},
                 {"optim_muon.gold", 8},
                 {"partition.gold", 22},
                 {"lr_schedulers.gold", 23},
                 {"ddp_buckets.gold", 12},
                 {"overlap_assign.gold", 9}};
    for (size_t i = 0; i < sizeof files / sizeof *files; i++) {
        cz_test_gold *gold = cz_test_gold_open(files[i].name);
        assert_non_null(gold);
        assert_int_equal(cz_test_gold_count(gold), files[i].cases);
        cz_test_gold_close(&gold);
    }
    assert_null(cz_test_gold_open("no_such.gold"));
}

TEST(sizes_have_the_odd_ones)
{
    enum { COUNT = 400 };
    int64_t sizes[COUNT], sum = 0;
    int empty = 0, cut_off = 0;
    const int64_t total = cz_test_sizes(1, COUNT, 100, sizes);
    for (int i = 0; i < COUNT; i++) {
        assert_in_range(sizes[i], 0, 100);
        sum += sizes[i];
        empty += sizes[i] == 0;
        cut_off += sizes[i] % 16 == 15;
    }
    assert_int_equal(sum, total);
    assert_true(empty > 10 && cut_off > 10);
    assert_int_equal(cz_test_sizes(1, 3, 0, sizes), 0);
}
