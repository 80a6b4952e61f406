/* SPDX-License-Identifier: MIT */
/* State in 8 bits, by the kernels in use. */
#include "device/blocks.h"

#include "device/cpu/cpu.h"

void cz__pack(bool is_signed, int64_t count, const float *values, uint8_t *codes, float *scales)
{
    cz__cpu_kernels_chosen()->pack[is_signed](count, values, codes, scales);
}

void cz__unpack(bool is_signed, int64_t count, const uint8_t *codes, const float *scales,
                float *values)
{
    cz__cpu_kernels_chosen()->unpack[is_signed](count, codes, scales, values);
}
