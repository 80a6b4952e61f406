/* SPDX-License-Identifier: MIT */
/* Which parameters share a bucket: the recorded cases that have at most two limits and no sparse
 * parameters (this library has two limits, and refuses sparse ones). */
#include "ddp/object.h"
#include "support/cz_test.h"

enum { MOST = 64 };

/* Buckets as the recording lists them: without an order they are sorted by their smallest index. */
static void check_case(const cz_test_case *c)
{
    int64_t params, sizes, limit_count, ordered, buckets_wanted;
    const int64_t *numel = cz_test_case_i64(c, "numel", &params);
    const int64_t *bytes = cz_test_case_i64(c, "element_bytes", &sizes);
    const int64_t *limits = cz_test_case_i64(c, "limits", &limit_count);
    const int64_t *given = cz_test_case_i64(c, "order", &ordered);
    const int64_t *wanted_count = cz_test_case_i64(c, "num_buckets", &buckets_wanted);
    int64_t order[MOST], first_of[MOST];
    int bucket_of[MOST], rank_of[MOST];
    cz_model *model;
    assert_ok(cz_model_create(&model));
    for (int64_t p = 0; p < params; p++) {
        char name[24];
        snprintf(name, sizeof name, "%d", (int)p);
        static double memory; /* nobody looks at it */
        assert_ok(cz_model_add(model, name, &memory, &memory, bytes[p] == 8 ? CZ_F64 : CZ_F32, 1,
                               &numel[p]));
        order[p] = ordered ? given[p] : p;
    }
    const int count = cz__ddp_assign(cz__model_param_size, model, params, order, (size_t)limits[0],
                                     (size_t)limits[limit_count - 1], bucket_of);
    assert_int_equal(count, wanted_count[0]);
    for (int b = 0; b < count; b++) { /* the place of each bucket in the recording */
        first_of[b] = MOST;
        for (int64_t k = 0; k < params; k++)
            if (bucket_of[k] == b && order[k] < first_of[b])
                first_of[b] = order[k];
        rank_of[b] = b;
    }
    for (int b = 0; !ordered && b < count; b++) {
        rank_of[b] = 0;
        for (int o = 0; o < count; o++)
            rank_of[b] += first_of[o] < first_of[b];
    }
    for (int b = 0; b < count; b++) {
        char key[24];
        int64_t members, place = 0;
        snprintf(key, sizeof key, "bucket%d", rank_of[b]);
        const int64_t *wanted = cz_test_case_i64(c, key, &members);
        for (int64_t k = 0; k < params; k++)
            if (bucket_of[k] == b && (place >= members || wanted[place++] != order[k]))
                fail_msg("%s: %s differs", cz_test_case_name(c), key);
        assert_int_equal(place, members);
    }
    cz_model_destroy(&model);
}

TEST(recorded_cases)
{
    cz_test_gold *gold = cz_test_gold_open("ddp_buckets.gold");
    int checked = 0;
    assert_non_null(gold);
    for (int64_t k = 0; k < cz_test_gold_count(gold); k++) {
        const cz_test_case *c = cz_test_gold_case(gold, k);
        int64_t params, limits;
        bool sparse = false;
        const int64_t *flags = cz_test_case_i64(c, "sparse", &params);
        for (int64_t p = 0; p < params; p++)
            sparse = sparse || flags[p];
        cz_test_case_i64(c, "limits", &limits);
        if (sparse || limits > 2)
            continue;
        check_case(c);
        checked++;
    }
    assert_true(checked >= 5);
    cz_test_gold_close(&gold);
}
