/* SPDX-License-Identifier: MIT */
/* Exact sums, a term at a time. */
#ifndef CZ_BASE_SUM_H
#define CZ_BASE_SUM_H

#include "czero/sum.h"

/* NULL is left alone. */
void cz__sum_add(cz_sum *sum, double term);

/* Make it ready to be added chunk by chunk to others, up to 2^20 of them; so cz_all_reduce() with
 * CZ_SUM of CZ_I64 makes one of those of all ranks. Its value stays. NULL is left alone. */
void cz__sum_settle(cz_sum *sum);

#endif
