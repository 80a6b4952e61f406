/* SPDX-License-Identifier: MIT */
/* Kinds of element types. */
#ifndef CZ_BASE_DTYPE_H
#define CZ_BASE_DTYPE_H

#include "czero/base.h"

static inline bool cz__has_16_bits(cz_dtype dtype)
{
    return dtype == CZ_F16 || dtype == CZ_BF16;
}

static inline bool cz__is_floating(cz_dtype dtype)
{
    return dtype == CZ_F32 || dtype == CZ_F64 || cz__has_16_bits(dtype);
}

#endif
