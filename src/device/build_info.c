/* SPDX-License-Identifier: MIT */
/* One line on how the library was built and what it uses here. */
#include "czero/device.h"
#include "device/cpu/cpu.h"

#include <pthread.h>

#ifdef __clang__
#define COMPILER "clang " __clang_version__
#else
#define COMPILER "gcc " __VERSION__
#endif

#ifndef CZ_BUILD_TYPE
#define CZ_BUILD_TYPE "unknown"
#endif

#ifdef CZ_LEVELS_X86
#define LEVELS "v1 v3 v4"
#else
#define LEVELS "v1"
#endif

static pthread_once_t once = PTHREAD_ONCE_INIT;
static char line[256];

static void make_line(void)
{
    snprintf(line, sizeof line,
             "czero %s, %s, build type %s, kernels %s (%s in use), matrix products by %s, backends "
             "self, threads",
             cz_version(), COMPILER, CZ_BUILD_TYPE, LEVELS, cz__cpu_kernels_chosen()->level,
             cz__cpu_matmul_by());
}

const char *cz_build_info(void)
{
    pthread_once(&once, make_line);
    return line;
}
