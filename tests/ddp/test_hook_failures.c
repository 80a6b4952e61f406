/* SPDX-License-Identifier: MIT */
/* Hooks of which something fails later, on one rank: a continuation before or after it has started
 * what the others wait for, or what is called in the end. All ranks get one sentence with hook,
 * bucket and parameter, and the next pass is right. */
#include "hooks/hook_test.h"
#include "ddp/ddp.h"
#include "tensor/model.h"

enum { BEFORE, AFTER, LAST, FAILURES, NOTHING = FAILURES };

typedef struct unlucky {
    int fails, bucket;
} unlucky;

typedef struct context {
    unlucky *hook;
    cz_bucket *bucket;
} context;

static bool is_due(const unlucky *hook, const cz_bucket *bucket, int what)
{
    const cz_group *group = cz__bucket_group(bucket);
    return hook->fails == what && cz__bucket_index(bucket) == hook->bucket &&
           cz_group_rank(group) == cz_group_size(group) / 2;
}

static cz_status last(cz_status status, void *argument)
{
    const context *c = argument;
    return is_due(c->hook, c->bucket, LAST) ? cz_fail(CZ_ERR_UNSUPPORTED, "no luck") : status;
}

static cz_status second(cz_status status, void *argument)
{
    const context *c = argument;
    cz_bucket *bucket = c->bucket;
    if (status != CZ_OK || is_due(c->hook, bucket, BEFORE))
        return status != CZ_OK ? status : cz_fail(CZ_ERR_UNSUPPORTED, "no luck");
    CZ_TRY(cz_all_reduce(cz__bucket_group(bucket), cz__bucket_buffer(bucket),
                         cz__bucket_count(bucket), CZ_F32, CZ_AVERAGE, NULL));
    return is_due(c->hook, bucket, AFTER) ? cz_fail(CZ_ERR_UNSUPPORTED, "no luck") : CZ_OK;
}

static cz_status run_unlucky(void *state, cz_bucket *bucket)
{
    void *memory;
    cz_work *work = NULL;
    CZ_TRY(cz_bucket_memory(bucket, cz_device_cpu(), sizeof(context), &memory));
    *(context *)memory = (context){state, bucket};
    CZ_TRY(cz_bucket_then(bucket, last, memory));
    CZ_TRY(cz_barrier(cz__bucket_group(bucket), CZ_START("first", &work)));
    const cz_status status = cz_work_then(work, second, memory);
    cz_work_destroy(&work);
    return status;
}

/* ---- passes ---- */

static cz_status one_pass(subject *s, int pass)
{
    float in[64];
    for (int i = 0; i < 64; i++)
        in[i] = (float)((cz_group_rank(s->group) + 1) * (i % 5 - pass % 3));
    return subject_pass(s, in, NULL);
}

static cz_status check(const subject *s, int pass)
{
    float out[64];
    subject_result(s, out);
    for (int i = 0; i < element_count(s->layout); i++) {
        float sum = 0;
        for (int r = 0; r < cz_group_size(s->group); r++)
            sum += (float)((r + 1) * (i % 5 - pass % 3));
        if (out[i] != sum / (float)cz_group_size(s->group))
            return cz_fail(CZ_ERR_STATE, "pass %d: element %d is %g", pass, i, (double)out[i]);
    }
    return CZ_OK;
}

static cz_status fail_once(subject *s, unlucky *hook, int fails, int bucket)
{
    char sentence[120], first[320] = "", here[320] = "";
    const char *name = cz__model_name(s->model, cz__ddp_bucket_param(s->ddp, bucket, 0));
    hook->fails = fails;
    hook->bucket = bucket;
    snprintf(sentence, sizeof sentence,
             "hook 'unlucky' failed in bucket %d, which begins with parameter '%.20s': ", bucket,
             name);
    CZ_TRY(expect(one_pass(s, 0), CZ_ERR_UNSUPPORTED, sentence));
    snprintf(here, sizeof here, "%s", cz_last_error());
    CZ_TRY(expect(CZ_ERR_UNSUPPORTED, CZ_ERR_UNSUPPORTED, "no luck"));
    if (strstr(here, ": rank "))
        return cz_fail(CZ_ERR_STATE, "who heard of it names itself, too: '%.200s'", here);
    memcpy(first, here, sizeof first);
    CZ_TRY(cz_broadcast(s->group, first, sizeof first, CZ_U8, 0, NULL));
    if (strcmp(first, here) != 0)
        return cz_fail(CZ_ERR_STATE, "'%.100s' on rank 0, '%.100s' here", first, here);
    hook->fails = NOTHING;
    CZ_TRY(one_pass(s, 1));
    return check(s, 1);
}

static cz_status failures(subject *s, unlucky *hook)
{
    for (int bucket = 0; bucket < cz__ddp_bucket_count(s->ddp); bucket++)
        for (int fails = 0; fails < FAILURES; fails++)
            CZ_TRY(fail_once(s, hook, fails, bucket));
    hook->fails = BEFORE; /* destroyed after a failure */
    hook->bucket = 0;
    return expect(one_pass(s, 0), CZ_ERR_UNSUPPORTED, "no luck");
}

static cz_status failures_rank(cz_group *group, void *arg)
{
    layout l = {.count = 4, .shapes = {{5}, {3, 4}, {1}, {17}}, .dtype = CZ_F32};
    unlucky hook = {.fails = NOTHING};
    const cz_hook entry = {sizeof entry, "unlucky", CZ_HOOK_WHOLE, run_unlucky, &hook, NULL};
    subject s;
    l.options.bucket_bytes = l.options.first_bucket_bytes = 30;
    cz_status status = subject_create(&s, group, &l);
    THEN(cz_ddp_register_hook(s.ddp, &entry));
    THEN(one_pass(&s, 2));
    THEN(failures(&s, &hook));
    subject_clear(&s);
    return status;
}

TEST(one_sentence_on_all_ranks)
{
    for (int w = 0; w < WORLDS; w++)
        assert_ranks_ok(worlds[w], failures_rank, NULL);
}
