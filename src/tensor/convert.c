/* SPDX-License-Identifier: MIT */
/* Conversions between floating types in host memory. */
#include "tensor/convert.h"

#include "czero/device.h"

bool cz__converts(cz_dtype dtype)
{
    return dtype == CZ_F32 || dtype == CZ_F64 || dtype == CZ_F16 || dtype == CZ_BF16;
}

void cz__convert(cz_dtype to_type, void *to, cz_dtype from_type, const void *from, int64_t count)
{
    (void)cz_device_cpu()->convert(NULL, to_type, to, from_type, from, count);
}
