/* SPDX-License-Identifier: MIT */
/* Built-in hooks, by name. */
#include "czero/hooks.h"

#include <stdio.h>
#include <string.h>

#include "base/status.h"
#include "czero/zero.h"

static cz_status all_reduce(void *unused, cz_bucket *bucket)
{
    (void)unused;
    return cz_all_reduce(cz_bucket_group(bucket), cz_bucket_buffer(bucket), cz_bucket_count(bucket),
                         cz_bucket_dtype(bucket), CZ_AVERAGE, CZ_LABEL("gradients"));
}

static cz_status reduce_scatter(void *unused, cz_bucket *bucket)
{
    (void)unused;
    return cz_bucket_reduce(bucket, CZ_AVERAGE);
}

static cz_status no_op(void *unused, cz_bucket *bucket)
{
    (void)unused;
    (void)bucket;
    return CZ_OK;
}

/* Those without `run` make the sharded optimizer that is their state step inside passes. */
static const struct {
    const char *name;
    cz_hook_result result;
    cz_status (*run)(void *state, cz_bucket *bucket);
    cz_overlap overlap;
} hooks[] = {
    {"all_reduce", CZ_HOOK_WHOLE, all_reduce, CZ_OVERLAP_NONE},
    {"reduce_scatter", CZ_HOOK_SLICE, reduce_scatter, CZ_OVERLAP_NONE},
    {"no_op", CZ_HOOK_WHOLE, no_op, CZ_OVERLAP_NONE},
    {"zero_step", CZ_HOOK_WHOLE, NULL, CZ_OVERLAP_STEP},
    {"zero_step_interleaved", CZ_HOOK_WHOLE, NULL, CZ_OVERLAP_INTERLEAVED},
};

enum { HOOKS = sizeof hooks / sizeof *hooks };

int cz_hook_count(void)
{
    return HOOKS;
}

const char *cz_hook_name(int index)
{
    return index >= 0 && index < HOOKS ? hooks[index].name : NULL;
}

static cz_status unknown(const char *name)
{
    char names[160] = "";
    size_t length = 0;
    for (int k = 0; k < HOOKS; k++)
        length += (size_t)snprintf(names + length, sizeof names - length, "%s%s", k ? ", " : "",
                                   hooks[k].name);
    return cz__fail(CZ_ERR_ARGUMENT, "ddp register_hook: no hook '%.40s'; there are %s", name,
                    names);
}

static cz_status register_step(cz_ddp *ddp, const char *name, cz_zero *zero, cz_overlap overlap)
{
    if (!zero || cz_zero_ddp(zero) != ddp)
        return cz__fail(CZ_ERR_ARGUMENT,
                        "ddp register_hook: hook '%s' wants as its state a sharded optimizer whose "
                        "option ddp is this one",
                        name);
    return cz_zero_set_overlap(zero, overlap);
}

cz_status cz_ddp_register_hook_by_name(cz_ddp *ddp, const char *name, void *state)
{
    int k = 0;
    if (!ddp || !name)
        return cz__fail(CZ_ERR_ARGUMENT, "ddp register_hook: %s is NULL", ddp ? "name" : "ddp");
    while (k < HOOKS && strcmp(hooks[k].name, name) != 0)
        k++;
    if (k == HOOKS)
        return unknown(name);
    if (hooks[k].overlap)
        return register_step(ddp, name, state, hooks[k].overlap);
    if (state)
        return cz__fail(CZ_ERR_ARGUMENT, "ddp register_hook: hook '%s' has no state, wanted NULL",
                        name);
    return cz_ddp_register_hook(
        ddp, &(cz_hook){sizeof(cz_hook), name, hooks[k].result, hooks[k].run, NULL});
}
