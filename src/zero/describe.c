/* SPDX-License-Identifier: MIT */
/* What a sharded optimizer has in common with those of the other ranks. */
#include <string.h>

#include "zero/zero.h"

static const char *const partition_words[] = {"elements", "greedy",        "given",
                                              "buckets",  "bucket pieces", NULL};
static const char *const gradient_words[] = {"local", "reduced", NULL};

static void describe_members(const cz_zero *zero, cz__description *d)
{
    const int64_t groups = cz_optim_group_count(zero->optim);
    cz__describe_number(d, &(cz__subject){NULL, "the number of parameter groups", -1, NULL, "is"},
                        CZ__FIELD_NUMBER, groups);
    for (int64_t g = 0; g < groups && d->status == CZ_OK; g++) {
        int64_t count = 0;
        const int64_t *params = cz__optim_group_params(zero->optim, g, &count);
        cz__describe_number(d, &(cz__subject){"size", "parameter group", g, NULL, "is"},
                            CZ__FIELD_NUMBER, count);
        for (int64_t k = 0; k < count && d->status == CZ_OK; k++)
            cz__describe_number(
                d, &(cz__subject){"a member", "parameter group", g, NULL, "is parameter"},
                CZ__FIELD_NUMBER, params[k]);
    }
}

static void describe_options(const cz_zero *zero, const int *owners, cz__description *d)
{
    const char *rule = zero->rule->name;
    cz__describe(d, &(cz__subject){NULL, "the rule", -1, NULL, "is"}, CZ__FIELD_TEXT, rule,
                 strlen(rule));
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

/* With the names of those that were added. */
static void describe_hypers(const cz_zero *zero, cz__description *d, int64_t g)
{
    const int count = cz_optim_hyper_count(zero->optim, g);
    cz__describe_number(
        d, &(cz__subject){"the number of hyper-parameters", "parameter group", g, NULL, "is"},
        CZ__FIELD_NUMBER, count);
    for (int h = 0; h < count; h++) {
        const char *name = cz_optim_hyper_name(zero->optim, g, h);
        double value = 0;
        (void)cz_optim_get_hyper(zero->optim, g, name, &value);
        if (h >= zero->rule->hyper_count)
            cz__describe(
                d, &(cz__subject){"an added hyper-parameter", "parameter group", g, NULL, "is"},
                CZ__FIELD_TEXT, name, strlen(name));
        cz__describe(d, &(cz__subject){name, "parameter group", g, NULL, "is"}, CZ__FIELD_REAL,
                     &value, sizeof value);
    }
}

void cz__describe_partition(cz__description *d, const cz_zero *zero, cz_partition partition,
                            const int *owners)
{
    cz__describe_word(d, &(cz__subject){NULL, "option partition", -1, NULL, "is"}, partition_words,
                      partition);
    for (int64_t p = 0; owners && p < zero->param_count && d->status == CZ_OK; p++)
        cz__describe_number(d,
                            &(cz__subject){"the owner", "parameter", p,
                                           cz_model_name(zero->model, p), "is given as"},
                            CZ__FIELD_NUMBER, owners[p]);
}

static void describe_norm(const cz_zero *zero, cz__description *d)
{
    static const char *const names[] = {"max_norm", "skip_nonfinite", "norm"};
    double values[3];
    cz__norm_options(zero->optim, values);
    for (int k = 0; k < 3; k++)
        cz__describe(d, &(cz__subject){names[k], "the step", -1, NULL, "is"}, CZ__FIELD_REAL,
                     &values[k], sizeof values[k]);
}

static void describe_all_hypers(const cz_zero *zero, cz__description *d)
{
    for (int64_t g = 0; g < cz_optim_group_count(zero->optim) && d->status == CZ_OK; g++)
        describe_hypers(zero, d, g);
}

static void describe_settings(const cz_zero *zero, cz__description *d)
{
    cz__describe_trainable(d, zero->model);
    describe_all_hypers(zero, d);
}

void cz__describe_settings(cz__description *d, const void *context)
{
    const cz_zero *zero = context;
    cz__describe_call(d, &zero->object);
    describe_settings(zero, d);
}

void cz__describe_rates(cz__description *d, const cz_zero *zero)
{
    cz__describe_call(d, &zero->object);
    describe_norm(zero, d);
    describe_all_hypers(zero, d);
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
    describe_members(zero, d);
    describe_settings(zero, d);
}

void cz__describe_all(cz__description *d, const void *context)
{
    const cz__creation *creation = context;
    cz__describe_params(d, creation->zero->model);
    describe_members(creation->zero, d);
    describe_options(creation->zero, creation->owners, d);
    cz__describe_sharing(d, creation->zero);
    describe_settings(creation->zero, d);
    cz__describe_buffers(d, creation->zero->model);
}
