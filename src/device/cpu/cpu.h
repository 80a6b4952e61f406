/* SPDX-License-Identifier: MIT */
/* The kernels of the CPU, one table per instruction-set level. All tables give the same bits. */
#ifndef CZ_DEVICE_CPU_CPU_H
#define CZ_DEVICE_CPU_CPU_H

#include "czero/device.h"

/* out[i] = the tree reduction of sources[0 … source_count - 1][i]; out may be one of the sources. */
typedef void (*cz__reduce_kernel)(int source_count, const void *const *sources, int64_t count,
                                  void *out);

#define CZ__DTYPE_END (CZ_U8 + 1)
#define CZ__REDUCTION_END (CZ_OR + 1)
#define CZ__MAX_SOURCES 4096

typedef struct cz__update_entry {
    const char *rule; /* NULL ends the list */
    cz_dtype dtype;   /* of parameter, gradient and state */
    cz_update_kernel kernel;
} cz__update_entry;

typedef struct cz__cpu_kernels {
    const char *level;                                          /* "v1", "v3", "v4" */
    cz__reduce_kernel reduce[CZ__DTYPE_END][CZ__REDUCTION_END]; /* NULL: there is none */
    const cz__update_entry *updates;
} cz__cpu_kernels;

typedef enum cz__cpu_level {
    CZ__CPU_V1,
    CZ__CPU_V3,
    CZ__CPU_V4,
    CZ__CPU_LEVEL_COUNT
} cz__cpu_level;

/* The kernels of a level; NULL where the build or the processor lacks it. Any thread. */
const cz__cpu_kernels *cz__cpu_kernels_at(cz__cpu_level level);

/* The kernels in use, chosen at the first call. Any thread. */
const cz__cpu_kernels *cz__cpu_kernels_chosen(void);

/* The kernel of an update rule in a table, NULL if there is none. */
cz_update_kernel cz__cpu_find_update(const cz__cpu_kernels *kernels, const char *rule,
                                     cz_dtype param, cz_dtype grad, cz_dtype state);

#endif
