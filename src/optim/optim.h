/* SPDX-License-Identifier: MIT */
/* The local optimizer as the sharded one uses it: over the spans of one rank. */
#ifndef CZ_OPTIM_OPTIM_H
#define CZ_OPTIM_OPTIM_H

#include "czero/optim.h"
#include "czero/shard.h"

/* The first half of cz_optim_create(): check everything and build the parameter groups. It owns nothing
 * yet. Freezes the model's list only when it succeeds. */
cz_status cz__optim_create(cz_optim **out, cz_model *model, const cz_rule *rule,
                           const cz_hyper *hypers, const cz_optim_options *options);

/* The second half: own the spans of `rank` in `map` (borrowed, outlives the optimizer) and reserve
 * zeroed state for those of trainable parameters, in one arena. Once per optimizer. */
cz_status cz__optim_set_map(cz_optim *optim, const cz_shard_map *map, int rank);

/* The parameters of a group, in its order. Owned by the optimizer. */
const int64_t *cz__optim_group_params(const cz_optim *optim, int64_t param_group, int64_t *count);

/* The group of a parameter, -1 if none. */
int64_t cz__optim_group_of(const cz_optim *optim, int64_t param);

/* The values of a group, in the order of the rule's specs. */
const double *cz__optim_hypers(const cz_optim *optim, int64_t param_group);

/* Have state for every span of a trainable parameter (parameters may have been unfrozen) before a step
 * begins. CZ_ERR_MEMORY: nothing was changed. */
cz_status cz__optim_prepare(cz_optim *optim);

/* What every step begins with: options and result are right, the closure is run; *loss is NaN without
 * one. And what it ends with, once it has succeeded. */
cz_status cz__step_begin(const cz_step_options *options, const cz_step_result *result,
                         double *loss);
void cz__step_end(cz_step_result *result, double loss);

/* Update the local spans of trainable parameters in groups. gradients[p]: address of the whole gradient
 * of parameter p (element 0), NULL: skip p, its step count stays. Cannot fail after
 * cz__optim_prepare(). Returns the bytes that were read and written. */
uint64_t cz__optim_update(cz_optim *optim, void *const *gradients);

#endif
