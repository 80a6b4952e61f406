/* SPDX-License-Identifier: MIT */
/* Exact sums, a term at a time. */
#ifndef CZ_BASE_SUM_H
#define CZ_BASE_SUM_H

#include "czero/sum.h"

/* NULL is left alone. */
void cz__sum_add(cz_sum *sum, double term);

#endif
