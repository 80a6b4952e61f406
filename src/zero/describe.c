/* SPDX-License-Identifier: MIT */
/* What a sharded optimizer has in common with those of the other ranks. */
#include "optim/optim.h"
#include "zero/zero.h"

static const char *const partition_words[] = {"elements", "greedy",        "given",
                                              "buckets",  "bucket pieces", NULL};
static const char *const gradient_words[] = {"local", "reduced", NULL};

static void describe_options(const cz_zero *zero, const int *owners, cz__description *d)
{
    cz__describe_rule(d, zero->rule);
    cz__describe_partition(d, zero, zero->partition, owners);
    cz__describe_word(d, &(cz__subject){NULL, "option gradients", -1, NULL, "is"}, gradient_words,
                      zero->gradients);
    cz__describe_number(d, &(cz__subject){NULL, "option parameters_as_bucket_view", -1, NULL, "is"},
                        CZ__FIELD_NUMBER, zero->views_buckets);
    cz__describe_object(d, &(cz__subject){NULL, "option ddp", -1, NULL, "is"},
                        zero->ddp ? cz__ddp_object(zero->ddp) : NULL);
    cz__describe_number(d, &(cz__subject){NULL, "option overlap", -1, NULL, "is"}, CZ__FIELD_NUMBER,
                        zero->overlap);
    cz__describe_number(d, &(cz__subject){NULL, "option overlap_gather", -1, NULL, "is"},
                        CZ__FIELD_NUMBER, zero->late);
}

void cz__describe_partition(cz__description *d, const cz_zero *zero, cz_partition partition,
                            const int *owners)
{
    cz__describe_word(d, &(cz__subject){NULL, "option partition", -1, NULL, "is"}, partition_words,
                      partition);
    for (int64_t p = 0; owners && p < zero->param_count; p++)
        cz__describe_number(d,
                            &(cz__subject){"the owner", "parameter", p,
                                           cz__model_name(zero->model, p), "is given as"},
                            CZ__FIELD_NUMBER, owners[p]);
}

static void describe_norm(const cz_zero *zero, cz__description *d)
{
    static const char *const names[CZ__STEP_NUMBERS] = {"max_norm", "skip_nonfinite", "norm",
                                                        "allow_no_gradients"};
    double values[CZ__STEP_NUMBERS];
    cz__step_numbers(zero->optim, values);
    for (int k = 0; k < CZ__STEP_NUMBERS; k++)
        cz__describe(d, &(cz__subject){names[k], "the step", -1, NULL, "is"}, CZ__FIELD_REAL,
                     &values[k], sizeof values[k]);
}

static void describe_settings(const cz_zero *zero, cz__description *d)
{
    cz__describe_trainable(d, zero->model);
    cz__describe_hypers(d, zero->optim);
}

void cz__describe_settings(cz__description *d, const void *context)
{
    const cz_zero *zero = context;
    cz__describe_call(d, &zero->object);
    describe_settings(zero, d);
}

static void describe_rates(cz__description *d, const cz_zero *zero)
{
    cz__describe_call(d, &zero->object);
    describe_norm(zero, d);
    cz__describe_hypers(d, zero->optim);
}

void cz__describe_step(cz__description *d, const void *context)
{
    const cz_zero *zero = context;
    cz__describe_call(d, &zero->object);
    describe_norm(zero, d);
    describe_settings(zero, d);
}

void cz__describe_groups(cz__description *d, const void *context)
{
    const cz_zero *zero = context;
    cz__describe_call(d, &zero->object);
    cz__describe_members(d, zero->optim);
    describe_settings(zero, d);
}

void cz__describe_all(cz__description *d, const void *context)
{
    const cz__creation *creation = context;
    cz__describe_params(d, creation->zero->model);
    cz__describe_members(d, creation->zero->optim);
    describe_options(creation->zero, creation->owners, d);
    cz__describe_sharing(d, creation->zero);
    describe_settings(creation->zero, d);
    cz__describe_buffers(d, creation->zero->model);
}

cz_status cz__zero_write_settings(cz_zero *zero)
{
    zero->settings.count = 0;
    zero->settings.status = CZ_OK;
    cz__describe_step(&zero->settings, zero);
    return zero->settings.status;
}

/* The list of parameters has room since create, unless hyper-parameters were added. */
cz_status cz__zero_look_at_settings(cz_zero *zero)
{
    zero->rates.count = 0;
    zero->rates.status = CZ_OK;
    describe_rates(&zero->rates, zero);
    CZ_TRY(zero->rates.status);
    if (zero->rates.count == zero->described)
        return CZ_OK;
    CZ_TRY(cz__zero_write_settings(zero));
    zero->described = zero->rates.count;
    return CZ_OK;
}
