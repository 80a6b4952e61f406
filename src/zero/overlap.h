/* SPDX-License-Identifier: MIT */
/* Steps inside the passes of a data-parallel model. */
#ifndef CZ_ZERO_OVERLAP_H
#define CZ_ZERO_OVERLAP_H

#include "zero/zero.h"

/* May this optimizer step so? CZ_ERR_ARGUMENT, CZ_ERR_UNSUPPORTED. */
cz_status cz__overlap_check(const cz_zero *zero, cz_overlap overlap);

/* Have memory for it, and be told of passes from now on, with the map that the optimizer has; without
 * overlap: only hand on the map. CZ_ERR_MEMORY: nothing was changed. */
cz_status cz__overlap_reserve(const cz_zero *zero, cz_overlap overlap);
void cz__overlap_bind(cz_zero *zero);

#endif
