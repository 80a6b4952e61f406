/* SPDX-License-Identifier: MIT */
/** @file optim.h  The local optimizer: parameter groups with a rule and its state.
 *
 *      cz_optim *optim;
 *      CZ_TRY(cz_optim_create(&optim, model, cz_rule_adamw(), CZ_HYPERS({"lr", 1e-3}), NULL));
 *      for (…) { gradients are computed; CZ_TRY(cz_optim_step(optim, NULL, NULL)); }
 */
#ifndef CZERO_OPTIM_H
#define CZERO_OPTIM_H

#include "czero/rule.h"
#include "czero/state.h"
#include "czero/tensor.h"

CZ_BEGIN_DECLS

/** @section sixteen  16 bits
 *  Values may be bf16 or f16, and gradients of another of the types f32, bf16 and f16 than their
 *  value. Every rule computes in f32, and so is its state. A 16-bit value has a *master* beside it,
 *  an f32 copy in the state: it takes part in the update, and the value is the master rounded to
 *  nearest even. Its slot is "master_param" in states, dictionaries and checkpoints. Where the
 *  program has changed a value since the last step (or a load, an average has), the master follows:
 *  the update starts from what was written.
 *
 *  Memory can be saved at the price of noise (cz_param_group, cz_optim_options): CZ_MASTER_NONE,
 *  and moments in bf16. Then f32 results are rounded by chance, to one of the two 16-bit values
 *  beside them, so that the mean is right and small changes add up. Chance is a pure function of
 *  the option `seed`, the name of the parameter, its step count, the slot and the element: no cut,
 *  number of ranks or of threads, and no processor changes a bit.
 *
 *  CZ_U8 keeps moments of Adam, AdamW and Lion and the momentum of SGD in 8 bits: a code for each
 *  element, and an f32 scale for each block of 256 elements of the parameter, from its first on. A
 *  block becomes f32, is updated, and is rounded to the nearest codes, while it is in a cache: its
 *  largest element is kept as it is, smaller ones to some hundredths, down to a millionth of it. A
 *  block in which something is not finite is NaN. Dictionaries and files have the f32 numbers that
 *  codes stand for; loaded, these become the same codes. Parameters are cut between blocks only. In
 *  the host's memory. (Dettmers, Lewis, Shleifer, Zettlemoyer, "8-bit Optimizers via Block-wise
 *  Quantization", arXiv:2110.02861.)
 *
 *  All of it is for rules with kernels, in memory of devices that can convert so (the CPU's). Rules
 *  that need whole tensors get them as they are, state in the value's type, unless their table says
 *  in_f32. */

/** What stands beside a 16-bit value. */
typedef enum cz_master {
    CZ_MASTER_DEFAULT = 0, /**< of a group: what the optimizer's option says; there: a copy */
    CZ_MASTER_COPY = 1,    /**< a copy in f32, in the state */
    CZ_MASTER_NONE = 2     /**< nothing: the value is rounded by chance */
} cz_master;

/** @section average  Moving averages of values
 *  An optimizer can keep an average of each value over its updates: PyTorch's AveragedModel, made
 *  in the pass of the update while the new values are in a cache, and sharded as the state. It is
 *  an element slot, "average", in f32 (f64 of f64 values), with the scalar "n_averaged", how many
 *  values are in it: in dictionaries, checkpoints and fingerprints as the rule's. The first value
 *  is copied; then average += weight * (value - average), where weight is 1 - decay, or for the
 *  plain mean 1 / (n_averaged + 1). Of a 16-bit value with a master it is the average of that.
 *
 *  What is not updated is not averaged: steps that are skipped, parameters without a gradient. A
 *  parameter that has no average stands for itself. When one is frozen, its average goes with the
 *  next step, so that it does, too.
 *
 *  cz_optim_evaluate() and cz_zero_evaluate() bring averages into the place of the values, and
 *  back. */

typedef enum cz_moving_average_kind {
    CZ_MOVING_AVERAGE_NONE = 0,
    CZ_MOVING_AVERAGE_EMA = 1, /**< exponential */
    CZ_MOVING_AVERAGE_MEAN = 2 /**< of all values with one weight: stochastic weight averaging */
} cz_moving_average_kind;

/** Of which values, and how. @see Polyak and Juditsky, SIAM J. Control Optim. 30 (1992); Izmailov
 *  et al., "Averaging Weights Leads to Wider Optima and Better Generalization", UAI 2018. */
typedef struct cz_moving_average {
    size_t size; /**< set by CZ_MOVING_AVERAGE_INIT: an EMA with PyTorch's decay */
    cz_moving_average_kind kind;
    int32_t warm_up; /**< 1: an EMA's decay is at most (1 + n) / (10 + n), n being n_averaged */
    /** Of an EMA, 0 to 1, with which groups begin: their hyper-parameter "average_decay", which can
     *  be set and is saved as the rule's. */
    double decay;
    int64_t start; /**< so many updates of a parameter are not averaged */
    int64_t every; /**< then every so many-th is, from start + every on; 0 is 1 */
} cz_moving_average;
#define CZ_MOVING_AVERAGE_INIT {sizeof(cz_moving_average), CZ_MOVING_AVERAGE_EMA, 0, 0.999, 0, 1}
CZ_INIT_FUNCTION(cz_moving_average, CZ_MOVING_AVERAGE_INIT)

/** Parameters that share hyper-parameters. */
typedef struct cz_param_group {
    size_t size;           /**< set by CZ_PARAM_GROUP_INIT; the size of the
                                first element holds for the whole array */
    const int64_t *params; /**< indices into the model; a parameter is in one group at most */
    int64_t param_count;
    const cz_hyper *hypers; /**< what differs from the optimizer's own list; NULL: nothing */
    cz_master master;       /**< of 16-bit values; others have none */
    /** Of element slots, masters apart: CZ_F32, or, where values are not f64, CZ_BF16 or CZ_U8: see
     *  above. 0: what the optimizer's option says. */
    cz_dtype state_dtype;
    /** How these are updated; borrowed as the optimizer's own, which NULL stands for. With another
     *  one `hypers` is what differs from the defaults of that rule: values that the optimizer was
     *  given are for its own. docs/rules.md has what goes together. */
    const cz_rule *rule;
    /** Where sharded, below which its parameters are not cut, as in cz_rule: the rule's granule and
     *  this are both kept, by their least common multiple. 0: the rule's alone. */
    int64_t granule;
    /** Of values; NULL: what the optimizer's option says. Copied. */
    const cz_moving_average *average;
} cz_param_group;

#define CZ_PARAM_GROUP_INIT                                                                        \
    {                                                                                              \
        sizeof(cz_param_group), NULL, 0, NULL, CZ_MASTER_DEFAULT, (cz_dtype)0, NULL, 0, NULL       \
    }
CZ_INIT_FUNCTION(cz_param_group, CZ_PARAM_GROUP_INIT)

#define CZ_ALL_GROUPS (-1)

/** A factor by which the program multiplies its loss, and so each gradient, so that small ones do
 *  not vanish in 16 bits; a step divides by it. It is a variable of the program, which saves it
 *  with the rest of its state. CZ_LOSS_SCALE_INIT has the numbers of PyTorch's GradScaler, as which
 *  steps change it, alike on all ranks. */
typedef struct cz_loss_scale {
    size_t size;      /**< set by CZ_LOSS_SCALE_INIT */
    double scale;     /**< above 0 */
    double growth;    /**< after `interval` steps in a row with finite gradients `scale` becomes its
                        product with this, unless that is infinite in f32; at least 1 */
    double backoff;   /**< where a gradient is not finite `scale` becomes its product with this, and
                         the step is skipped; above 0, at most 1 */
    int64_t interval; /**< 0: `scale` stays, and only skip_nonfinite skips a step */
    int64_t good_steps; /**< in a row, up to now */
} cz_loss_scale;
#define CZ_LOSS_SCALE_INIT {sizeof(cz_loss_scale), 65536, 2, 0.5, 2000, 0}
CZ_INIT_FUNCTION(cz_loss_scale, CZ_LOSS_SCALE_INIT)

/** What is computed by a step beyond the update. NULL: nothing. */
typedef struct cz_step_options {
    size_t size; /**< set by CZ_STEP_OPTIONS_INIT */
    /** Called once before anything else, even where another option is wrong: so it may hold
     *  collectives, and run data-parallel passes. Typically clears the gradients, runs forward and
     *  backward and stores the loss. A status other than CZ_OK ends the step before anything
     *  changed. */
    cz_status (*closure)(double *loss, void *context);
    void *closure_context;
    const void *argument; /**< handed to the rule (cz_rule_step, begin_step); alike on every rank */
    /** Gradients to use instead of the model's: one address per parameter of the model, of the
     *  shape and type that the model says; NULL: skip that parameter. They are treated as the
     *  model's, so a sharded optimizer with CZ_GRADIENTS_LOCAL writes the mean to the owned spans.
     *  NULL: the model's. */
    void *const *gradients;
    int64_t gradient_count; /**< the number of parameters of the model; 0 without `gradients` */
    /** Above 0: gradients whose norm is larger are multiplied by max_norm / (norm + 1e-6) before
     *  the update, in their memory (a sharded optimizer: the owned spans), as PyTorch's
     *  clip_grad_norm_() does; 16-bit ones in f32, on their way into the update, while their memory
     *  stays as it is. 0, and infinity, with which the result has the norm: they are left as they
     *  are. */
    double max_norm;
    int32_t skip_nonfinite; /**< 1: no update, on any rank, where a gradient is infinite or NaN */
    int32_t norm;           /**< 1: have the norm in the result also without the two above */
    /** 1: a step in which no trainable parameter of the groups has a gradient, on any rank, does
     *  nothing; 0: it is CZ_ERR_STATE, for gradients have then been forgotten. A step with a
     *  data-parallel model is told of by marks, and does nothing where there were none. */
    int32_t allow_no_gradients;
    int32_t reserved; /**< 0 */
    /** NULL, or what gradients are divided by before they are clipped, where clipping multiplies
     *  them: in their memory, or 16-bit ones on their way into the update. The norm is of the
     *  quotients. The step changes it. */
    cz_loss_scale *loss_scale;
} cz_step_options;
#define CZ_STEP_OPTIONS_INIT                                                                       \
    {                                                                                              \
        sizeof(cz_step_options), NULL, NULL, NULL, NULL, 0, 0, 0, 0, 0, 0, NULL                    \
    }
CZ_INIT_FUNCTION(cz_step_options, CZ_STEP_OPTIONS_INIT)

typedef struct cz_step_result {
    size_t size; /**< set by CZ_STEP_RESULT_INIT */
    double loss; /**< this rank's, from the closure; NaN without one */
    /** L2, of the gradients of all trained parameters (of their mean over ranks), before they are
     *  clipped; the same bits whatever the world size and shards: squares are added exactly. NaN:
     *  not asked for. */
    double norm;
    int32_t skipped;  /**< 1: nothing was updated, see skip_nonfinite */
    int32_t reserved; /**< 0 */
} cz_step_result;
#define CZ_STEP_RESULT_INIT {sizeof(cz_step_result), 0, 0, 0, 0}
CZ_INIT_FUNCTION(cz_step_result, CZ_STEP_RESULT_INIT)

/** An unsharded optimizer over a model. */
typedef struct cz_optim cz_optim;

typedef struct cz_optim_options {
    size_t size;                  /**< set by CZ_OPTIM_OPTIONS_INIT */
    const cz_param_group *groups; /**< copied; NULL: one group of all parameters. Parameters that no
                                       group lists are left alone. */
    int64_t group_count;
    /** How many threads share the update, the calling one among them; the results are the same bits
     *  with any number. 0: what the environment variable CZERO_THREADS says, else the cores that
     *  the calling thread may use (its affinity, the quota of its control group), divided by the
     *  ranks that share them: threads of a group, processes that mpirun started on this machine.
     *  Rules whose kernels are the program's own run on the calling thread alone unless one of the
     *  two asks for more. Small optimizers have no threads. They are started here, sleep between
     *  steps and end with the optimizer; signals are blocked in them. In a child of fork() the
     *  calling thread does all the work, and in a program at MPI_THREAD_SINGLE. Destroy optimizers
     *  before dlclose(). */
    int32_t threads;
    int32_t reserved;                 /**< 0 */
    cz_master master;                 /**< of groups that say nothing else */
    cz_dtype state_dtype;             /**< the same; 0: f32 (f64 where values are) */
    uint64_t seed;                    /**< of rounding by chance */
    const cz_moving_average *average; /**< of groups that say nothing else; NULL: none. Copied. */
    /** Of CZ_U8: parameters of fewer elements have their state in f32. 0: 4096 */
    int64_t u8_from;
} cz_optim_options;
#define CZ_OPTIM_OPTIONS_INIT                                                                      \
    {                                                                                              \
        sizeof(cz_optim_options), NULL, 0, 0, 0, CZ_MASTER_DEFAULT, (cz_dtype)0, 0, NULL, 0        \
    }
CZ_INIT_FUNCTION(cz_optim_options, CZ_OPTIM_OPTIONS_INIT)

/** Make an optimizer; memory for the state of trainable parameters is reserved here, zeroed.
 *
 *  Local. One call at a time per handle.
 *  @param model   borrowed, as its tensors; its list of parameters is frozen from now on
 *  @param rule    of groups that have none of their own
 *  @param hypers  values for all groups of that rule, by name; NULL: the rule's defaults
 *  @return CZ_ERR_ARGUMENT: a NULL, a model or all groups without parameters, a parameter in two
 *          groups or twice, an index out of range, an unknown or missing hyper-parameter or one out
 *          of its range (NaN included; for f32 parameters and kernels of the library also what is
 *          infinite in f32, and an eps that is not 0 but is 0 in f32: rates and decays may be too
 *          small to count), parameters of f64 and others, of different kinds of device, a
 *          state_dtype that does not go with the values, one whose value
 *          shares memory with that of any other parameter of the model, a gradient of the model
 *          that does so with a value or a buffer, a buffer with a value (empty ones share none).
 *          That gradients share none with each other is checked by steps: inside the backward pass
 *          (in_backward.h) they may. CZ_ERR_UNSUPPORTED: a sparse parameter, one in memory that
 *          ranks share (shared.h), no kernel for the type, 16 bits on a device or with a rule that
 *          cannot, or that updates whole tensors as they are beside one with kernels, an average on
 *          a device that cannot or with a rule that has a slot of that name, a rule table of
 *          another CZ_RULE_ABI.
 *          What the rule's check() and check_param() say. CZ_ERR_MEMORY. The sentence names the
 *          parameter or hyper-parameter. */
CZ_API cz_status cz_optim_create(cz_optim **out, cz_model *model, const cz_rule *rule,
                                 const cz_hyper *hypers, const cz_optim_options *options);
/** Local; accepts NULL and *NULL; also after cz_model_destroy(), which leaves nothing else to be
 *  done with an optimizer. */
CZ_API void cz_optim_destroy(cz_optim **optim);

/** Append a parameter group of parameters that are in none yet; what it does not say it has from
 *  the values given at creation, or with a rule of its own from that rule's defaults. Local.
 *  @param group  copied
 *  @return CZ_ERR_ARGUMENT, CZ_ERR_UNSUPPORTED: as for groups at creation, and an average where no
 *          group had one then; CZ_ERR_STATE: it is part of a sharded optimizer, or see
 *          cz_optim_evaluate(); CZ_ERR_MEMORY. Nothing was changed. */
CZ_API cz_status cz_optim_add_param_group(cz_optim *optim, const cz_param_group *group);

/** Update every trainable parameter that has a gradient. Local. `options`, `result` may be NULL.
 *  @return CZ_ERR_ARGUMENT: `optim` is NULL, gradient_count is not the model's, max_norm below 0 or
 *          NaN, a gradient that shares memory with that of another trainable parameter of the
 *          groups, with a value or a buffer; CZ_ERR_STATE: it is part
 *          of a sharded optimizer, no trainable parameter of the groups has a gradient (see
 *          allow_no_gradients); CZ_ERR_MEMORY: state for an unfrozen parameter could not be had;
 *          the status of the closure, or of the rule's begin_step(). In each case nothing was
 *          changed. */
CZ_API cz_status cz_optim_step(cz_optim *optim, const cz_step_options *options,
                               cz_step_result *result);

/** Bring what is to be evaluated into the place of the values, or with `evaluated` false the values
 *  that train back, bit for bit: an average where a parameter has one (see above), else what the
 *  rule says (the schedule-free rules: their mean x), else the value stays. Nothing is copied where
 *  values are f32 or f64 and have an average, which then holds the value, nor where they have
 *  masters; other values are put aside meanwhile. To be called again is allowed and does nothing.
 *
 *  As long as values are those to be evaluated, steps, dictionaries, saves and loads, fingerprints
 *  and new groups or shards are CZ_ERR_STATE, but a file of the values alone can be written
 *  (cz_checkpoint_export() with parameters_only); and gradients may be computed. To destroy the
 *  optimizer leaves the values as they are. Local.
 *  @return CZ_ERR_ARGUMENT: `optim` is NULL; CZ_ERR_STATE: it is part of a sharded optimizer, no
 *          group has an average and the rule has nothing to evaluate but values; CZ_ERR_MEMORY.
 *          Nothing was changed. */
CZ_API cz_status cz_optim_evaluate(cz_optim *optim, bool evaluated);

/** Set the gradients of the groups' parameters to zero. Or, with `to_none`, say that they have
 *  none, as PyTorch's zero_grad(set_to_none=True): a step skips them until cz_model_set_gradient()
 *  gives one again, and the gradient memory is left as it is. Local.
 *  @return CZ_ERR_ARGUMENT: `optim` is NULL. */
CZ_API cz_status cz_optim_zero_grad(cz_optim *optim, bool to_none);

typedef struct cz_optim_info {
    size_t size;         /**< set by CZ_OPTIM_INFO_INIT */
    const cz_rule *rule; /**< of groups that have none of their own */
    int64_t group_count;
    int64_t skip_count; /**< steps that were skipped because of a gradient that is not finite */
    size_t state_bytes; /**< of optimizer state that is reserved here (element slots) */
} cz_optim_info;
#define CZ_OPTIM_INFO_INIT {sizeof(cz_optim_info), NULL, 0, 0, 0}
CZ_INIT_FUNCTION(cz_optim_info, CZ_OPTIM_INFO_INIT)

/** Local. @return CZ_ERR_ARGUMENT: a NULL, or a size that was not set. */
CZ_API cz_status cz_optim_get_info(const cz_optim *optim, cz_optim_info *info);

/** The members of a parameter group, in their order, as indices into the model.
 *
 *  Local. @param params  receives at most `room` of them; may be NULL if `room` is 0
 *  @return how many there are; -1: NULL, no such group. */
CZ_API int64_t cz_optim_group_params(const cz_optim *optim, int64_t param_group, int64_t *params,
                                     int64_t room);

/** Change or read a hyper-parameter while training, the rule's or an added one; takes effect at the
 *  next step. Local.
 *  @param param_group  its index, or CZ_ALL_GROUPS: set in all of them, of several rules in all
 *                      whose rule has it; read the value that was given at creation, whatever was
 *                      set since, of the optimizer's rule only
 *  @return CZ_ERR_ARGUMENT: no such group or name, or a value out of range, as at creation (nothing
 *          was changed); CZ_ERR_MEMORY: a state slot that the value needs could not be had. */
CZ_API cz_status cz_optim_set_hyper(cz_optim *optim, int64_t param_group, const char *name,
                                    double value);
CZ_API cz_status cz_optim_get_hyper(const cz_optim *optim, int64_t param_group, const char *name,
                                    double *value);

/** Add a value that the rule does not know to a parameter group, such as a scheduler's initial_lr;
 *  one that was added before is set. It is kept, compared between ranks and saved like the rule's
 *  own. Local. @param name  copied; 1 to 63 characters
 *  @return CZ_ERR_ARGUMENT: no such group, a name of the rule's or a bad one, a value that is not
 *          finite; CZ_ERR_MEMORY. Nothing was changed. */
CZ_API cz_status cz_optim_add_hyper(cz_optim *optim, int64_t param_group, const char *name,
                                    double value);

/** The name of a hyper-parameter of a group by its number from 0 on: the rule's first, then those
 *  added, in the order in which they were. NULL for an index that does not exist; valid until the
 *  next one is added or set by cz_optim_add_hyper(), or a dictionary is loaded. Local. */
CZ_API const char *cz_optim_hyper_name(const cz_optim *optim, int64_t param_group, int index);

/** Read-only view of state for elements [begin, end) of a parameter: the run that starts at `begin`
 *  and is contiguous here. Local; valid until the next step or change of hyper-parameters.
 *  @param slot   the rule's name of an element slot, e.g. "exp_avg", which is of the value's type
 *                if that is f64 or the rule needs whole tensors, else f32 or what state_dtype
 *                says; or "master_param", f32; or "average", f32, or f64 of f64 values
 *  @param data   receives its address, NULL where the slot is absent (no gradient yet, or not here)
 *  @param count  receives how many elements follow
 *  @return CZ_ERR_ARGUMENT: no such parameter, element or slot. */
CZ_API cz_status cz_optim_state(const cz_optim *optim, int64_t param, const char *slot,
                                int64_t begin, const void **data, int64_t *count);

/** The value of a scalar slot of a parameter, such as NAdam's "mu_product"; NaN where it is absent
 *  (no gradient yet, or not here). "step": the steps that updated it; 0 if none, or none here.
 *  Local.
 *  @return CZ_ERR_ARGUMENT: no such parameter or slot. */
CZ_API cz_status cz_optim_scalar(const cz_optim *optim, int64_t param, const char *slot,
                                 double *value);

/** The optimizer's state, deeply copied: *out is the caller's, for cz_state_dict_destroy().
 *
 *      rule          text: of groups that say no other
 *      state         by name of the parameter; those without state are left out:
 *          w1            step (integer); the rule's other slots by name: tensors of the parameter's
 *                        shape, reals; master_param: a tensor, where there is a master; average: a
 *                        tensor, and n_averaged, a real, where some group has an average
 *      param_groups  "0", "1", …: hyper-parameters (reals), those that were added too,
 *                    rule: text, where it is another one than the optimizer's, and
 *                    params: the names of the members, in order
 *
 *  Local.
 *  @return CZ_ERR_ARGUMENT: a NULL; CZ_ERR_STATE: it is part of a sharded optimizer;
 *          CZ_ERR_MEMORY. */
CZ_API cz_status cz_optim_state_dict(const cz_optim *optim, cz_state_dict **out);

/** As cz_zero_fingerprint(), which see, of an unsharded optimizer. Local.
 *  @return CZ_ERR_ARGUMENT: a NULL; CZ_ERR_STATE: it is part of a sharded optimizer. */
CZ_API cz_status cz_optim_fingerprint(const cz_optim *optim, uint64_t fingerprint[2]);

/** What becomes of a parameter of a group that the dictionary has no state of. */
typedef enum cz_missing_state {
    CZ_MISSING_NONE = 0,  /**< afterwards it has none, as if it had never been updated */
    CZ_MISSING_KEEP = 1,  /**< it keeps what it has: some parameters go on from elsewhere */
    CZ_MISSING_REFUSE = 2 /**< CZ_ERR_ARGUMENT, with a list of them, unless it is frozen */
} cz_missing_state;

typedef struct cz_optim_load_options {
    size_t size; /**< set by CZ_OPTIM_LOAD_OPTIONS_INIT */
    cz_missing_state missing;
    int32_t reserved; /**< 0 */
} cz_optim_load_options;
#define CZ_OPTIM_LOAD_OPTIONS_INIT {sizeof(cz_optim_load_options), CZ_MISSING_NONE, 0}
CZ_INIT_FUNCTION(cz_optim_load_options, CZ_OPTIM_LOAD_OPTIONS_INIT)

/** Take state, step counts and hyper-parameters from a dictionary. Parameters are found by name,
 *  and groups by their members, so that no order matters; values of other floating types are
 *  converted. Hyper-parameters that it does not list stay as they are. A master that is not in it
 *  is made from the value by the next step. One that is in it while the parameter has none here
 *  becomes the parameter's value: so a run goes on with and without masters, in f32 and in 16 bits.
 *  An average that is not in it begins anew with the next update; one that is in it while the
 *  parameter has none here is left out.
 *
 *  Local. @param dict  borrowed, left as it is
 *  @param options  NULL: afterwards a parameter that the dictionary has no state of has none
 *  @return CZ_ERR_ARGUMENT: a NULL, an option out of range; groups that differ in number, members
 *          or rule; an unknown parameter, value or slot; a shape, type or number that is wrong; a
 *          slot that is missing. CZ_ERR_STATE: it is part of a sharded optimizer. CZ_ERR_MEMORY.
 *          Nothing was changed. */
CZ_API cz_status cz_optim_load_state_dict(cz_optim *optim, const cz_state_dict *dict,
                                          const cz_optim_load_options *options);

CZ_END_DECLS
#endif
