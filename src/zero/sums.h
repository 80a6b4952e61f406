/* SPDX-License-Identifier: MIT */
/* Partial sums of a rule, put together from all ranks between the two passes of a step. */
#ifndef CZ_ZERO_SUMS_H
#define CZ_ZERO_SUMS_H

#include "zero/zero.h"

/* Memory for it. *out is NULL for a rule without sums. CZ_ERR_MEMORY. */
cz_status cz__zero_sums_create(cz__zero_sums **out, const cz_zero *zero);
void cz__zero_sums_destroy(cz__zero_sums **sums); /* accepts NULL and *NULL */

/* Bytes of the longest stream, for the reserve that the exchange uses. */
size_t cz__zero_sums_bytes(const cz_zero *zero);

/* After the first pass over all parameters that take part: every rank knows every sum. Collective. */
cz_status cz__zero_sums_exchange(cz_zero *zero);

#endif
