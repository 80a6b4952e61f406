/* SPDX-License-Identifier: MIT */
/* What reductions are called in sentences. */
#include "device/reduction.h"

#include <stddef.h>

const char *const cz__reduction_words[] = {
    "none",           [CZ_SUM] = "sum", [CZ_AVERAGE] = "average",
    [CZ_MAX] = "max", [CZ_MIN] = "min", [CZ_PRODUCT] = "product",
    [CZ_AND] = "and", [CZ_OR] = "or",   NULL};

const char *cz__reduction_name(cz_reduction reduction)
{
    return reduction >= CZ_SUM && reduction <= CZ_OR ? cz__reduction_words[reduction]
                                                     : "unknown reduction";
}
