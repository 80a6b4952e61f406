/* SPDX-License-Identifier: MIT */
/* Built-in hooks, for their registry. */
#ifndef CZ_HOOKS_HOOKS_H
#define CZ_HOOKS_HOOKS_H

#include "czero/hooks.h"
#include "ddp/ddp.h"

/* From the state that the program gives: set `run`, and if they differ from what the registry says,
 * `result`, `state` and `release`. `model` may be NULL. The sentence begins with the hook's
 * name. */
typedef cz_status (*cz__hook_make)(cz_hook *hook, const cz_model *model, void *state);

/* ---- wrap.c ---- */

/* Numbers that ranks have alike, for cz__hook_describe_with(): their names, which end with NULL. */
void cz__hook_tell(cz__description *description, const cz_hook *hook, const char *const *names,
                   const double *values);
cz_status cz__hook_all_reduce(void *unused, cz_bucket *bucket); /* itself; others begin with it */
cz_status cz__hook_make_fp16(cz_hook *hook, const cz_model *model, void *state);
cz_status cz__hook_make_bf16(cz_hook *hook, const cz_model *model, void *state);
cz_status cz__hook_make_record(cz_hook *hook, const cz_model *model, void *state);
/* The hook that this one is around; NULL: none. */
const cz_hook *cz__hook_inner(const cz_hook *hook);

/* ---- powersgd.c ---- */
cz_status cz__hook_make_powersgd(cz_hook *hook, const cz_model *model, void *state);
cz_status cz__hook_make_powersgd_rank2(cz_hook *hook, const cz_model *model, void *state);
cz_status cz__hook_make_batched_powersgd(cz_hook *hook, const cz_model *model, void *state);
cz_status cz__hook_make_batched_powersgd_rank2(cz_hook *hook, const cz_model *model, void *state);

/* ---- quantize.c ---- */
cz_status cz__hook_quantize_per_tensor(void *unused, cz_bucket *bucket); /* itself */
cz_status cz__hook_make_per_channel(cz_hook *hook, const cz_model *model, void *state);
/* A row: its scale and zero point in scale[0] and [1], and `count` bytes. */
void cz__quantize_row(int64_t count, const float *x, float *scale, uint8_t *q);

/* ---- post_local_sgd.c, mixed_precision.c ---- */
cz_status cz__hook_make_post_local_sgd(cz_hook *hook, const cz_model *model, void *state);
cz_status cz__hook_make_mixed_precision(cz_hook *hook, const cz_model *model, void *state);

#endif
