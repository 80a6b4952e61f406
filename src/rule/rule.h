/* SPDX-License-Identifier: MIT */
/* Hyper-parameters against the specs of their rule. Values are arrays in the order of the specs. */
#ifndef CZ_RULE_RULE_H
#define CZ_RULE_RULE_H

#include "czero/rule.h"

#include <math.h>

#define CZ__RULE_SLOTS 32 /* bits of what slots_used() returns */

/* Specs of the kinds that built-in rules have. */
#define CZ__HYPER_POSITIVE(name, initial)                                                          \
    {                                                                                              \
        name, initial, 0, INFINITY, false, false                                                   \
    } /* or 0 */
#define CZ__HYPER_BETA(name, initial)                                                              \
    {                                                                                              \
        name, initial, 0, 1, true, false                                                           \
    }
#define CZ__HYPER_ANY(name, initial)                                                               \
    {                                                                                              \
        name, initial, -INFINITY, INFINITY, false, false                                           \
    }
#define CZ__HYPER_FLAG(name)                                                                       \
    {                                                                                              \
        name, 0, 0, 1, false, true                                                                 \
    }
#define CZ__HYPER_SET_FLAG(name)                                                                   \
    {                                                                                              \
        name, 1, 0, 1, false, true                                                                 \
    }

/* What the table of a built-in rule begins with; both are arrays. */
/* clang-format off */
#define CZ__RULE(of_name, of_hypers, of_slots)                                                     \
    .abi = CZ_RULE_ABI, .size = sizeof(cz_rule), .name = of_name,                                  \
    .hyper_size = sizeof *(of_hypers), .slot_size = sizeof *(of_slots),                            \
    .hyper_count = sizeof(of_hypers) / sizeof *(of_hypers), .hypers = of_hypers,                   \
    .slot_count = sizeof(of_slots) / sizeof *(of_slots), .slots = of_slots
/* clang-format on */

/* find_sums of a built-in rule: the device's, where it has one. `context`: the rule's name. */
cz_sums_kernel cz__rule_device_sums(const cz_device *device, cz_dtype param, cz_dtype grad,
                                    cz_dtype state, void *context);

/* Can this library work with the table? CZ_ERR_ARGUMENT, CZ_ERR_UNSUPPORTED (another ABI). */
cz_status cz__rule_check_table(const cz_rule *rule);

/* The place of a hyper-parameter. CZ_ERR_ARGUMENT: the rule has none of that name. */
cz_status cz__rule_find_hyper(const cz_rule *rule, const char *name, int *place);

bool cz__rule_has_hyper(const cz_rule *rule, const char *name);

/* values[its place] = value, if it has one and the value is in its range; else CZ_ERR_ARGUMENT. */
cz_status cz__rule_set(const cz_rule *rule, double *values, const char *name, double value);

/* Can a kernel of the library work with these values in this type, to which it rounds them?
 * CZ_ERR_ARGUMENT: one becomes infinite, or what is added to a divisor becomes 0: zero over zero.
 * (A rate or a decay may become 0: it is too small to count.) The program's own kernels have values
 * in double. */
cz_status cz__rule_check_type(const cz_rule *rule, const double *values, cz_dtype dtype);

/* Is it given values of 16 bits as they are? */
static inline bool cz__rule_takes_16_bits(const cz_rule *rule)
{
    return rule->update_tensor && !rule->in_f32;
}

/* Which element slots these values use; bit e is the e-th of the rule's slots that are no
 * scalars. */
unsigned cz__rule_element_slots(const cz_rule *rule, const double *values);

/* ---- how fine parameters may be cut ---- */

/* Elements of a granule, CZ_GRANULE_ROW or _WHOLE, or 0, of this tensor: 1: single elements; 0:
 * all of it. Multiples of both. */
int64_t cz__granule(int64_t granule, const cz_tensor *param);
int64_t cz__granule_of_both(int64_t a, int64_t b, const cz_tensor *param);

/* The rule's own, as its table has it and of this tensor. */
int64_t cz__rule_granule_given(const cz_rule *rule);
int64_t cz__rule_granule(const cz_rule *rule, const cz_tensor *param);

/* Of a whole parameter; below 0: as many as elements. CZ_ERR_ARGUMENT: it is no number that can be
 * added up; `name`: the parameter's. */
cz_status cz__rule_cost(const cz_rule *rule, const cz_tensor *param, const char *name,
                        double *cost);

/* The rule's defaults; NaN where there is none. */
void cz__rule_defaults(const cz_rule *rule, double *values);

/* cz__rule_set() for a whole list; NULL is an empty one. */
cz_status cz__rule_set_list(const cz_rule *rule, double *values, const cz_hyper *list);

/* Is every value there, and do they agree with each other? CZ_ERR_ARGUMENT, or what rule->check
 * says. */
cz_status cz__rule_check(const cz_rule *rule, const double *values);

/* A spec of the table, whose elements may be shorter or longer than ours: what is beyond theirs is
 * 0. */
cz_hyper_spec cz__rule_hyper(const cz_rule *rule, int index);
cz_slot_spec cz__rule_slot(const cz_rule *rule, int index);

/* The built-in ones. */
const cz_rule *cz__rule_sgd(void);
const cz_rule *cz__rule_adam(void);
const cz_rule *cz__rule_adamw(void);
const cz_rule *cz__rule_adamax(void);
const cz_rule *cz__rule_adadelta(void);
const cz_rule *cz__rule_adagrad(void);
const cz_rule *cz__rule_rmsprop(void);
const cz_rule *cz__rule_rprop(void);
const cz_rule *cz__rule_nadam(void);
const cz_rule *cz__rule_radam(void);
const cz_rule *cz__rule_lion(void);
const cz_rule *cz__rule_lamb(void);
const cz_rule *cz__rule_lars(void);
const cz_rule *cz__rule_ademamix(void);
const cz_rule *cz__rule_schedule_free_sgd(void);
const cz_rule *cz__rule_schedule_free_adamw(void);
const cz_rule *cz__rule_adam_mini(void);
const cz_rule *cz__rule_muon(void);

/* What a step of Muon costs with the default number of Newton's steps: operations in its matrix
 * products. */
double cz__muon_cost(const cz_tensor *param, void *context);

#endif
