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
        [CZ__ADAM_HYPER_LR] = CZ__HYPER_POSITIVE("lr", 1e-3),                                      \
        [CZ__ADAM_HYPER_BETA1] = CZ__HYPER_BETA("beta1", 0.9),                                     \
        [CZ__ADAM_HYPER_BETA2] = CZ__HYPER_BETA("beta2", 0.999),                                   \
        [CZ__ADAM_HYPER_EPS] = CZ__HYPER_POSITIVE("eps", 1e-8),                                    \
        [CZ__ADAM_HYPER_WEIGHT_DECAY] = CZ__HYPER_POSITIVE("weight_decay", weight_decay),          \
        [CZ__ADAM_HYPER_AMSGRAD] = CZ__HYPER_FLAG("amsgrad"),                                      \
        [CZ__ADAM_HYPER_MAXIMIZE] = CZ__HYPER_FLAG("maximize"),                                    \
        [CZ__ADAM_HYPER_LERP] = CZ__HYPER_FLAG("lerp"),                                            \
    }

/* Slots: step, exp_avg, exp_avg_sq, max_exp_avg_sq. */
#define CZ__ADAM_SLOT_COUNT 4
extern const cz_slot_spec cz__adam_slots[CZ__ADAM_SLOT_COUNT];
unsigned cz__adam_slots_used(const double *hypers);

/* All coefficients but that of the decay, all flags but that of the decay. */
void cz__adam_prepare(const cz_rule_step *step, double *coefficients, unsigned *flags);

#endif
