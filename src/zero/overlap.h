/* SPDX-License-Identifier: MIT */
/* Steps that are made inside the backward pass of a data-parallel model. */
#ifndef CZ_ZERO_OVERLAP_H
#define CZ_ZERO_OVERLAP_H

#include "zero/zero.h"

/* Can this optimizer overlap? CZ_ERR_ARGUMENT, CZ_ERR_UNSUPPORTED. */
cz_status cz__overlap_check(const cz_zero *zero);

/* The data-parallel model reduces along the optimizer's map from now on, and calls it if it overlaps. */
void cz__overlap_bind(cz_zero *zero);

/* What is left of cz_zero_step(). Local. */
cz_status cz__overlap_step(const cz_zero *zero, const cz_step_options *options,
                           cz_step_result *result);

#endif
