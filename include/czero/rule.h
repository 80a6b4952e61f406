/* SPDX-License-Identifier: MIT */
/** @file rule.h  Update rules: hyper-parameters with ranges and defaults, state slots, one kernel. */
#ifndef CZERO_RULE_H
#define CZERO_RULE_H

#include "czero/device.h"

CZ_BEGIN_DECLS

/** One named value. A list of them ends with an entry whose name is NULL. Flags are 0 or 1. */
typedef struct cz_hyper {
    const char *name;
    double value;
} cz_hyper;

/** For C: a list in place, CZ_HYPERS({"lr", 1e-3}, {"weight_decay", 0.1}). */
#define CZ_HYPERS(...) ((const cz_hyper[]){__VA_ARGS__, {NULL, 0}})

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
    const double *hypers; /**< in the order of the specs */
    int64_t step;         /**< the step count of the parameter, this step included: from 1 */
    double *scalars;      /**< read and written: the parameter's scalar slots in order, "step" left
                               out. NULL: the rule has none. */
} cz_rule_step;

#define CZ_RULE_ABI 2u
#define CZ_RULE_COEFFICIENTS 16 /**< room for what a rule prepares */

/** An update rule. The table outlives all objects made with it. */
typedef struct cz_rule {
    uint32_t abi;     /**< CZ_RULE_ABI; others are refused */
    size_t size;      /**< sizeof(cz_rule) */
    const char *name; /**< the word a user writes, and the name of its kernel on a device */
    int hyper_count;
    const cz_hyper_spec *hypers;
    int slot_count;
    /** Element slots are given to the kernel in this order, scalars left out. */
    const cz_slot_spec *slots;
    bool state_at_create; /**< slots are in use from creation on, not from the first gradient */
    /** Checks that need more than one value; `hypers` in the order of the specs. May be NULL. */
    cz_status (*check)(const double *hypers);
    /** Bit i: slot i is in use with these values. */
    unsigned (*slots_used)(const double *hypers);
    /** The kernel's coefficients, in double; they and `flags` are zero before. Once per parameter and
     *  step where the rule has scalar slots beside "step"; else once per (parameter group, step count). */
    void (*prepare)(const cz_rule_step *step, double *coefficients, unsigned *flags);
} cz_rule;

/** Stochastic gradient descent: lr (required), momentum, dampening, weight_decay, nesterov, maximize.
 *  @see Robbins and Monro, Ann. Math. Statist. 22 (1951). */
CZ_API const cz_rule *cz_rule_sgd(void);
/** Adam: lr 1e-3, beta1 0.9, beta2 0.999, eps 1e-8, weight_decay 0 (added to the gradient), amsgrad,
 *  maximize, lerp (first moment in the form of PyTorch 2). @see Kingma and Ba, arXiv:1412.6980. */
CZ_API const cz_rule *cz_rule_adam(void);
/** AdamW: as Adam, weight_decay 1e-2 applied to the parameter. @see Loshchilov and Hutter,
 *  arXiv:1711.05101. */
CZ_API const cz_rule *cz_rule_adamw(void);
/** Adamax, Adam with the largest gradient: lr 2e-3, beta1 0.9, beta2 0.999, eps 1e-8, weight_decay 0,
 *  maximize, lerp. @see Kingma and Ba, arXiv:1412.6980. */
CZ_API const cz_rule *cz_rule_adamax(void);
/** Adadelta: lr 1, rho 0.9, eps 1e-6, weight_decay 0, maximize. @see Zeiler, arXiv:1212.5701. */
CZ_API const cz_rule *cz_rule_adadelta(void);
/** Adagrad: lr 1e-2, lr_decay 0, weight_decay 0, initial_accumulator_value 0, eps 1e-10, maximize. Its
 *  state is there from creation on. @see Duchi et al., JMLR 12 (2011). */
CZ_API const cz_rule *cz_rule_adagrad(void);
/** RMSprop: lr 1e-2, alpha 0.99, eps 1e-8, weight_decay 0, momentum 0, centered, maximize, lerp (of
 *  grad_avg). @see Tieleman and Hinton, lecture 6.5 (2012); centered: Graves, arXiv:1308.0850. */
CZ_API const cz_rule *cz_rule_rmsprop(void);
/** Resilient backpropagation: lr 1e-2 (the first step size), eta_minus 0.5, eta_plus 1.2, step_size_min
 *  1e-6, step_size_max 50, maximize. @see Riedmiller and Braun, ICNN 1993. */
CZ_API const cz_rule *cz_rule_rprop(void);
/** NAdam: lr 2e-3, beta1 0.9, beta2 0.999, eps 1e-8, weight_decay 0, momentum_decay 4e-3,
 *  decoupled_weight_decay, maximize, lerp. With the product of momenta that PyTorch 1.13 has wrong.
 *  @see Dozat, ICLR workshop 2016. */
CZ_API const cz_rule *cz_rule_nadam(void);
/** RAdam: lr 1e-3, beta1 0.9, beta2 0.999, eps 1e-8, weight_decay 0, decoupled_weight_decay, maximize,
 *  lerp. @see Liu et al., arXiv:1908.03265. */
CZ_API const cz_rule *cz_rule_radam(void);

/** The rule of that name ("sgd", "adamw", "nadam", …), NULL if there is none. Local; any thread. */
CZ_API const cz_rule *cz_rule_find(const char *name);

CZ_END_DECLS
#endif
