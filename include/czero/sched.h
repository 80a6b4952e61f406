/* SPDX-License-Identifier: MIT */
/** @file sched.h  Learning-rate schedulers: they set `lr` (some of them momentum too) of an
 *  optimizer's parameter groups, once per epoch, or per step: whatever the program counts.
 *
 *      cz_sched *warmup, *decay, *sched;
 *      CZ_TRY(cz_sched_create_linear(&warmup, optim, 0.1, 1, 500, NULL));
 *      CZ_TRY(cz_sched_create_cosine(&decay, optim, 9500, 0, NULL));
 *      cz_sched *both[] = {warmup, decay};
 *      const int64_t change = 500;
 *      CZ_TRY(cz_sched_create_sequential(&sched, both, 2, &change));
 *      for (…) { step the optimizer; CZ_TRY(cz_sched_step(sched)); }
 *
 *  With a sharded optimizer `optim` is cz_zero_local_optim(); every rank makes and steps the same
 *  schedulers. The rates are those of PyTorch 1.13 to the last bit, see
 *  docs/pytorch-differences.md.
 *
 *  t is the epoch, 0 when a scheduler was made, base the rate that a parameter group then has (its
 *  value initial_lr, if it has one: the rate before any scheduler). Most schedulers multiply the
 *  present rate at each epoch, so that several of them, and changes by hand, work together; without
 *  those the rate is what is given at each one, to some 1e-15. */
#ifndef CZERO_SCHED_H
#define CZERO_SCHED_H

#include "czero/group.h"
#include "czero/optim.h"
#include "czero/state.h"

CZ_BEGIN_DECLS

/** A scheduler. One thread at a time per handle, which is also the one that uses the optimizer. */
typedef struct cz_sched cz_sched;

typedef struct cz_sched_options {
    size_t size; /**< set by CZ_SCHED_OPTIONS_INIT */
    /** The epoch to begin with, when a run goes on without a saved state: the groups have
     *  initial_lr and the rate of the epoch before. PyTorch's last_epoch + 1. */
    int64_t first_epoch;
} cz_sched_options;
#define CZ_SCHED_OPTIONS_INIT {sizeof(cz_sched_options), 0}
CZ_INIT_FUNCTION(cz_sched_options, CZ_SCHED_OPTIONS_INIT)

/** Make a scheduler. Each group gets the rate of epoch 0, or of `first_epoch`, and initial_lr if it
 *  has none. All of the functions below:
 *
 *  Local. @param optim    borrowed; its rule has `lr`
 *  @param options  NULL: begin at epoch 0
 *  @return CZ_ERR_ARGUMENT: a NULL; a number outside the range that is given; `first_epoch` below
 *          0, or above 0 where a group has no initial_lr; a rate that the rule does not allow.
 *          CZ_ERR_MEMORY. Nothing was changed, except that without memory some groups may have got
 *          initial_lr, or what else a scheduler adds to them.
 */

/** base gamma^floor(t / step_size); step_size 1 or more, gamma 0 or more. */
CZ_API cz_status cz_sched_create_step(cz_sched **out, cz_optim *optim, int64_t step_size,
                                      double gamma, const cz_sched_options *options);

/** base gamma^n where n milestones are t or less; they may come in any order, and repeat. Copied.
 *  */
CZ_API cz_status cz_sched_create_multi_step(cz_sched **out, cz_optim *optim,
                                            const int64_t *milestones, int64_t count, double gamma,
                                            const cz_sched_options *options);

/** base gamma^t; gamma 0 or more. */
CZ_API cz_status cz_sched_create_exponential(cz_sched **out, cz_optim *optim, double gamma,
                                             const cz_sched_options *options);

/** base factor while t < total_iters, then base; factor above 0, at most 1, total_iters 1 or more.
 *  */
CZ_API cz_status cz_sched_create_constant(cz_sched **out, cz_optim *optim, double factor,
                                          int64_t total_iters, const cz_sched_options *options);

/** base times a factor that goes from start_factor to end_factor in total_iters epochs, in equal
 *  steps; start_factor above 0, end_factor from 0, both at most 1, total_iters 1 or more. */
CZ_API cz_status cz_sched_create_linear(cz_sched **out, cz_optim *optim, double start_factor,
                                        double end_factor, int64_t total_iters,
                                        const cz_sched_options *options);

/** base (1 - t / total_iters)^power, 0 from total_iters on; total_iters 1 or more, power 0 or more.
 *  */
CZ_API cz_status cz_sched_create_polynomial(cz_sched **out, cz_optim *optim, int64_t total_iters,
                                            double power, const cz_sched_options *options);

/** eta_min + (base - eta_min) (1 + cos(pi t / t_max)) / 2: down to eta_min at t_max, then up again;
 *  t_max 1 or more, eta_min 0 or more. @see Loshchilov and Hutter, arXiv:1608.03983, without
 *  restarts. */
CZ_API cz_status cz_sched_create_cosine(cz_sched **out, cz_optim *optim, int64_t t_max,
                                        double eta_min, const cz_sched_options *options);

/** The same from base again each time eta_min would be reached, first after t_0 epochs, then after
 *  t_mult times as many each time; sets the rate, whatever it was. cz_sched_step_to() takes
 *  fractions of epochs. t_0 and t_mult 1 or more, eta_min 0 or more. @see arXiv:1608.03983. */
CZ_API cz_status cz_sched_create_warm_restarts(cz_sched **out, cz_optim *optim, int64_t t_0,
                                               int64_t t_mult, double eta_min,
                                               const cz_sched_options *options);

/** What a parameter group's rate is multiplied by in an epoch; the same on every rank. */
typedef double (*cz_sched_function)(int64_t epoch, int64_t param_group, void *context);

/** base function(t); sets the rate, whatever it was. @param context  borrowed, may be NULL */
CZ_API cz_status cz_sched_create_lambda(cz_sched **out, cz_optim *optim, cz_sched_function function,
                                        void *context, const cz_sched_options *options);

/** base function(1) function(2) … function(t). */
CZ_API cz_status cz_sched_create_multiplicative(cz_sched **out, cz_optim *optim,
                                                cz_sched_function function, void *context,
                                                const cz_sched_options *options);

/** In the structs below 0 stands for PyTorch's value, where one is said. Where 0 itself is of use
 *  (a rise, momentum, gamma, patience, threshold, eps) -1 says it. NULL: all 0. */
typedef struct cz_sched_one_cycle_options {
    size_t size; /**< set by CZ_SCHED_ONE_CYCLE_OPTIONS_INIT */
    int64_t first_epoch;
    double pct_start;     /**< the part of total_steps in which the rate rises; up to 1; 0: 0.3 */
    double base_momentum; /**< below 1; 0: 0.85 */
    double max_momentum;  /**< below 1; 0: 0.95 */
    double div_factor;    /**< the first rate is max_lr / div_factor; 0: 25 */
    double final_div_factor; /**< the last one is the first / final_div_factor; 0: 1e4 */
    const double *max_lrs;  /**< one per parameter group, in place of max_lr; NULL: none. Copied. */
    int32_t linear;         /**< 0: along a cosine; 1: along lines */
    int32_t three_phase;    /**< 1: down to the first rate as fast as up, then to the last */
    int32_t fixed_momentum; /**< 1: momentum is left alone */
    int32_t reserved;       /**< 0 */
} cz_sched_one_cycle_options;
#define CZ_SCHED_ONE_CYCLE_OPTIONS_INIT                                                            \
    {                                                                                              \
        sizeof(cz_sched_one_cycle_options), 0, 0, 0, 0, 0, 0, NULL, 0, 0, 0, 0                     \
    }
CZ_INIT_FUNCTION(cz_sched_one_cycle_options, CZ_SCHED_ONE_CYCLE_OPTIONS_INIT)

/** One cycle of total_steps epochs: from max_lr / div_factor up to max_lr and down to almost
 *  nothing, the momentum the other way; sets both, whatever they were. Momentum is the rule's
 *  `momentum`, or `beta1`. initial_lr of each group is set to its first rate, and max_lr, min_lr,
 *  max_momentum and base_momentum are added to it. Epoch total_steps still has the last rate, going
 *  beyond is CZ_ERR_STATE.
 *  @see Smith and Topin, arXiv:1708.07120.
 *  @return as above; CZ_ERR_ARGUMENT: momentum is to change and the rule has neither. */
CZ_API cz_status cz_sched_create_one_cycle(cz_sched **out, cz_optim *optim, double max_lr,
                                           int64_t total_steps,
                                           const cz_sched_one_cycle_options *options);

typedef enum cz_sched_cycle {
    CZ_SCHED_TRIANGULAR = 0,
    CZ_SCHED_TRIANGULAR2 = 1, /**< half as high from one cycle to the next */
    CZ_SCHED_EXP_RANGE = 2    /**< gamma^t times as high */
} cz_sched_cycle;

typedef struct cz_sched_cyclic_options {
    size_t size; /**< set by CZ_SCHED_CYCLIC_OPTIONS_INIT */
    int64_t first_epoch;
    int64_t step_size_up;   /**< epochs from base to maximum; 0: 2000 */
    int64_t step_size_down; /**< and back; 0: as many */
    double gamma;           /**< of CZ_SCHED_EXP_RANGE; 0: 1 */
    double base_momentum;   /**< below 1; 0: 0.8 */
    double max_momentum;    /**< below 1; 0: 0.9 */
    /** one per parameter group, in place of base_lr; NULL: none. Copied. */
    const double *base_lrs;
    const double *max_lrs; /**< the same for max_lr */
    cz_sched_cycle mode;
    int32_t fixed_momentum; /**< 1: momentum is left alone */
} cz_sched_cyclic_options;
#define CZ_SCHED_CYCLIC_OPTIONS_INIT                                                               \
    {                                                                                              \
        sizeof(cz_sched_cyclic_options), 0, 0, 0, 0, 0, 0, NULL, NULL, CZ_SCHED_TRIANGULAR, 0      \
    }
CZ_INIT_FUNCTION(cz_sched_cyclic_options, CZ_SCHED_CYCLIC_OPTIONS_INIT)

/** Up from base_lr to max_lr and down again, for ever, momentum (as above) the other way; sets
 *  both, whatever they were. @see Smith, arXiv:1506.01186.
 *  @return as cz_sched_create_one_cycle(). */
CZ_API cz_status cz_sched_create_cyclic(cz_sched **out, cz_optim *optim, double base_lr,
                                        double max_lr, const cz_sched_cyclic_options *options);

typedef struct cz_sched_plateau_options {
    size_t size;      /**< set by CZ_SCHED_PLATEAU_OPTIONS_INIT */
    double factor;    /**< below 1; 0: 0.1 */
    int64_t patience; /**< reports in a row that may be no better; 0: 10 */
    /** what counts as better: by this part of the best, or this much; 0: 1e-4 */
    double threshold;
    int64_t cooldown;      /**< reports after a reduction that do not count; 0 or more */
    double min_lr;         /**< no rate goes below; 0 or more */
    double eps;            /**< a reduction by no more than this is left out; 0: 1e-8 */
    const double *min_lrs; /**< one per parameter group, in place of min_lr; NULL: none. Copied. */
    int32_t maximize;      /**< 1: larger is better */
    int32_t absolute;      /**< 1: `threshold` is a difference, 0: a part */
    cz_group *group; /**< NULL: each rank believes its own metric. Else the ranks agree on one, so
                                that their rates stay the same; borrowed. */
    cz_reduction agree; /**< CZ_AVERAGE, CZ_MIN or CZ_MAX of the ranks' metrics; 0: CZ_AVERAGE */
    int32_t reserved;   /**< 0 */
} cz_sched_plateau_options;
#define CZ_SCHED_PLATEAU_OPTIONS_INIT                                                              \
    {                                                                                              \
        sizeof(cz_sched_plateau_options), 0, 0, 0, 0, 0, 0, NULL, 0, 0, NULL, (cz_reduction)0, 0   \
    }
CZ_INIT_FUNCTION(cz_sched_plateau_options, CZ_SCHED_PLATEAU_OPTIONS_INIT)

/** Multiply the rates by `factor` when a metric has not become better in `patience` reports and one
 *  more. It is told with cz_sched_step_metric(). No rate changes when it is made, and no initial_lr
 *  is added.
 *  @return as above; CZ_ERR_UNSUPPORTED: another reduction. */
CZ_API cz_status cz_sched_create_plateau(cz_sched **out, cz_optim *optim,
                                         const cz_sched_plateau_options *options);

/** One scheduler after the other: members[i] begins at epoch milestones[i - 1], from base, as if it
 *  had been made then. (A multiplicative one, which has no rate of its own at its epoch 0, goes on
 *  from the present rate.) Rates are set to what they are at epoch 0 of members[0].
 *
 *  Local. @param members     `count`, 1 or more, of one optimizer, none of them a plateau
 *  scheduler. On success they belong to the new one and the entries are set to NULL.
 *  @param milestones  count - 1 epochs, each 1 or more and not below the one before; copied
 *  @return CZ_ERR_ARGUMENT, CZ_ERR_MEMORY. Nothing was changed, the members are the caller's. */
CZ_API cz_status cz_sched_create_sequential(cz_sched **out, cz_sched **members, int64_t count,
                                            const int64_t *milestones);

/** All at the same time: each steps in turn, so that factors multiply. Rates stay as they are now.
 *  Parameters and errors as cz_sched_create_sequential(). */
CZ_API cz_status cz_sched_create_chained(cz_sched **out, cz_sched **members, int64_t count);

/** Local; accepts NULL and *NULL; before or after the optimizer is destroyed. Rates stay as they
 *  are. */
CZ_API void cz_sched_destroy(cz_sched **sched);

/** Go to the next epoch: after the optimizer's step. (The first time, a line in the log warns if
 *  there was none.) A parameter group that was added since takes part from now on: its base is its
 *  initial_lr, else its present rate, which then is made what the schedule has for that base.
 *
 *  Local.
 *  @return CZ_ERR_ARGUMENT: NULL; a plateau scheduler; a rate that the rule does not allow.
 *          CZ_ERR_STATE: a one-cycle scheduler has had its last step; a group was added and a list
 *          with one entry for each was given. CZ_ERR_MEMORY. No rate was changed. */
CZ_API cz_status cz_sched_step(cz_sched *sched);

/** Go to an epoch, forwards or back, to the rate that is given at each scheduler, whatever it was.
 *  Sequential and chained ones begin again and go through all epochs up to it; a multiplicative one
 *  keeps the present rate at epoch 0.
 *
 *  Local. @param epoch  0 or more, whole (but see cz_sched_create_warm_restarts())
 *  @return as cz_sched_step(); CZ_ERR_ARGUMENT: no such epoch. */
CZ_API cz_status cz_sched_step_to(cz_sched *sched, double epoch);

/** Tell a plateau scheduler how good the model is now; NaN is not better than anything.
 *
 *  Local, or with a group in its options collective: every rank of that group. Parameter groups
 *  that were added since take part.
 *  @return as cz_sched_step(); CZ_ERR_ARGUMENT: another kind of scheduler. With a group also what
 *          cz_all_reduce() returns, and CZ_ERR_MISMATCH (ranks report to schedulers that differ in
 *          an option, in how far they have come, or in the optimizer's groups and rates), seen by
 *          all ranks: nothing was changed. */
CZ_API cz_status cz_sched_step_metric(cz_sched *sched, double metric);

/** The rate that the last step left with a parameter group; NaN if there is no such scheduler or
 *  group, or it does not take part yet. Local. */
CZ_API double cz_sched_last_lr(const cz_sched *sched, int64_t param_group);

/** Everything but functions and groups of ranks, the options too: *out is the caller's.
 *
 *      type        text
 *      last_epoch  the epoch: integer, or real if it is none
 *      last_lr, base_lrs  per parameter group: f64 tensors
 *      param_groups  "0", "1", …: the names of each group's members, as lists of texts
 *      members     of a sequential or chained one: "0", "1", …
 *      and the options by name
 *
 *  Local.
 *  @return CZ_ERR_ARGUMENT: a NULL; CZ_ERR_MEMORY. */
CZ_API cz_status cz_sched_state_dict(const cz_sched *sched, cz_state_dict **out);

/** Become what was saved, options included. Rates are not set: they are the optimizer's, and in its
 *  state. Whatever is kept for a parameter group (rates, lists of options) goes to the group that
 *  has its members now, wherever that is registered; groups that are new come after the others. A
 *  state of an older library has no members: its groups are taken in their order if the last rates
 *  are the optimizer's.
 *
 *  Local. @param dict  borrowed, left as it is
 *  @return CZ_ERR_ARGUMENT: a NULL; another type, or members of other types; a number that is wrong
 *          or missing; groups that have not the members that they had: which (with fewer groups,
 *          the others count as added since). CZ_ERR_MEMORY. Nothing was changed. */
CZ_API cz_status cz_sched_load_state_dict(cz_sched *sched, const cz_state_dict *dict);

CZ_END_DECLS
#endif
