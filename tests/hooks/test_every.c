/* SPDX-License-Identifier: MIT */
/* Every hook, alone and around others: what an overlapped sharded optimizer makes of a hook's
 * gradients has the bits of an unsharded one on the same gradients; frozen and unused parameters;
 * nothing is allocated later on; no memory on one rank is an error of the pass on all, and the next
 * pass is right. */
#include <math.h>

#include "hooks/hook_test.h"

enum { MOST = 1200, PASSES = 6 };

typedef struct kind {
    const char *hook, *around; /* NULL: nothing around it */
    int32_t rank, batched;     /* PowerSGD; rank 0: it has no state */
    bool mixed, recorded, local;
} kind;

static const kind kinds[] = {
    {.hook = "all_reduce"},
    {.hook = "fp16_compress"},
    {.hook = "bf16_compress"},
    {.hook = "quantize_per_tensor"},
    {.hook = "quantize_per_channel"},
    {.hook = "all_reduce", .around = "bf16_compress"},
    {.hook = "powersgd", .rank = 1},
    {.hook = "powersgd", .rank = 3},
    {.hook = "powersgd", .rank = 2, .batched = 1},
    {.hook = "powersgd", .rank = 1, .around = "fp16_compress"},
    {.hook = "quantize_per_channel", .around = "fp16_compress"},
    {.hook = "mixed_precision", .mixed = true},
    {.hook = "powersgd", .rank = 2, .recorded = true},
    {.hook = "post_local_sgd", .local = true},
};
enum { KINDS = sizeof kinds / sizeof *kinds };

typedef struct trial {
    const kind *kind;
    layout layout;
    cz_overlap overlap;
    bool sharded;
    int64_t fails; /* the allocation; 0: none */
} trial;

/* A rank's hook with all that it needs, and its optimizer. */
typedef struct hooked {
    subject s;
    cz_powersgd *powersgd;
    cz_post_local_sgd local;
    cz_hook_recorder recorder;
    cz_hook_record records[MOST_PARAMS];
    cz_mixed_precision mixed;
    cz_hook inner;
    cz_zero *zero;
    cz_optim *optim;
} hooked;

static void hooked_clear(hooked *h)
{
    cz_zero_destroy(&h->zero);
    cz_optim_destroy(&h->optim);
    subject_clear(&h->s);
    cz_powersgd_destroy(&h->powersgd);
}

static cz_status make_state(hooked *h, const kind *k, void **state)
{
    cz_powersgd_options options = CZ_POWERSGD_OPTIONS_INIT;
    options.rank = k->rank;
    options.batched = k->batched;
    options.start_iter = 2;
    options.min_compression_rate = 1;
    h->local = (cz_post_local_sgd)CZ_POST_LOCAL_SGD_INIT;
    h->local.start_iter = 2;
    h->mixed = (cz_mixed_precision)CZ_MIXED_PRECISION_INIT;
    h->mixed.reduce_dtype = CZ_F64;
    if (k->rank)
        CZ_TRY(cz_powersgd_create(&h->powersgd, h->s.model, &options));
    *state = k->rank    ? (void *)h->powersgd
             : k->local ? (void *)&h->local
             : k->mixed ? (void *)&h->mixed
                        : NULL;
    return CZ_OK;
}

static cz_status register_hook(hooked *h, const kind *k)
{
    void *state;
    CZ_TRY(make_state(h, k, &state));
    if (!k->around && !k->recorded)
        return cz_ddp_register_hook_by_name(h->s.ddp, k->hook, state);
    h->inner = (cz_hook)CZ_HOOK_INIT;
    CZ_TRY(cz_hook_find(&h->inner, k->hook, h->s.model, state));
    if (k->around)
        return cz_ddp_register_hook_by_name(h->s.ddp, k->around, &h->inner);
    for (int b = 0; b < MOST_PARAMS; b++)
        h->records[b] = (cz_hook_record)CZ_HOOK_RECORD_INIT;
    h->recorder = (cz_hook_recorder){sizeof h->recorder, &h->inner, h->records, MOST_PARAMS};
    return cz_ddp_register_hook_by_name(h->s.ddp, "record", &h->recorder);
}

static cz_status hooked_create(hooked *h, cz_group *group, const trial *t, bool sharded)
{
    cz_zero_options options = CZ_ZERO_OPTIONS_INIT;
    *h = (hooked){0};
    CZ_TRY(subject_create(&h->s, group, &t->layout));
    CZ_TRY(register_hook(h, t->kind));
    if (!sharded)
        return cz_optim_create(&h->optim, h->s.model, cz_rule_adam(), NULL, NULL);
    options.ddp = h->s.ddp;
    options.overlap = t->overlap;
    return cz_zero_create(&h->zero, group, h->s.model, cz_rule_adam(), NULL, &options);
}

static void freeze(const subject *s, int pass)
{
    (void)cz_model_set_requires_grad(s->model, s->params[3], pass != 3);
}

/* Unused on all ranks, on some, or on none. */
static void choose_unused(const subject *s, int pass, bool *unused)
{
    memset(unused, 0, MOST_PARAMS * sizeof *unused);
    unused[0] = pass % 2 == 1;
    unused[5] = pass == 4 && cz_group_rank(s->group) > 0;
}

static cz_status one_pass(hooked *h, int pass)
{
    float in[MOST];
    bool unused[MOST_PARAMS];
    cz_test_stream_f32(50 * (uint64_t)pass + (uint64_t)cz_group_rank(h->s.group) + 1,
                       element_count(h->s.layout), in);
    freeze(&h->s, pass);
    choose_unused(&h->s, pass, unused);
    CZ_TRY(subject_pass(&h->s, in, unused));
    if (h->zero)
        return cz_zero_step(h->zero, NULL, NULL);
    for (int k = 0; k < h->s.layout->count; k++)
        CZ_TRY(cz_model_set_gradient(h->s.model, h->s.params[k],
                                     pass % 2 && k == 0 ? NULL : h->s.grads[k]));
    CZ_TRY(cz_optim_step(h->optim, NULL, NULL));
    return cz_model_set_gradient(h->s.model, h->s.params[0], h->s.grads[0]);
}

static cz_status same_values(const hooked *a, const hooked *b, int pass)
{
    for (int k = 0; k < a->s.layout->count; k++)
        if (memcmp(a->s.values[k], b->s.values[k], (size_t)a->s.counts[k] * sizeof(float)) != 0)
            return cz_fail(CZ_ERR_STATE, "pass %d: parameter %d has other bits than unsharded",
                           pass, k);
    return CZ_OK;
}

static cz_status steps_rank(cz_group *group, void *arg)
{
    const trial *t = arg;
    hooked plain = {0}, sharded = {0};
    cz_status status = hooked_create(&plain, group, t, false);
    THEN(hooked_create(&sharded, group, t, true));
    for (int pass = 0; status == CZ_OK && pass < PASSES; pass++) {
        status = one_pass(&plain, pass);
        THEN(one_pass(&sharded, pass));
        THEN(same_values(&plain, &sharded, pass));
    }
    for (int k = 0; status == CZ_OK && k < t->layout.count; k++)
        status =
            equal_everywhere(group, plain.s.values[k], (size_t)plain.s.counts[k] * sizeof(float));
    hooked_clear(&plain);
    hooked_clear(&sharded);
    return status;
}

static layout make_layout(size_t cap)
{
    layout l = {.count = 7,
                .shapes = {{12, 10}, {11}, {-1}, {9, 20}, {20, 3, 3}, {1}, {17, 18}},
                .dtype = CZ_F32};
    l.options.bucket_bytes = l.options.first_bucket_bytes = cap;
    l.options.find_unused = 1;
    l.options.all_reduce = 1;
    l.options.keep_buckets = 1; /* those of a sharded optimizer stay, and hooks depend on buckets */
    return l;
}

TEST(overlapped_steps)
{
    static const size_t caps[] = {1, 700, 1 << 20};
    static const cz_overlap overlaps[] = {CZ_OVERLAP_NONE, CZ_OVERLAP_STEP, CZ_OVERLAP_INTERLEAVED};
    for (int k = 0; k < KINDS; k++)
        for (int w = 0; w < WORLDS; w++)
            for (int c = (k + w) % 3 * SANITIZED; c < 3; c += SANITIZED ? 3 : 1) {
                trial t = {.kind = &kinds[k],
                           .layout = make_layout(caps[c]),
                           .overlap = overlaps[(c + w) % 3]};
                char why[256];
                if (cz_test_run_ranks(worlds[w], steps_rank, &t, why) != CZ_OK)
                    fail_msg("%s (%d), %d ranks, cap %zu: %s", t.kind->hook, k, worlds[w], caps[c],
                             why);
            }
}

/* ---- out of memory on one rank ---- */

/* Passes until one is right; then the result is that of a rank that never failed, where hooks
 * remember nothing. */
static cz_status retry_rank(cz_group *group, void *arg)
{
    const trial *t = arg;
    hooked h = {0};
    int failures = 0;
    cz_status status = hooked_create(&h, group, t, t->sharded);
    THEN(cz_barrier(group, NULL));
    if (status == CZ_OK && cz_group_rank(group) == 0)
        cz_test_fail_allocation(t->fails);
    THEN(cz_barrier(group, NULL));
    for (int pass = 0; status == CZ_OK && pass < 3;) {
        const cz_status got = one_pass(&h, 2); /* no parameter is frozen or unused */
        pass += got == CZ_OK;
        failures += got != CZ_OK;
        if (failures > 4)
            status = got;
    }
    float in[MOST];
    subject_result(&h.s, in);
    if (status == CZ_OK && !t->sharded)
        status = equal_everywhere(group, in, (size_t)element_count(&t->layout) * sizeof *in);
    hooked_clear(&h);
    return status;
}

TEST(no_memory)
{
    for (int k = 0; k < KINDS; k++)
        for (int sharded = 0; sharded < 2; sharded++) {
            bool failed = true;
            for (int64_t n = 1; failed; n += 1 + n / 8) {
                trial t = {.kind = &kinds[k],
                           .layout = make_layout(700),
                           .sharded = sharded,
                           .overlap = CZ_OVERLAP_INTERLEAVED,
                           .fails = n};
                char why[256];
                const cz_status status = cz_test_run_ranks(3, retry_rank, &t, why);
                failed = cz_test_allocation_reset();
                if (status != CZ_OK)
                    fail_msg("%s (%d), allocation %d: %s", t.kind->hook, k, (int)n, why);
            }
        }
    assert_int_equal(cz_test_allocations_held(), 0);
}

/* ---- buffers and errors are had once ---- Not compared: how many operations a group keeps, which
 * is how many happened to be in flight at once. */

static cz_status steady_rank(cz_group *group, void *arg)
{
    const trial *t = arg;
    hooked h = {0};
    size_t bytes = 0;
    cz_status status = hooked_create(&h, group, t, false);
    for (int pass = 0; status == CZ_OK && pass < 8; pass++) {
        status = one_pass(&h, 2);
        THEN(cz_barrier(group, NULL)); /* memory of all ranks is counted together */
        const size_t now = cz_memory_bytes(CZ_MEMORY_GRADIENT);
        if (status == CZ_OK && pass > 4 && now != bytes)
            status = cz_fail(CZ_ERR_STATE, "pass %d: %zu bytes, before %zu", pass, now, bytes);
        bytes = now;
        THEN(cz_barrier(group, NULL));
    }
    hooked_clear(&h);
    return status;
}

TEST(memory_is_had_once)
{
    for (int k = 0; k < KINDS; k++) {
        trial t = {.kind = &kinds[k], .layout = make_layout(700)};
        assert_ranks_ok(3, steady_rank, &t);
    }
}
