/* SPDX-License-Identifier: MIT */
/* The CPU once per kernel level that the processor has: a device that runs the kernels of this
 * level, whatever CZERO_CPU chose for the others. */
#ifndef CZ_TEST_LEVELS_H
#define CZ_TEST_LEVELS_H

#include "device/cpu/cpu.h"

#define LEVEL_FIND(level)                                                                          \
    static inline cz_update_kernel find_##level(const char *rule, cz_dtype param, cz_dtype grad,   \
                                                cz_dtype state)                                    \
    {                                                                                              \
        return cz__cpu_find_update(cz__cpu_kernels_at(level), rule, param, grad, state);           \
    }                                                                                              \
    static inline cz_status matmul_##level(void *queue, cz_dtype dtype, const cz_matmul *product)  \
    {                                                                                              \
        cz__cpu_kernels_at(level)->matmul[dtype](product);                                         \
        return CZ_OK;                                                                              \
    }
LEVEL_FIND(CZ__CPU_V1)
LEVEL_FIND(CZ__CPU_V3)
LEVEL_FIND(CZ__CPU_V4)

/* NULL where the processor or the build lacks the level. */
static inline const cz_device *level_device(cz__cpu_level level)
{
    static cz_device devices[CZ__CPU_LEVEL_COUNT];
    cz_device *device = &devices[level];
    if (!cz__cpu_kernels_at(level))
        return NULL;
    *device = *cz_device_cpu();
    device->find_update = level == CZ__CPU_V1   ? find_CZ__CPU_V1
                          : level == CZ__CPU_V3 ? find_CZ__CPU_V3
                                                : find_CZ__CPU_V4;
    device->matmul = level == CZ__CPU_V1   ? matmul_CZ__CPU_V1
                     : level == CZ__CPU_V3 ? matmul_CZ__CPU_V3
                                           : matmul_CZ__CPU_V4;
    return device;
}

#endif
