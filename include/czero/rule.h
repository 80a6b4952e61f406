/* SPDX-License-Identifier: MIT */
/** @file rule.h  Update rules: how an optimizer changes a parameter. A rule names its
 *  hyper-parameters with ranges and defaults, the state that it keeps (its slots), and a kernel for
 *  each type. Those of the library are found by name; docs/add-a-rule.md has one of a program's
 *  own.
 *
 *      cz_rule_adamw()            // or cz_rule_find("adamw"), where the name is a setting
 *      CZ_HYPERS({"lr", 1e-3}, {"weight_decay", 0.1}) */
#ifndef CZERO_RULE_H
#define CZERO_RULE_H

#include "czero/tensor.h"

CZ_BEGIN_DECLS

struct cz_optim; /* czero/optim.h */

/** One named value. A list of them ends with an entry whose name is NULL. Flags are 0 or 1. The
 *  struct never changes. */
typedef struct cz_hyper {
    const char *name;
    double value;
} cz_hyper;

/** For C: a list in place, CZ_HYPERS({"lr", 1e-3}, {"weight_decay", 0.1}). In a function it lives
 *  until the block that it is written in ends: enough for an argument of a call, too short for a
 *  pointer that is to be kept or returned. */
#ifndef __cplusplus
#define CZ_HYPERS(...) ((const cz_hyper[]){__VA_ARGS__, {NULL, 0}})
#else
#define CZ_HYPERS(...)                                                                             \
    CZ_C_ONLY("CZ_HYPERS is for C: let an array of cz_hyper end with {nullptr, 0}, or see "        \
              "cz_hyper_list()")
#endif

/** The same from names and values. @param list  receives them and the end: room for count + 1.
 *  @return list; NULL: a NULL, or a count below 0 */
static inline const cz_hyper *cz_hyper_list(cz_hyper *list, int count, const char *const *names,
                                            const double *values)
{
    if (!list || count < 0 || (count > 0 && (!names || !values)))
        return NULL;
    for (int i = 0; i < count; i++) {
        list[i].name = names[i];
        list[i].value = values[i];
    }
    list[count].name = NULL;
    list[count].value = 0;
    return list;
}

typedef struct cz_hyper_spec {
    const char *name;
    double initial;     /**< the default; NaN: the caller must give it */
    double minimum;     /**< smallest value allowed */
    double maximum;     /**< largest value allowed; +infinity: none */
    bool below_maximum; /**< the maximum itself is not allowed */
    bool flag;          /**< only 0 and 1 are allowed */
} cz_hyper_spec;

typedef enum cz_slot_kind {
    CZ_SLOT_ELEMENT = 0, /**< one value per element of the parameter; cut with the span */
    CZ_SLOT_SCALAR = 1   /**< one value per parameter, kept by every owner. The scalar "step" is the
                                step count, which the library keeps; others are the rule's. */
} cz_slot_kind;

typedef struct cz_slot_spec {
    const char *name;
    cz_slot_kind kind;
    double initial;            /**< what the slot starts with when a step first uses it */
    const char *initial_hyper; /**< or the hyper-parameter whose value then it starts with; NULL */
} cz_slot_spec;

/** What a rule prepares a step of one parameter from. */
typedef struct cz_rule_step {
    size_t size; /**< of this struct in the library: a later field is there if it is as large */
    const double *hypers; /**< in the order of the specs */
    int64_t step;         /**< the step count of the parameter, this step included: from 1 */
    double *scalars;      /**< read and written: the parameter's scalar slots in order, "step" left
                               out. NULL: the rule has none. */
    const void *argument; /**< of this step's cz_step_options; NULL: none */
    void *context;        /**< the rule's own */
} cz_rule_step;

/** What a rule that needs whole tensors is given of one. */
typedef struct cz_tensor_update {
    size_t size;                /**< of this struct in the library, as in cz_rule_step */
    const cz_tensor *param;     /**< to be changed */
    const void *grad;           /**< of the same shape and type */
    void *const *slots;         /**< element slots in the rule's order, of the same shape and type;
                                     NULL where a slot is not in use */
    const double *coefficients; /**< as for a kernel */
    unsigned flags;
    void *scratch; /**< scratch_bytes() of memory, aligned to 64; NULL without that */
    void *context; /**< the rule's own */
} cz_tensor_update;

/** In place of a number of elements between which a parameter is not cut: those of one index of its
 *  first dimension (single ones, where there is no second dimension); all of it, so that it has one
 *  owner. */
#define CZ_GRANULE_ROW (-1)
#define CZ_GRANULE_WHOLE (-2)

#define CZ_RULE_ABI 3u
#define CZ_RULE_COEFFICIENTS 16 /**< room for what a rule prepares */
#define CZ_RULE_SUMS 8          /**< partial sums that a rule may have */

/** An update rule. The table outlives all objects made with it, and cannot change meanwhile.
 *  Required are `abi`, `size`, `name`, `slots_used` and `prepare`, and `hyper_size` and `slot_size`
 *  where there are hyper-parameters and slots; what else is NULL or 0 is not there. Functions may
 *  be called from several threads at once, for different optimizers. */
typedef struct cz_rule {
    uint32_t abi;      /**< CZ_RULE_ABI; others are refused */
    size_t size;       /**< sizeof(cz_rule) */
    const char *name;  /**< the word a user writes, and the name of its kernel on a device */
    void *context;     /**< handed to the functions; never looked into */
    size_t hyper_size; /**< sizeof(cz_hyper_spec) where the table was compiled */
    size_t slot_size;  /**< sizeof(cz_slot_spec) there */
    int hyper_count;
    const cz_hyper_spec *hypers;
    int slot_count;
    /** Element slots are given to the kernel in this order, scalars left out. */
    const cz_slot_spec *slots;
    bool state_at_create; /**< slots are in use from creation on, not from the first gradient */
    /** Checks that need more than one value; `hypers` in the order of the specs. Optional. */
    cz_status (*check)(const double *hypers);
    /** Can it update this parameter? Asked for each one of the groups, when they are made.
     *  Optional. */
    cz_status (*check_param)(const cz_tensor *param, void *context);
    /** Bit i: slot i is in use with these values. */
    unsigned (*slots_used)(const double *hypers);
    /** Once per step, on every rank, those that own nothing too, after the closure and before
     *  anything changes: it may read, set and add hyper-parameters (cz_optim_set_hyper(),
     *  cz_optim_add_hyper()), alike on every rank. Of several rules in one optimizer
     *  (cz_param_group) each is called once, in the order of their first groups. A status other
     *  than CZ_OK ends the step on all ranks. Optional. */
    cz_status (*begin_step)(struct cz_optim *optim, const void *argument, void *context);
    /** The kernel's coefficients, in double; they and `flags` are zero before. Once per parameter
     *  and step where the rule has scalar slots beside "step", or the step an argument; else
     *  once per (parameter group, step count). */
    void (*prepare)(const cz_rule_step *step, double *coefficients, unsigned *flags);
    /** The rule's own kernel for these types on a device, NULL if there is none. Without this
     *  function: the device's kernel of the rule's name. */
    cz_update_kernel (*find_kernel)(const cz_device *device, cz_dtype param, cz_dtype grad,
                                    cz_dtype state, void *context);
    /** Partial sums over all elements of a parameter between two passes, at most CZ_RULE_SUMS. They
     *  are exact, so they do not depend on cuts, order and the number of ranks. With them,
     *  find_sums (which may ask the device's) and combine are required. */
    int sum_count;
    cz_sums_kernel (*find_sums)(const cz_device *device, cz_dtype param, cz_dtype grad,
                                cz_dtype state, void *context);
    /** Between the passes, once per parameter and step: `sums` into the second pass's coefficients
     *  and flags, which hold what prepare() made of them. */
    void (*combine)(const cz_rule_step *step, const double *sums, double *coefficients,
                    unsigned *flags);
    /** Makes this a rule that needs whole tensors: called instead of a kernel, for each parameter
     *  that has elements. Sharded, every parameter of its groups has one owner, see `granule`. */
    void (*update_tensor)(const cz_tensor_update *update);
    /** Bytes of scratch memory that update_tensor() needs for a parameter. Had in advance.
     *  Optional. */
    size_t (*scratch_bytes)(const cz_tensor *param, void *context);
    /** With update_tensor(): tensors of 16 bits, their gradients and state come as copies in f32,
     *  with masters and all that kernels have (docs/precision.md). Without it each comes as it is,
     *  all of one type. */
    bool in_f32;
    /** What is evaluated where that is not the value itself: value + weight (slot - value), with an
     *  element slot, whose place among them `slot` receives. Returns the weight with these values;
     *  not finite: there is none. For rules with kernels. See cz_zero_evaluate(). Optional. */
    double (*evaluated)(const double *hypers, int *slot);
    /** Below which sharding does not cut a parameter: so many elements (the last ones of a
     *  parameter may be fewer), or one of the two above. 0: single elements. With update_tensor()
     *  it is CZ_GRANULE_WHOLE, whatever is here. */
    int64_t granule;
    /** What an update of a parameter costs, such as floating-point operations: from 0 to 1e200,
     *  alike on all ranks. Where parameters are whole, and even cuts are asked for, ranks get about
     *  as much of it, not of elements. NULL: elements are the cost. */
    double (*cost)(const cz_tensor *param, void *context);
} cz_rule;

/** The rule of that name ("sgd", "adamw", "nadam", …), built in or registered, NULL if there is
 *  none. Local; any thread. */
CZ_API const cz_rule *cz_rule_find(const char *name);

/** Stochastic gradient descent: lr (required), momentum, dampening, weight_decay, nesterov,
 *  maximize.
 *  @see Robbins and Monro, Ann. Math. Statist. 22 (1951). */
static inline const cz_rule *cz_rule_sgd(void)
{
    return cz_rule_find("sgd");
}
/** Adam: lr 1e-3, beta1 0.9, beta2 0.999, eps 1e-8, weight_decay 0 (added to the gradient),
 *  amsgrad, maximize, lerp (first moment in the form of PyTorch 2). @see Kingma and Ba,
 *  arXiv:1412.6980. */
static inline const cz_rule *cz_rule_adam(void)
{
    return cz_rule_find("adam");
}
/** AdamW: as Adam, weight_decay 1e-2 applied to the parameter. @see Loshchilov and Hutter,
 *  arXiv:1711.05101. */
static inline const cz_rule *cz_rule_adamw(void)
{
    return cz_rule_find("adamw");
}
/** Adamax, Adam with the largest gradient: lr 2e-3, beta1 0.9, beta2 0.999, eps 1e-8, weight_decay
 *  0, maximize, lerp. @see Kingma and Ba, arXiv:1412.6980. */
static inline const cz_rule *cz_rule_adamax(void)
{
    return cz_rule_find("adamax");
}
/** Adadelta: lr 1, rho 0.9, eps 1e-6, weight_decay 0, maximize. @see Zeiler, arXiv:1212.5701. */
static inline const cz_rule *cz_rule_adadelta(void)
{
    return cz_rule_find("adadelta");
}
/** Adagrad: lr 1e-2, lr_decay 0, weight_decay 0, initial_accumulator_value 0, eps 1e-10, maximize.
 *  Its state is there from creation on. @see Duchi et al., JMLR 12 (2011). */
static inline const cz_rule *cz_rule_adagrad(void)
{
    return cz_rule_find("adagrad");
}
/** RMSprop: lr 1e-2, alpha 0.99, eps 1e-8, weight_decay 0, momentum 0, centered, maximize, lerp (of
 *  grad_avg). @see Tieleman and Hinton, lecture 6.5 (2012); centered: Graves, arXiv:1308.0850. */
static inline const cz_rule *cz_rule_rmsprop(void)
{
    return cz_rule_find("rmsprop");
}
/** Resilient backpropagation: lr 1e-2 (the first step size), eta_minus 0.5, eta_plus 1.2,
 *  step_size_min 1e-6, step_size_max 50, maximize. @see Riedmiller and Braun, ICNN 1993. */
static inline const cz_rule *cz_rule_rprop(void)
{
    return cz_rule_find("rprop");
}
/** NAdam: lr 2e-3, beta1 0.9, beta2 0.999, eps 1e-8, weight_decay 0, momentum_decay 4e-3,
 *  decoupled_weight_decay, maximize, lerp. With the product of momenta that PyTorch 1.13 has wrong.
 *  @see Dozat, ICLR workshop 2016. */
static inline const cz_rule *cz_rule_nadam(void)
{
    return cz_rule_find("nadam");
}
/** RAdam: lr 1e-3, beta1 0.9, beta2 0.999, eps 1e-8, weight_decay 0, decoupled_weight_decay,
 *  maximize, lerp. @see Liu et al., arXiv:1908.03265. */
static inline const cz_rule *cz_rule_radam(void)
{
    return cz_rule_find("radam");
}
/** Lion, the sign of a mixture of moment and gradient: lr 1e-4, beta1 0.9, beta2 0.99, weight_decay
 *  0 (applied to the parameter), maximize. @see Chen et al., arXiv:2302.06675; docs/rules.md for
 *  this one and those that follow. */
static inline const cz_rule *cz_rule_lion(void)
{
    return cz_rule_find("lion");
}
/** LAMB, Adam's step of each parameter scaled to the norm of the parameter: lr 1e-3, beta1 0.9,
 *  beta2 0.999, eps 1e-6, weight_decay 1e-2 (added to the step), bias_correction 1, always_adapt 1
 *  (0: scaled only where weight_decay is not 0), trust_clip (scaled down only), maximize. @see You
 *  et al., arXiv:1904.00962. */
static inline const cz_rule *cz_rule_lamb(void)
{
    return cz_rule_find("lamb");
}
/** LARS, the same for SGD: lr (required), momentum 0.9, dampening, weight_decay, nesterov,
 *  trust_coefficient 1e-3, eps 1e-8, always_adapt 1, trust_clip, maximize. @see You, Gitman and
 *  Ginsburg, arXiv:1708.03888. */
static inline const cz_rule *cz_rule_lars(void)
{
    return cz_rule_find("lars");
}
/** AdEMAMix, AdamW with a slow first moment beside the fast one: lr 1e-3, beta1 0.9, beta2 0.999,
 *  beta3 0.9999, alpha 5, beta3_warmup and alpha_warmup 0 (steps), eps 1e-8, weight_decay 1e-2,
 *  maximize. @see Pagliardini, Ablin and Grangier, arXiv:2409.03137. */
static inline const cz_rule *cz_rule_ademamix(void)
{
    return cz_rule_find("ademamix");
}
/** Schedule-free SGD: lr 1, momentum 0.9, weight_decay 0, warmup_steps 0, r 0, weight_lr_power 2,
 *  maximize. @see Defazio et al., arXiv:2405.15682. */
static inline const cz_rule *cz_rule_schedule_free_sgd(void)
{
    return cz_rule_find("schedule_free_sgd");
}
/** Schedule-free AdamW: lr 2.5e-3, beta1 0.9, weight_decay 0, warmup_steps 0, r 0, weight_lr_power
 *  2, maximize, beta2 0.999, eps 1e-8. @see Defazio et al., arXiv:2405.15682. */
static inline const cz_rule *cz_rule_schedule_free_adamw(void)
{
    return cz_rule_find("schedule_free_adamw");
}
/** Adam-mini, AdamW with one second moment for all of a parameter: lr 1e-3, beta1 0.9, beta2 0.999,
 *  eps 1e-8, weight_decay 0, maximize. @see Zhang et al., arXiv:2406.16793. */
static inline const cz_rule *cz_rule_adam_mini(void)
{
    return cz_rule_find("adam_mini");
}
/** Muon, the momentum of a matrix made nearly orthogonal: lr 1e-3, weight_decay 0.1 (applied to the
 *  parameter), momentum 0.95, nesterov 1, ns_a 3.4445, ns_b -4.775, ns_c 2.0315, eps 1e-7, ns_steps
 *  5, adjust_lr_fn 0 ("original"; 1: "match_rms_adamw", 2: "spectral_unclamped"), maximize. Takes
 *  matrices, each of which has one owner. @see Jordan et al., "Muon" (2024); Liu et al.,
 *  arXiv:2502.16982. */
static inline const cz_rule *cz_rule_muon(void)
{
    return cz_rule_find("muon");
}

/** Make a rule of the program's own known by its name, for the rest of the process. Local; any
 *  thread.
 *  @param rule  borrowed for ever
 *  @return CZ_ERR_ARGUMENT, CZ_ERR_UNSUPPORTED: what is wrong with the table; CZ_ERR_STATE: there
 *          is a rule of that name, or there are CZ_RULE_REGISTERED already. */
CZ_API cz_status cz_rule_register(const cz_rule *rule);
#define CZ_RULE_REGISTERED 256

/** The names of all rules, built-in ones first, then registered ones in their order. NULL for an
 *  index that does not exist. Local; any thread. */
CZ_API const char *cz_rule_name(int index);

CZ_END_DECLS
#endif
