/* SPDX-License-Identifier: MIT */
/* Built-in hooks, by name. */
#include <stdio.h>
#include <string.h>

#include "base/float_mode.h"
#include "base/options.h"
#include "base/status.h"
#include "czero/zero.h"
#include "hooks/hooks.h"
#include "zero/zero.h"

static cz_status reduce_scatter(void *unused, cz_bucket *bucket)
{
    return cz_bucket_reduce(bucket, CZ_AVERAGE);
}

static cz_status no_op(void *unused, cz_bucket *bucket)
{
    return CZ_OK;
}

/* Those with `overlap` make the sharded optimizer that is their state step inside passes; those
 * with `make` have a state or may have one; the others have `run` and none. */
typedef struct known_hook {
    const char *name, *upstream; /* PyTorch's, NULL: it has none */
    cz_status (*run)(void *state, cz_bucket *bucket);
    cz__hook_make make;
    cz_hook_result result;
    cz_overlap overlap;
} known_hook;

static const known_hook hooks[] = {
    {.name = "all_reduce", .upstream = "ALLREDUCE", .run = cz__hook_all_reduce},
    {.name = "reduce_scatter", .result = CZ_HOOK_SLICE, .run = reduce_scatter},
    {.name = "no_op", .upstream = "NOOP", .run = no_op},
    {.name = "fp16_compress", .upstream = "FP16_COMPRESS", .make = cz__hook_make_fp16},
    {.name = "bf16_compress", .upstream = "BF16_COMPRESS", .make = cz__hook_make_bf16},
    {.name = "quantize_per_tensor",
     .upstream = "QUANTIZE_PER_TENSOR",
     .run = cz__hook_quantize_per_tensor},
    {.name = "quantize_per_channel",
     .upstream = "QUANTIZE_PER_CHANNEL",
     .make = cz__hook_make_per_channel},
    {.name = "powersgd", .upstream = "POWER_SGD", .make = cz__hook_make_powersgd},
    {.name = "powersgd_rank2", .upstream = "POWER_SGD_RANK2", .make = cz__hook_make_powersgd_rank2},
    {.name = "batched_powersgd",
     .upstream = "BATCHED_POWER_SGD",
     .make = cz__hook_make_batched_powersgd},
    {.name = "batched_powersgd_rank2",
     .upstream = "BATCHED_POWER_SGD_RANK2",
     .make = cz__hook_make_batched_powersgd_rank2},
    {.name = "post_local_sgd", .make = cz__hook_make_post_local_sgd},
    {.name = "mixed_precision", .make = cz__hook_make_mixed_precision},
    {.name = "record", .make = cz__hook_make_record},
    {.name = "zero_step", .overlap = CZ_OVERLAP_STEP},
    {.name = "zero_step_interleaved", .overlap = CZ_OVERLAP_INTERLEAVED},
};

enum { HOOKS = sizeof hooks / sizeof *hooks };

const char *cz_hook_name(int index)
{
    return index >= 0 && index < HOOKS ? hooks[index].name : NULL;
}

static cz_status unknown(const char *name)
{
    char names[400] = "";
    size_t length = 0;
    for (int k = 0; k < HOOKS; k++)
        length += (size_t)snprintf(names + length, sizeof names - length, "%s%s", k ? ", " : "",
                                   hooks[k].name);
    return cz__fail(CZ_ERR_ARGUMENT, "ddp register_hook: no hook '%.40s'; there are %s", name,
                    names);
}

static const known_hook *find_known(const char *name)
{
    for (int k = 0; k < HOOKS; k++)
        if (strcmp(hooks[k].name, name) == 0 ||
            (hooks[k].upstream && strcmp(hooks[k].upstream, name) == 0))
            return &hooks[k];
    return NULL;
}

static cz_status fill_hook(cz_hook *hook, const known_hook *e, const cz_model *model, void *state)
{
    *hook = (cz_hook)CZ_HOOK_INIT;
    hook->name = e->name;
    hook->result = e->result;
    hook->run = e->run;
    if (e->make)
        return e->make(hook, model, state);
    if (e->overlap)
        return cz__fail(CZ_ERR_UNSUPPORTED,
                        "hook '%s' is a setting of an optimizer: it can only be registered",
                        e->name);
    if (state)
        return cz__fail(CZ_ERR_ARGUMENT, "ddp register_hook: hook '%s' has no state, wanted NULL",
                        e->name);
    return CZ_OK;
}

cz_status cz_hook_find(cz_hook *out, const char *name, const cz_model *model, void *state)
{
    if (!out || !name)
        return cz__fail(CZ_ERR_ARGUMENT, "hook_find: %s is NULL", out ? "name" : "out");
    CZ_TRY(cz__options_check_size(out->size, "cz_hook"));
    const known_hook *e = find_known(name);
    cz_hook hook;
    CZ_TRY(e ? fill_hook(&hook, e, model, state) : unknown(name));
    if (hook.release && out->size < offsetof(cz_hook, release) +
                                        sizeof hook.release) { /* nobody could release its state */
        hook.release(hook.state);
        return cz__fail(
            CZ_ERR_UNSUPPORTED,
            "hook '%s' has a state to release, for which this cz_hook of %zu bytes has no field",
            e->name, out->size);
    }
    return cz__options_write(out, &hook, sizeof hook, "cz_hook");
}

static cz_status register_step(cz_ddp *ddp, const char *name, cz_zero *zero, cz_overlap overlap)
{
    if (!zero || cz__zero_ddp(zero) != ddp)
        return cz__fail(CZ_ERR_ARGUMENT,
                        "ddp register_hook: hook '%s' wants as its state a sharded optimizer whose "
                        "option ddp is this one",
                        name);
    return cz_zero_set_overlap(zero, overlap, NULL);
}

cz_status cz_ddp_register_hook_by_name(cz_ddp *ddp, const char *name, void *state)
{
    CZ__OWN_FLOATS;
    cz_hook hook;
    char both[48];
    if (!ddp || !name)
        return cz__fail(CZ_ERR_ARGUMENT, "ddp register_hook: %s is NULL", ddp ? "name" : "ddp");
    const known_hook *e = find_known(name);
    if (!e)
        return unknown(name);
    if (e->overlap)
        return register_step(ddp, e->name, state, e->overlap);
    CZ_TRY(fill_hook(&hook, e, cz__ddp_model(ddp), state));
    const cz_hook *inner = cz__hook_inner(&hook);
    if (inner) { /* compared between ranks, too */
        snprintf(both, sizeof both, "%s(%s)", hook.name, inner->name);
        hook.name = both;
    }
    const cz_status status = cz_ddp_register_hook(ddp, &hook);
    if (status != CZ_OK && hook.release && !state)
        hook.release(hook.state);
    return status;
}
