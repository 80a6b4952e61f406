/* SPDX-License-Identifier: MIT */
/* What Adam and AdamW share: all but the default and the place of the weight decay. */
#ifndef CZ_RULE_ADAM_H
#define CZ_RULE_ADAM_H

#include "rule/rule.h"

/* The hyper-parameters, in this order. */
enum cz__adam_hyper {
    CZ__ADAM_HYPER_LR,
    CZ__ADAM_HYPER_BETA1,
    CZ__ADAM_HYPER_BETA2,
    CZ__ADAM_HYPER_EPS,
    CZ__ADAM_HYPER_WEIGHT_DECAY,
    CZ__ADAM_HYPER_AMSGRAD,
    CZ__ADAM_HYPER_MAXIMIZE,
    CZ__ADAM_HYPER_LERP,
    CZ__ADAM_HYPER_COUNT
};

#define CZ__ADAM_HYPERS(weight_decay)                                                              \
    {                                                                                              \
        [CZ__ADAM_HYPER_LR] = {"lr", 1e-3, 0, INFINITY, false, false},                             \
        [CZ__ADAM_HYPER_BETA1] = {"beta1", 0.9, 0, 1, true, false},                                \
        [CZ__ADAM_HYPER_BETA2] = {"beta2", 0.999, 0, 1, true, false},                              \
        [CZ__ADAM_HYPER_EPS] = {"eps", 1e-8, 0, INFINITY, false, false},                           \
        [CZ__ADAM_HYPER_WEIGHT_DECAY] = {"weight_decay", weight_decay, 0, INFINITY, false, false}, \
        [CZ__ADAM_HYPER_AMSGRAD] = {"amsgrad", 0, 0, 1, false, true},                              \
        [CZ__ADAM_HYPER_MAXIMIZE] = {"maximize", 0, 0, 1, false, true},                            \
        [CZ__ADAM_HYPER_LERP] = {"lerp", 0, 0, 1, false, true},                                    \
    }

/* Slots: step, exp_avg, exp_avg_sq, max_exp_avg_sq. */
#define CZ__ADAM_SLOT_COUNT 4
extern const cz_slot_spec cz__adam_slots[CZ__ADAM_SLOT_COUNT];
unsigned cz__adam_slots_used(const double *hypers);

/* All coefficients but that of the decay, all flags but that of the decay. */
void cz__adam_prepare(const double *hypers, int64_t step, double *coefficients, unsigned *flags);

#endif
