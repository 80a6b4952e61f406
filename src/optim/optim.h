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

/* ---- the state of local spans, for loading and saving it ---- */

/* A span that is here. slots[e] is the memory of the rule's e-th element slot, NULL where none is reserved;
 * bit e of `used`: the slot is present, for all spans of the parameter. */
typedef struct cz__optim_span {
    int64_t param, begin, end; /* begin == end: an empty parameter, here for its step count */
    unsigned used;
    void *const *slots;
} cz__optim_span;
int64_t cz__optim_span_count(const cz_optim *optim);
cz__optim_span cz__optim_span_at(const cz_optim *optim, int64_t index);

/* The rule's e-th element slot, and its k-th scalar slot, "step" left out; NULL if there are fewer. */
const cz_slot_spec *cz__optim_element_slot(const cz_optim *optim, int e);
const cz_slot_spec *cz__optim_scalar_slot(const cz_optim *optim, int k);

/* Have memory for these element slots of a parameter, whether or not it is trained and its values want
 * them: zeroed where there was none. CZ_ERR_MEMORY: nothing was changed. */
cz_status cz__optim_reserve_slots(cz_optim *optim, int64_t param, unsigned slots);

/* These slots are present from now on: the caller has written them, in all spans of the parameter here. */
void cz__optim_mark_used(cz_optim *optim, int64_t param, unsigned slots);

/* The step count, and a scalar: all scalars of the parameter are present from now on, the others with what
 * they start with. */
void cz__optim_set_step(cz_optim *optim, int64_t param, int64_t steps);
void cz__optim_set_scalar(cz_optim *optim, int64_t param, int index, double value);

/* ---- a step ---- */

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
