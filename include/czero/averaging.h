/* SPDX-License-Identifier: MIT */
/** @file averaging.h  Model averaging: each rank trains on its own, and every so many steps the
 *  ranks replace their parameters by the mean over a group (PyTorch's ModelAverager).
 *
 *      CZ_TRY(cz_averager_create_periodic(&averager, group, model, 16, NULL));
 *      for (…) {
 *          gradients of this rank's examples; CZ_TRY(cz_optim_step(optim, NULL, NULL));
 *          CZ_TRY(cz_averager_average(averager, NULL));      // after every 16th step: the mean
 *      }
 *
 *  @see Lin et al., "Don't Use Large Mini-Batches, Use Local SGD", arXiv:1808.07217. */
#ifndef CZERO_AVERAGING_H
#define CZERO_AVERAGING_H

#include "czero/group.h"
#include "czero/optim.h"
#include "czero/state.h"
#include "czero/tensor.h"

CZ_BEGIN_DECLS

/** Counts steps and knows after which of them parameters are averaged, and over how many ranks. One
 *  thread at a time per handle. */
typedef struct cz_averager cz_averager;

/** Average over blocks of so many neighbouring ranks, every `period` steps. */
typedef struct cz_averager_level {
    size_t size;      /**< sizeof(cz_averager_level) there; the first one's holds for the array */
    int64_t period;   /**< 1 or more */
    int32_t ranks;    /**< divides the number of ranks of the group; 1: no averaging */
    int32_t reserved; /**< 0 */
} cz_averager_level;
#define CZ_AVERAGER_LEVEL_INIT {sizeof(cz_averager_level), 0, 0, 0}
CZ_INIT_FUNCTION(cz_averager_level, CZ_AVERAGER_LEVEL_INIT)

typedef struct cz_averager_options {
    size_t size; /**< set by CZ_AVERAGER_OPTIONS_INIT */
    /** Steps before the first averaging, in which ranks are kept equal some other way, by reduced
     *  gradients; the step after them is averaged, then those that are whole periods later. 0 or
     *  more. */
    int64_t warmup_steps;
    /** 1: where no trainable parameter has a gradient on any rank nothing is averaged, and the step
     *  is counted; 0: that is CZ_ERR_STATE, for gradients, which say what is averaged, have then
     *  been forgotten. */
    int32_t allow_no_gradients;
    int32_t reserved; /**< 0 */
} cz_averager_options;
#define CZ_AVERAGER_OPTIONS_INIT {sizeof(cz_averager_options), 0, 0, 0}
CZ_INIT_FUNCTION(cz_averager_options, CZ_AVERAGER_OPTIONS_INIT)

/** Create an averager of several levels, of which the last one counts whose period divides the
 *  steps since the warm-up; or of one level, over the whole group every `period` steps. Its counter
 *  is 0.
 *
 *  Collective.
 *  @param group   borrowed; outlives the averager. Ranks outside make none: they have nothing to
 *                 average.
 *  @param model   borrowed, as its tensors; its list of parameters is frozen from now on. Values
 *                 are not made equal here.
 *  @param levels  `count`, 1 or more, periods ascending; the last one is over all ranks; copied
 *  @param options NULL: no warm-up
 *  @return CZ_OK. CZ_ERR_ARGUMENT (a NULL; a period, a number of ranks or an option out of range,
 *          periods that do not ascend, values or gradients that share memory with another tensor),
 *          CZ_ERR_MISMATCH (the first difference between two ranks), CZ_ERR_UNSUPPORTED (a backend
 *          without sub-groups, a trainable parameter of an integer type, a parameter in memory that
 *          ranks share, a sparse tensor, one that is not on a device of the type whose memory the
 *          group moves), CZ_ERR_MEMORY. */
CZ_API cz_status cz_averager_create_hierarchical(cz_averager **out, cz_group *group,
                                                 cz_model *model, const cz_averager_level *levels,
                                                 int64_t count, const cz_averager_options *options);
static inline cz_status cz_averager_create_periodic(cz_averager **out, cz_group *group,
                                                    cz_model *model, int64_t period,
                                                    const cz_averager_options *options)
{
    cz_averager_level all = CZ_AVERAGER_LEVEL_INIT;
    all.period = period;
    all.ranks = cz_group_size(group);
    return cz_averager_create_hierarchical(out, group, model, &all, 1, options);
}

/** Local; accepts NULL and *NULL; before the group is destroyed, also after cz_model_destroy(). */
CZ_API void cz_averager_destroy(cz_averager **averager);

/** After a step: average parameters if it is time, and count the step. What is averaged are the
 *  trainable parameters that have a gradient on some rank. The mean is the sum in tree order, then
 *  one division, in each parameter's own type (16-bit ones are added in f32).
 *
 *  Collective where it averages, over the ranks that are averaged together; local otherwise.
 *  @param ranks  NULL, or receives how many ranks were averaged; 0: none
 *  @post    The ranks hold the same bits in what was averaged.
 *  @return CZ_OK. Seen by all ranks that are averaged together, nothing was changed, the step was
 *          not counted: CZ_ERR_MISMATCH (they differ in the counter or in which parameters are
 *          frozen), CZ_ERR_UNSUPPORTED (a parameter of an integer type was unfrozen), CZ_ERR_STATE
 *          (no trainable parameter has a gradient on any rank, see allow_no_gradients),
 *          CZ_ERR_MEMORY. Where the group breaks parameters are undefined. */
CZ_API cz_status cz_averager_average(cz_averager *averager, int *ranks);

/** The steps counted as a dictionary, `step`, and back; *out is the caller's. Alike on all ranks,
 *  which the next averaging compares. Local.
 *  @return CZ_ERR_ARGUMENT: a NULL, no `step`, one below 0 (nothing was changed); CZ_ERR_MEMORY. */
CZ_API cz_status cz_averager_state_dict(const cz_averager *averager, cz_state_dict **out);
CZ_API cz_status cz_averager_load_state_dict(cz_averager *averager, const cz_state_dict *dict);

/* ---- post-local SGD ---- */

/** An optimizer that steps on this rank's own gradients, and an averager. As long as the averager's
 *  warm-up lasts gradients are to be the mean over ranks (the hook of that name does so for as many
 *  passes as it is told). */
typedef struct cz_post_local_optim cz_post_local_optim;

/** Local. Both are borrowed and outlive it; schedulers are made on the optimizer, whose parameter
 *  groups stay the same ones whatever is loaded.
 *  @return CZ_ERR_ARGUMENT: a NULL, another model in each; CZ_ERR_STATE: the optimizer is part of a
 *          sharded one; CZ_ERR_MEMORY. */
CZ_API cz_status cz_post_local_optim_create(cz_post_local_optim **out, cz_optim *optim,
                                            cz_averager *averager);
/** Local; accepts NULL and *NULL. */
CZ_API void cz_post_local_optim_destroy(cz_post_local_optim **post);

/** cz_optim_step(), then cz_averager_average(), whose turn counts as for these: where it averages,
 *  the call is collective over the ranks that are averaged together.
 *  @return as both. Where it averages, a step that failed on one rank is seen by all of these,
 *          nothing is averaged and the step not counted; the others have made theirs. Otherwise
 *          that rank alone sees it. */
CZ_API cz_status cz_post_local_optim_step(cz_post_local_optim *post, const cz_step_options *options,
                                          cz_step_result *result);

/** The optimizer's dictionary (cz_optim_state_dict()) and the averager's counter in it, `step`.
 *  Local.
 *  @return CZ_ERR_ARGUMENT: a NULL; CZ_ERR_MEMORY. */
CZ_API cz_status cz_post_local_optim_state_dict(const cz_post_local_optim *post,
                                                cz_state_dict **out);

/** Take both from it. Local, with an equal counter on all ranks.
 *  @param begin  true: a dictionary without `step`, such as an optimizer's, sets the counter to 0,
 *                so that the warm-up begins anew
 *  @return as cz_optim_load_state_dict(); CZ_ERR_ARGUMENT: no `step` and not `begin`, one below 0.
 *          Nothing was changed. */
CZ_API cz_status cz_post_local_optim_load_state_dict(cz_post_local_optim *post,
                                                     const cz_state_dict *dict, bool begin);

CZ_END_DECLS
#endif
