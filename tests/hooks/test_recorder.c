/* SPDX-License-Identifier: MIT */
/* What a recorder notes of a hook, and that it changes nothing; hooks that are released with what
 * is around them. */
#include <math.h>

#include "hooks/hook_test.h"
#include "ddp/ddp.h"

enum { COUNT = 36 };

static int released; /* by one rank */

static void release(void *state)
{
    released++;
}

static cz_status plain(void *state, cz_bucket *bucket)
{
    int *fails = state;
    if (*fails && (*fails)-- == 1)
        return cz_fail(CZ_ERR_UNSUPPORTED, "not this time");
    return cz_all_reduce(cz__bucket_group(bucket), cz__bucket_buffer(bucket),
                         cz__bucket_count(bucket), cz__bucket_dtype(bucket), CZ_AVERAGE, NULL);
}

static cz_status check(const cz_hook_recorder *recorder, int bucket, int64_t calls,
                       int64_t failures)
{
    const cz_hook_record record = recorder->records[bucket];
    const int64_t elements = bucket == 0 ? 30 : 6;
    if (record.calls != calls || record.failures != failures || record.elements != elements ||
        record.dtype != CZ_F32 || !(record.seconds > 0))
        return cz_fail(CZ_ERR_STATE, "bucket %d: %d calls, %d failures, %d elements, %g s", bucket,
                       (int)record.calls, (int)record.failures, (int)record.elements,
                       record.seconds);
    return CZ_OK;
}

static cz_status norms(const subject *s, const cz_hook_recorder *recorder)
{
    const cz_hook_record record = recorder->records[0];
    const double rank = cz_group_rank(s->group), ranks = cz_group_size(s->group);
    const double before = (rank + 1) * sqrt(30), after = (ranks + 1) / 2 * sqrt(30);
    if (fabs(record.norm_before - before) > 1e-6 || fabs(record.norm_after - after) > 1e-6)
        return cz_fail(CZ_ERR_STATE, "norms %g and %g, wanted %g and %g", record.norm_before,
                       record.norm_after, before, after);
    return CZ_OK;
}

static cz_status expect_refused(subject *s, const cz_hook_recorder *recorder, const char *why)
{
    return expect(cz_ddp_register_hook_by_name(s->ddp, "record", (void *)recorder), CZ_ERR_ARGUMENT,
                  why);
}

static cz_status recorded(subject *s, cz_hook_recorder *recorder, int *fails)
{
    float in[COUNT];
    cz_hook_recorder bad = *recorder;
    cz_hook_record odd[2] = {CZ_HOOK_RECORD_INIT, {.size = sizeof odd[0] - 8}};
    bad.inner = NULL;
    CZ_TRY(expect_refused(s, &bad, "with a hook in it"));
    bad = *recorder;
    bad.count = 2;
    bad.records = NULL;
    CZ_TRY(expect_refused(s, &bad, "2 records at NULL"));
    bad.records = odd;
    CZ_TRY(expect_refused(s, &bad, "record 1 has"));
    CZ_TRY(expect_refused(s, NULL, "wants a cz_hook_recorder"));
    CZ_TRY(cz_ddp_register_hook_by_name(s->ddp, "record", recorder));
    if (strcmp(cz__ddp_hook(s->ddp), "record(plain)") != 0)
        return cz_fail(CZ_ERR_STATE, "it is called '%s'", cz__ddp_hook(s->ddp));
    for (int pass = 0; pass < 3; pass++) {
        for (int i = 0; i < COUNT; i++)
            in[i] = (float)(cz_group_rank(s->group) + 1);
        CZ_TRY(subject_pass(s, in, NULL));
        CZ_TRY(check(recorder, 0, pass + 1, 0));
        if (recorder->count > 1)
            CZ_TRY(check(recorder, 1, pass + 1, 0));
        CZ_TRY(norms(s, recorder));
    }
    *fails = 2; /* in the second bucket, on all ranks */
    CZ_TRY(expect(subject_pass(s, in, NULL), CZ_ERR_UNSUPPORTED, "not this time"));
    const cz_hook_record *record = &recorder->records[1];
    if (recorder->count == 1)
        return record->calls == 0 ? CZ_OK : cz_fail(CZ_ERR_STATE, "a second bucket was noted");
    if (record->failures !=
        record->calls - 3) /* a rank may hear of another's failure before its own */
        return cz_fail(CZ_ERR_STATE, "%d calls, %d failures", (int)record->calls,
                       (int)record->failures);
    return CZ_OK;
}

static cz_status recorded_rank(cz_group *group, void *arg)
{
    layout l = {.count = 2, .shapes = {{6, 5}, {6}}, .dtype = CZ_F32};
    int fails = 0;
    const bool one = cz_group_size(group) == 1;
    const cz_hook inner = {sizeof inner, "plain", CZ_HOOK_WHOLE,
                           plain,        &fails,  one ? release : NULL};
    cz_hook_record records[2] = {CZ_HOOK_RECORD_INIT, CZ_HOOK_RECORD_INIT};
    cz_hook_recorder recorder = {sizeof recorder, &inner, records, *(const int *)arg};
    subject s;
    l.options.bucket_bytes = l.options.first_bucket_bytes = 100;
    l.options.keep_buckets = 1;
    cz_status status = subject_create(&s, group, &l);
    THEN(recorded(&s, &recorder, &fails));
    subject_clear(&s);
    return status;
}

TEST(what_is_noted)
{
    released = 0;
    for (int w = 0; w < WORLDS; w++)
        assert_ranks_ok(worlds[w], recorded_rank, &(int){2});
    assert_int_equal(released, 1);
}

TEST(buckets_without_a_record_are_not_noted)
{
    for (int w = 0; w < WORLDS; w++)
        assert_ranks_ok(worlds[w], recorded_rank, &(int){1});
}

/* ---- hooks with a state of their own ---- */

static cz_status owned_rank(cz_group *group, void *arg)
{
    static const char *const names[] = {"POWER_SGD", "POWER_SGD_RANK2", "BATCHED_POWER_SGD",
                                        "BATCHED_POWER_SGD_RANK2"};
    const layout l = {.count = 2, .shapes = {{6, 5}, {6}}, .dtype = CZ_F32};
    const int k = *(int *)arg;
    const float in[COUNT] = {1, 2, 3};
    cz_hook inner = CZ_HOOK_INIT, other = CZ_HOOK_INIT;
    subject s;
    cz_status status = subject_create(&s, group, &l);
    if (status == CZ_OK && k % 2)
        status = cz_ddp_register_hook_by_name(s.ddp, names[k / 2], NULL);
    if (status == CZ_OK && k % 2 == 0)
        status = cz_hook_find(&inner, names[k / 2], s.model, NULL);
    if (status == CZ_OK && k % 2 == 0) /* released with it */
        status = cz_ddp_register_hook_by_name(s.ddp, "fp16_compress", &inner);
    for (int pass = 0; status == CZ_OK && pass < 2; pass++)
        status = subject_pass(&s, in, NULL);
    if (status == CZ_OK) /* and so is one that is not registered */
        status = expect(cz_ddp_register_hook_by_name(s.ddp, names[k / 2], NULL), CZ_ERR_STATE,
                        "there is a hook already");
    THEN(expect(cz_hook_find(&other, names[k / 2], NULL, NULL), CZ_ERR_ARGUMENT, "needs a model"));
    if (status == CZ_OK && k / 2)
        status = expect(cz_hook_find(&other, names[k / 2], s.model, &s), CZ_ERR_ARGUMENT,
                        "one that was made is for 'powersgd'");
    subject_clear(&s);
    return status;
}

TEST(states_of_their_own)
{
    for (int k = 0; k < 8; k++)
        assert_ranks_ok(2, owned_rank, &k);
    assert_int_equal(cz_test_allocations_held(), 0);
}

/* As a program has it that was compiled before `release` was added, with something of its own after
 * it. */
typedef struct shorter_hook {
    size_t size;
    const char *name;
    cz_hook_result result;
    cz_status (*run)(void *state, cz_bucket *bucket);
    void *state;
} shorter_hook;

static cz_status shorter_rank(cz_group *group, void *arg)
{
    const layout l = {.count = 1, .shapes = {{6}}, .dtype = CZ_F32};
    struct {
        shorter_hook hook;
        uint64_t after;
    } mine = {{.size = sizeof mine.hook}, 42};
    subject s;
    cz_status status = subject_create(&s, group, &l);
    THEN(cz_hook_find((cz_hook *)(void *)&mine.hook, "all_reduce", NULL, NULL));
    if (status == CZ_OK &&
        (mine.after != 42 || mine.hook.size != sizeof mine.hook || !mine.hook.run))
        status = cz_fail(CZ_ERR_STATE, "after it is %d", (int)mine.after);
    THEN(expect(cz_hook_find((cz_hook *)(void *)&mine.hook, "POWER_SGD", s.model, NULL),
                CZ_ERR_UNSUPPORTED, "no field"));
    subject_clear(&s);
    return status;
}

TEST(a_shorter_struct_is_filled_as_far_as_it_goes)
{
    assert_ranks_ok(1, shorter_rank, NULL);
    assert_int_equal(cz_test_allocations_held(), 0);
}
