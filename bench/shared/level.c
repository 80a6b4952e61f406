/* SPDX-License-Identifier: MIT */
/* Which of the loops this processor can run. */
#include "loops.h"

extern const bench_loops bench_loops_v1;
#ifdef BENCH_LEVELS_X86
extern const bench_loops bench_loops_v3, bench_loops_v4;
#endif

const bench_loops *bench_loops_get(void)
{
#ifdef BENCH_LEVELS_X86
    __builtin_cpu_init();
    if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512vl") &&
        __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512bw"))
        return &bench_loops_v4;
    if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") &&
        __builtin_cpu_supports("bmi2"))
        return &bench_loops_v3;
#endif
    return &bench_loops_v1;
}
