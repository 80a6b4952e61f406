/* SPDX-License-Identifier: MIT */
/* What a sharded optimizer has in common with those of the other ranks, in the order in which a person
 * would look for a difference: counts before what they count. */
#include <string.h>

#include "tensor/model.h"
#include "zero/zero.h"

static void describe_tensor(cz__description *d, const char *noun, int64_t index, const char *name,
                            const cz_tensor *tensor)
{
    cz__describe(d, &(cz__subject){NULL, noun, index, NULL, "is"}, CZ__FIELD_TEXT, name,
                 strlen(name));
    cz__describe(d, &(cz__subject){NULL, noun, index, name, "has shape"}, CZ__FIELD_SHAPE,
                 tensor->shape, (size_t)tensor->dimensions * sizeof *tensor->shape);
    cz__describe_number(d, &(cz__subject){NULL, noun, index, name, "has type"}, CZ__FIELD_DTYPE,
                        tensor->dtype);
    cz__describe_number(d, &(cz__subject){NULL, noun, index, name, "is"}, CZ__FIELD_LAYOUT,
                        tensor->layout);
    const char *device = cz__device_of(tensor)->name;
    cz__describe(d, &(cz__subject){NULL, noun, index, name, "is on device"}, CZ__FIELD_TEXT, device,
                 strlen(device));
}

static void describe_params(const cz_zero *zero, cz__description *d)
{
    cz__describe_number(d, &(cz__subject){NULL, "the number of parameters", -1, NULL, "is"},
                        CZ__FIELD_NUMBER, zero->param_count);
    for (int64_t p = 0; p < zero->param_count && d->status == CZ_OK; p++) {
        const char *name = cz_model_name(zero->model, p);
        describe_tensor(d, "parameter", p, name, cz_model_value(zero->model, p));
        cz__describe_number(d, &(cz__subject){NULL, "parameter", p, name, "lies"}, CZ__FIELD_BLOCK,
                            cz__model_block(zero->model, p));
    }
}

static void describe_buffers(const cz_zero *zero, cz__description *d)
{
    const int64_t count = cz_model_buffer_count(zero->model);
    cz__describe_number(d, &(cz__subject){NULL, "the number of buffers", -1, NULL, "is"},
                        CZ__FIELD_NUMBER, count);
    for (int64_t b = 0; b < count && d->status == CZ_OK; b++)
        describe_tensor(d, "buffer", b, cz_model_buffer_name(zero->model, b),
                        cz_model_buffer(zero->model, b));
}

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
    cz__describe_number(d, &(cz__subject){NULL, "option partition", -1, NULL, "is"},
                        CZ__FIELD_PARTITION, zero->partition);
    cz__describe_number(d, &(cz__subject){NULL, "option gradients", -1, NULL, "is"},
                        CZ__FIELD_GRADIENTS, zero->gradients);
    cz__describe_number(d, &(cz__subject){NULL, "option parameters_as_bucket_view", -1, NULL, "is"},
                        CZ__FIELD_NUMBER, zero->views_buckets);
    for (int64_t p = 0; owners && p < zero->param_count && d->status == CZ_OK; p++)
        cz__describe_number(d,
                            &(cz__subject){"the owner", "parameter", p,
                                           cz_model_name(zero->model, p), "is given as"},
                            CZ__FIELD_NUMBER, owners[p]);
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

void cz__describe_settings(const cz_zero *zero, const void *unused, cz__description *description)
{
    for (int64_t p = 0; p < zero->param_count && description->status == CZ_OK; p++)
        cz__describe_number(
            description, &(cz__subject){NULL, "parameter", p, cz_model_name(zero->model, p), "is"},
            CZ__FIELD_TRAINABLE, cz_model_requires_grad(zero->model, p));
    for (int64_t g = 0; g < cz_optim_group_count(zero->optim) && description->status == CZ_OK; g++)
        describe_hypers(zero, description, g);
}

void cz__describe_groups(const cz_zero *zero, const void *unused, cz__description *description)
{
    describe_members(zero, description);
    cz__describe_settings(zero, NULL, description);
}

void cz__describe_all(const cz_zero *zero, const void *owners, cz__description *description)
{
    describe_params(zero, description);
    describe_members(zero, description);
    describe_options(zero, owners, description);
    cz__describe_settings(zero, NULL, description);
    describe_buffers(zero, description);
}
