/* SPDX-License-Identifier: MIT */
/* Trainings in parts, and what comes of them. */
#include "support/part_trials.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "czero/checkpoint.h"
#include "czero/ddp.h"
#include "czero/in_backward.h"
#include "support/cz_test.h"
#include "support/transports.h"

enum { LARGEST = 70000 };
const int64_t small_params[PART_PARAMS] = {40, 0, 3, 131, 700};
const int64_t large_params[PART_PARAMS] = {40, 0, 3, LARGEST, 700};

part_trial plain_part_trial(stepping way, int parts)
{
    return (part_trial){.way = way,
                        .parts = parts,
                        .sizes = small_params,
                        .dtype = CZ_F32,
                        .rule = cz_rule_adamw(),
                        .bucket_bytes = 1024};
}

/* ---- what is expected ---- */

static double weight(const part_trial *t, int step, int part)
{
    if (t->weighing == ALIKE)
        return 1;
    if (t->weighing == ALL_ZERO && step == 1)
        return 0;
    if (t->weighing >= SOME_ZERO && (part + step) % 3 == 1)
        return 0;
    return 1 + (part * 7 + step) % 5;
}

static bool is_absent(const part_trial *t, int step, int part, int p)
{
    return t->some_absent &&
           ((p == 2 && step == 1) || (p == 0 && part % 3 != 1) || (p == 3 && part % 2 == 0));
}

/* No sum of these is exact. */
static double gradient(int step, int part, int p, int64_t i)
{
    const uint64_t bits =
        mix((uint64_t)step << 48 ^ (uint64_t)part << 32 ^ (uint64_t)p << 24 ^ (uint64_t)i);
    return ((double)(bits >> 11) * 0x1p-53 - 0.5) * pow(2, (double)(bits & 7));
}

static double rounded(cz_dtype dtype, double value)
{
    return dtype == CZ_F32 ? (double)(float)value : value;
}

static double tree(const part_trial *t, const double *values, int count)
{
    int left = 1;
    if (count == 1)
        return values[0];
    while (2 * left < count)
        left *= 2;
    return rounded(t->dtype, tree(t, values, left) + tree(t, values + left, count - left));
}

/* What the gradient of each part counts for. */
static void shares_of(const part_trial *t, int step, double *shares)
{
    part_trial exact = *t;
    double weights[MOST_TRIED_PARTS] = {0};
    bool equal = true;
    exact.dtype = CZ_F64;
    for (int k = 0; k < t->parts; k++) {
        weights[k] = weight(t, step, k);
        equal = equal && weights[k] == weights[0];
    }
    const double sum = tree(&exact, weights, t->parts);
    for (int k = 0; k < t->parts; k++)
        shares[k] = equal ? 1 : weights[k] * t->parts / sum;
}

static double mean(const part_trial *t, int step, const double *shares, int p, int64_t i)
{
    double values[MOST_TRIED_PARTS] = {0};
    for (int k = 0; k < t->parts; k++) {
        values[k] = is_absent(t, step, k, p) || weight(t, step, k) == 0
                        ? 0
                        : rounded(t->dtype, gradient(step, k, p, i));
        if (shares[k] != 1)
            values[k] = rounded(t->dtype, values[k] * rounded(t->dtype, shares[k]));
    }
    return rounded(t->dtype, tree(t, values, t->parts) / t->parts);
}

static bool is_used(const part_trial *t, int step, int p)
{
    bool any = false;
    for (int k = 0; k < t->parts; k++)
        any = any || !is_absent(t, step, k, p);
    return any;
}

static bool is_skipped(const part_trial *t, int step)
{
    bool any = false;
    for (int k = 0; k < t->parts; k++)
        any = any || weight(t, step, k) != 0;
    return !any;
}

cz_status part_trial_work_out(const part_trial *t, part_values *e)
{
    const cz_test_training layout = {
        .param_count = PART_PARAMS, .sizes = t->sizes, .dtype = t->dtype};
    cz_test_memory memory;
    cz_optim *optim;
    CZ_TRY(cz_test_memory_create(&memory, &layout));
    CZ_TRY(cz_optim_create(&optim, memory.model, t->rule, NULL, NULL));
    for (int step = 0; step < PART_STEPS; step++) {
        double shares[MOST_TRIED_PARTS];
        void *gradients[PART_PARAMS];
        shares_of(t, step, shares);
        for (int p = 0; p < PART_PARAMS; p++) {
            for (int64_t i = 0; i < t->sizes[p]; i++)
                cz_test_store(memory.grads[p], t->dtype, i, mean(t, step, shares, p, i));
            gradients[p] = is_used(t, step, p) ? memory.grads[p] : NULL;
        }
        const cz_step_options options = {.size = sizeof options,
                                         .gradients = gradients,
                                         .gradient_count = PART_PARAMS,
                                         .max_norm = t->max_norm};
        if (!is_skipped(t, step))
            CZ_TRY(cz_optim_step(optim, &options, NULL));
        CZ_TRY(cz_optim_fingerprint(optim, e->prints[step]));
        for (int p = 0; p < PART_PARAMS; p++) {
            const size_t bytes = (size_t)t->sizes[p] * cz_dtype_size(t->dtype);
            e->values[step][p] = malloc(bytes + 1);
            memcpy(e->values[step][p], memory.values[p], bytes);
        }
    }
    cz_optim_destroy(&optim);
    cz_test_memory_destroy(&memory);
    return CZ_OK;
}

void part_values_free(part_values *e)
{
    for (int step = 0; step < PART_STEPS; step++)
        for (int p = 0; p < PART_PARAMS; p++)
            free(e->values[step][p]);
}

/* ---- a rank ---- */

typedef struct subject {
    const part_trial *trial;
    const part_values *expected;
    cz_test_memory memory;
    cz_parts *parts;
    cz_ddp *ddp;
    cz_zero *zero;
    cz_optim *optim;
    cz_in_backward *in_backward;
    cz_checkpoint *checkpoint;
} subject;

static void clear(subject *s)
{
    cz_checkpoint_destroy(&s->checkpoint);
    cz_zero_destroy(&s->zero);
    cz_ddp_destroy(&s->ddp);
    cz_in_backward_destroy(&s->in_backward);
    cz_optim_destroy(&s->optim);
    cz_parts_destroy(&s->parts);
    cz_test_memory_destroy(&s->memory);
}

static cz_status create(subject *s, cz_group *group)
{
    const part_trial *t = s->trial;
    const cz_test_training layout = {
        .param_count = PART_PARAMS, .sizes = t->sizes, .dtype = t->dtype};
    const cz_parts_options parts = {sizeof parts, t->parts, 0};
    cz_ddp_options buckets = CZ_DDP_OPTIONS_INIT;
    cz_zero_options options = CZ_ZERO_OPTIONS_INIT;
    CZ_TRY(cz_test_memory_create(&s->memory, &layout));
    CZ_TRY(cz_parts_create(&s->parts, group, s->memory.model, &parts));
    buckets.parts = s->parts;
    buckets.bucket_bytes = t->bucket_bytes;
    buckets.first_bucket_bytes = t->bucket_bytes / 2;
    buckets.find_unused = t->some_absent;
    if (t->way >= OVERLAP_NONE)
        CZ_TRY(cz_ddp_create(&s->ddp, group, s->memory.model, &buckets));
    if (t->way == IN_BACKWARD) {
        CZ_TRY(cz_optim_create(&s->optim, s->memory.model, t->rule, NULL, NULL));
        CZ_TRY(cz_in_backward_create(&s->in_backward, &s->optim, 1, NULL));
        return cz_ddp_step_in_backward(s->ddp, s->in_backward);
    }
    if (t->way == WHOLE)
        return cz_optim_create(&s->optim, s->memory.model, t->rule, NULL, NULL);
    options.parts = s->parts;
    options.ddp = s->ddp;
    options.partition = t->way == ALONE_WHOLE ? CZ_PARTITION_GREEDY : CZ_PARTITION_ELEMENTS;
    if (t->way == OVERLAP_INTERLEAVED)
        options.overlap = CZ_OVERLAP_INTERLEAVED;
    if (t->way == OVERLAP_STEP)
        options.overlap = CZ_OVERLAP_STEP;
    return cz_zero_create(&s->zero, group, s->memory.model, t->rule, NULL, &options);
}

static cz_status fill_gradients(subject *s, int step, int part)
{
    const part_trial *t = s->trial;
    for (int p = 0; p < PART_PARAMS; p++) {
        const bool absent = is_absent(t, step, part, p);
        const bool is_read = !absent && weight(t, step, part) != 0;
        for (int64_t i = 0; i < t->sizes[p]; i++)
            cz_test_store(s->memory.grads[p], t->dtype, i,
                          is_read ? gradient(step, part, p, i) : NAN);
        CZ_TRY(cz_model_set_gradient(s->memory.model, p,
                                     absent && !s->ddp ? NULL : s->memory.grads[p]));
    }
    return CZ_OK;
}

static cz_status run_part(subject *s, int step, int part)
{
    CZ_TRY(fill_gradients(s, step, part));
    if (!s->ddp)
        return cz_parts_add(s->parts);
    CZ_TRY(cz_ddp_begin(s->ddp, cz_parts_is_last(s->parts)));
    for (int k = 0; k < PART_PARAMS; k++) {
        const int p = (k * 2 + step + part) % PART_PARAMS;
        if (!is_absent(s->trial, step, part, p))
            CZ_TRY(cz_ddp_mark_ready(s->ddp, p));
    }
    return cz_ddp_finish(s->ddp);
}

static cz_status make_step(subject *s, int step)
{
    const part_trial *t = s->trial;
    const cz_step_options options = {.size = sizeof options, .max_norm = t->max_norm};
    cz_step_result result = CZ_STEP_RESULT_INIT;
    if (t->way == IN_BACKWARD)
        return CZ_OK;
    for (int p = 0; p < PART_PARAMS; p++) /* the last part may have none, another one had */
        CZ_TRY(cz_model_set_gradient(s->memory.model, p,
                                     is_used(t, step, p) || s->zero ? s->memory.grads[p] : NULL));
    if (t->way == WHOLE)
        return is_skipped(t, step) ? CZ_OK : cz_optim_step(s->optim, &options, NULL);
    const bool overlaps = t->way == OVERLAP_INTERLEAVED || t->way == OVERLAP_STEP;
    CZ_TRY(cz_zero_step(s->zero, overlaps ? NULL : &options, &result));
    CHECK(result.skipped == is_skipped(t, step), "step %d: skipped is %d", step, result.skipped);
    return CZ_OK;
}

static cz_status compare(const subject *s, int step)
{
    const part_trial *t = s->trial;
    for (int p = 0; p < PART_PARAMS; p++)
        for (int64_t i = 0; i < t->sizes[p]; i++) {
            const double is = cz_test_load(s->memory.values[p], t->dtype, i);
            const double wanted = cz_test_load(s->expected->values[step][p], t->dtype, i);
            CHECK(memcmp(&is, &wanted, sizeof is) == 0,
                  "step %d: element %" PRId64 " of parameter %d is %a, wanted %a", step, i, p, is,
                  wanted);
        }
    return CZ_OK;
}

static cz_status compare_prints(const subject *s, int step)
{
    const uint64_t *wanted = s->expected->prints[step];
    uint64_t print[2];
    CZ_TRY(s->zero ? cz_zero_fingerprint(s->zero, print) : cz_optim_fingerprint(s->optim, print));
    CHECK(memcmp(print, wanted, sizeof print) == 0, "step %d: the fingerprint is another one",
          step);
    return s->zero ? cz_zero_check_fingerprint(s->zero) : CZ_OK;
}

static cz_status check_mean(subject *s, int step)
{
    const part_trial *t = s->trial;
    part_trial exact = *t;
    double own[2 * MOST_TRIED_PARTS], all[MOST_TRIED_PARTS] = {0}, shares[MOST_TRIED_PARTS] = {0},
                                      means[2];
    exact.dtype = CZ_F64;
    shares_of(t, step, shares);
    for (int i = 0, part; (part = cz_parts_own(s->parts, i)) >= 0; i++) {
        own[2 * i] = gradient(step, part, 0, 0);
        own[2 * i + 1] = weight(t, step, part) == 0 ? NAN : part;
    }
    CZ_TRY(cz_parts_mean(s->parts, own, 2, means));
    for (int k = 0; k < t->parts; k++)
        all[k] = weight(t, step, k) == 0 ? 0 : gradient(step, k, 0, 0) * shares[k];
    const double wanted = tree(&exact, all, t->parts) / t->parts;
    CHECK(is_skipped(t, step) ? isnan(means[0]) : means[0] == wanted,
          "step %d: the mean is %a, wanted %a", step, means[0], wanted);
    CHECK(isnan(means[1]) == is_skipped(t, step), "step %d: the other mean is %g", step, means[1]);
    return CZ_OK;
}

static cz_status train(subject *s, int begin, int end)
{
    for (int step = begin; step < end; step++) {
        double weights[MOST_TRIED_PARTS];
        for (int i = 0, part; (part = cz_parts_own(s->parts, i)) >= 0; i++)
            weights[i] = weight(s->trial, step, part);
        if (s->trial->weighing != ALIKE)
            CZ_TRY(cz_parts_set_weights(s->parts, weights));
        for (int i = 0, part; (part = cz_parts_own(s->parts, i)) >= 0; i++)
            CZ_TRY(run_part(s, step, part));
        CZ_TRY(make_step(s, step));
        CZ_TRY(compare(s, step));
        CZ_TRY(compare_prints(s, step));
        CZ_TRY(check_mean(s, step));
    }
    return CZ_OK;
}

cz_status part_trial_run(cz_group *group, const part_trial *trial, const part_values *expected)
{
    subject s = {.trial = trial, .expected = expected};
    cz_status status = create(&s, group);
    if (!status)
        status = train(&s, 0, PART_STEPS);
    clear(&s);
    return status;
}

static cz_status resume(subject *s, cz_group *group, int begin, int end, const char *folder)
{
    cz_checkpoint_options options = CZ_CHECKPOINT_OPTIONS_INIT;
    cz_save_options save = CZ_SAVE_OPTIONS_INIT;
    cz_load_options load = CZ_LOAD_OPTIONS_INIT;
    options.model = s->memory.model;
    options.zero = s->zero;
    options.optim = s->optim;
    options.parts = s->zero ? NULL : s->parts; /* it knows them */
    CZ_TRY(cz_checkpoint_create(&s->checkpoint, group, folder, &options));
    load.step = begin;
    if (begin > 0)
        CZ_TRY(cz_checkpoint_load(s->checkpoint, &load, NULL));
    CZ_TRY(train(s, begin, end));
    save.step = end;
    return cz_checkpoint_save(s->checkpoint, &save);
}

cz_status part_trial_resume(cz_group *group, const part_trial *trial, const part_values *expected,
                            int begin, int end, const char *folder)
{
    subject s = {.trial = trial, .expected = expected};
    cz_status status = create(&s, group);
    if (!status)
        status = resume(&s, group, begin, end, folder);
    clear(&s);
    return status;
}
