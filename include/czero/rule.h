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
    CZ_SLOT_SCALAR = 1   /**< one value per parameter, kept by every owner: the step count */
} cz_slot_kind;

typedef struct cz_slot_spec {
    const char *name;
    cz_slot_kind kind;
} cz_slot_spec;

#define CZ_RULE_ABI 1u
#define CZ_RULE_COEFFICIENTS 16 /**< room for what a rule prepares */

/** An update rule. The table outlives all objects made with it. */
typedef struct cz_rule {
    uint32_t abi;     /**< CZ_RULE_ABI; others are refused */
    size_t size;      /**< sizeof(cz_rule) */
    const char *name; /**< the word a user writes, and the name of its kernel on a device */
    int hyper_count;
    const cz_hyper_spec *hypers;
    int slot_count; /**< scalar slots have no memory of their own: "step" is all there is */
    const cz_slot_spec
        *slots; /**< element slots are given to the kernel in this order, scalars left out */
    /** Checks that need more than one value; `hypers` in the order of the specs. May be NULL. */
    cz_status (*check)(const double *hypers);
    /** Bit i: slot i is in use with these values. */
    unsigned (*slots_used)(const double *hypers);
    /** Once per (parameter group, step count): the kernel's coefficients, in double. `step` counts
     *  from 1. */
    void (*prepare)(const double *hypers, int64_t step, double *coefficients, unsigned *flags);
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

/** The rule of that name ("sgd", "adam", "adamw"), NULL if there is none. Local; any thread. */
CZ_API const cz_rule *cz_rule_find(const char *name);

CZ_END_DECLS
#endif
