/* SPDX-License-Identifier: MIT */
/* Which instruction-set level of the kernels runs: the best that the processor has, capped by
 * CZERO_CPU. */
#include "base/log.h"
#include "base/process.h"
#include "device/cpu/cpu.h"

#include <stdatomic.h>
#include <string.h>

#ifdef CZ_LEVELS_X86
#include <cpuid.h>
#endif

static const char *const names[CZ__CPU_LEVEL_COUNT] = {"v1", "v3", "v4"};

extern const cz__cpu_kernels cz__kernels_v1;

#ifdef CZ_LEVELS_X86
extern const cz__cpu_kernels cz__kernels_v3, cz__kernels_v4;

/* x86-64-v3 as the psABI lists it; clang 14 does not know the last three by name. */
static bool has_v3(void)
{
    unsigned a, b, c, d, extended = 0;
    if (!__builtin_cpu_supports("avx2") || !__builtin_cpu_supports("fma") ||
        !__builtin_cpu_supports("bmi") || !__builtin_cpu_supports("bmi2"))
        return false;
    if (!__get_cpuid(1, &a, &b, &c, &d) || !__get_cpuid(0x80000001, &a, &b, &extended, &d))
        return false;
    return (c & bit_MOVBE) && (c & bit_F16C) && (extended & bit_LZCNT);
}

static bool has_v4(void)
{
    return has_v3() && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
           __builtin_cpu_supports("avx512cd") && __builtin_cpu_supports("avx512dq") &&
           __builtin_cpu_supports("avx512vl");
}
#endif

const cz__cpu_kernels *cz__cpu_kernels_at(cz__cpu_level level)
{
    switch (level) {
    case CZ__CPU_V1:
        return &cz__kernels_v1;
#ifdef CZ_LEVELS_X86
    case CZ__CPU_V3:
        return has_v3() ? &cz__kernels_v3 : NULL;
    case CZ__CPU_V4:
        return has_v4() ? &cz__kernels_v4 : NULL;
#endif
    default:
        return NULL;
    }
}

static const cz__cpu_kernels *best_up_to(int level)
{
    while (level > CZ__CPU_V1 && !cz__cpu_kernels_at((cz__cpu_level)level))
        level--;
    return cz__cpu_kernels_at((cz__cpu_level)level);
}

/* The place of a level's name, -1 if it has none. */
static int level_named(const char *name)
{
    for (int level = 0; level < CZ__CPU_LEVEL_COUNT; level++)
        if (strcmp(names[level], name) == 0)
            return level;
    return -1;
}

static void warn(const char *wish, const char *level)
{
    if (level_named(wish) < 0)
        cz__log(CZ_LOG_WARN, "CZERO_CPU is \"%s\", allowed are v1, v3 and v4: using %s", wish,
                level);
    else if (strcmp(wish, level) != 0)
        cz__log(CZ_LOG_WARN, "CZERO_CPU is %s, this processor or build has %s at best: using that",
                wish, level);
}

static const cz__cpu_kernels *_Atomic chosen;

/* Threads that come here together find the same table; the one that sets it says the warning. No
 * lock: a log sink may itself ask for the level. Apart, as what follows is asked for each tile. */
static __attribute__((noinline)) const cz__cpu_kernels *choose(void)
{
    const char *wish = cz__environment_text("CZERO_CPU");
    const int cap = wish ? level_named(wish) : -1;
    const cz__cpu_kernels *nobody = NULL;
    const cz__cpu_kernels *kernels = best_up_to(cap < 0 ? CZ__CPU_LEVEL_COUNT - 1 : cap);
    if (atomic_compare_exchange_strong(&chosen, &nobody, kernels) && wish && *wish)
        warn(wish, kernels->level);
    return kernels;
}

const cz__cpu_kernels *cz__cpu_kernels_chosen(void)
{
    const cz__cpu_kernels *kernels = atomic_load_explicit(&chosen, memory_order_acquire);
    return kernels ? kernels : choose();
}

cz_update_kernel cz__cpu_find_update(const cz__cpu_kernels *kernels, const char *rule,
                                     cz_dtype param, cz_dtype grad, cz_dtype state)
{
    for (const cz__update_entry *entry = kernels->updates; entry->rule; entry++)
        if (entry->dtype == param && entry->dtype == grad && entry->dtype == state &&
            strcmp(entry->rule, rule) == 0)
            return entry->kernel;
    return NULL;
}
