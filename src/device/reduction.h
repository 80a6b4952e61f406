/* SPDX-License-Identifier: MIT */
/* What reductions are called in sentences. */
#ifndef CZ_DEVICE_REDUCTION_H
#define CZ_DEVICE_REDUCTION_H

#include "czero/device.h"

/* By the reduction, and NULL at the end; the first is none's. */
extern const char *const cz__reduction_words[];

/* "sum"; "unknown reduction" */
const char *cz__reduction_name(cz_reduction reduction);

#endif
