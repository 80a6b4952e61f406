/* SPDX-License-Identifier: MIT */
/* The floating-point environment that the library computes in: rounding to nearest, numbers below
 * the smallest normal one as they are, no trap, whatever the program's thread has. What the program
 * has, its exception flags too, is as it was when a call returns.
 *
 * Where computing begins, not around each kernel: in public calls that touch a floating number (a
 * comparison with NaN may trap, too), in the driver of operations, at the beginning of our threads.
 * Nests. */
#ifndef CZ_BASE_FLOAT_MODE_H
#define CZ_BASE_FLOAT_MODE_H

#include <stdint.h>

#if defined(__x86_64__) && defined(__SSE2__)

/* Sums and products are made by SSE, which has a word for modes and flags. The C library asks the
 * x87 unit how it rounds when it reads and writes numbers as text, and uses it here and there. */
typedef struct cz__float_mode {
    uint32_t sse;
    uint16_t x87_control, x87_status;
} cz__float_mode;

#define CZ__SSE_MODE 0x1f80u /* all traps masked, to nearest, no flush to zero, no flag */
#define CZ__SSE_FLAGS 0x3fu
#define CZ__X87_MODE 0x037fu /* all traps masked, to nearest, 64 bits */
#define CZ__X87_FLAGS 0x3fu

static inline cz__float_mode cz__float_enter(void)
{
    const uint16_t ours = CZ__X87_MODE;
    cz__float_mode before;
    __asm__ volatile("stmxcsr %0" : "=m"(before.sse) : : "memory");
    __asm__ volatile("fnstcw %0" : "=m"(before.x87_control) : : "memory");
    __asm__ volatile("fnstsw %0" : "=m"(before.x87_status) : : "memory");
    if ((before.sse & ~CZ__SSE_FLAGS) != CZ__SSE_MODE) {
        const uint32_t sse = CZ__SSE_MODE;
        __asm__ volatile("ldmxcsr %0" : : "m"(sse) : "memory");
    }
    if (before.x87_control != ours)
        __asm__ volatile("fnclex\n\tfldcw %0" : : "m"(ours) : "memory");
    return before;
}

/* A flag that is set while its trap is on would trap at the next instruction of the x87 unit: flags
 * go first. */
static inline void cz__float_leave(const cz__float_mode *before)
{
    uint32_t sse;
    uint16_t control, status;
    __asm__ volatile("stmxcsr %0" : "=m"(sse) : : "memory");
    __asm__ volatile("fnstcw %0" : "=m"(control) : : "memory");
    __asm__ volatile("fnstsw %0" : "=m"(status) : : "memory");
    if (sse != before->sse)
        __asm__ volatile("ldmxcsr %0" : : "m"(before->sse) : "memory");
    if (control == before->x87_control && ((status ^ before->x87_status) & CZ__X87_FLAGS) == 0)
        return;
    struct {
        uint32_t control, status, others[5];
    } unit;
    __asm__ volatile("fnstenv %0" : "=m"(unit) : : "memory");
    unit.control = (unit.control & ~0xffffu) | before->x87_control;
    unit.status = (unit.status & ~CZ__X87_FLAGS) | (before->x87_status & CZ__X87_FLAGS);
    __asm__ volatile("fldenv %0" : : "m"(unit) : "memory");
}

#elif defined(__aarch64__)

typedef struct cz__float_mode {
    uint64_t control, flags;
} cz__float_mode;

static inline cz__float_mode cz__float_enter(void)
{
    cz__float_mode before;
    __asm__ volatile("mrs %0, fpcr" : "=r"(before.control) : : "memory");
    __asm__ volatile("mrs %0, fpsr" : "=r"(before.flags) : : "memory");
    if (before.control != 0)
        __asm__ volatile("msr fpcr, %0" : : "r"((uint64_t)0) : "memory");
    return before;
}

static inline void cz__float_leave(const cz__float_mode *before)
{
    uint64_t control, flags;
    __asm__ volatile("mrs %0, fpcr" : "=r"(control) : : "memory");
    __asm__ volatile("mrs %0, fpsr" : "=r"(flags) : : "memory");
    if (flags != before->flags)
        __asm__ volatile("msr fpsr, %0" : : "r"(before->flags) : "memory");
    if (control != before->control)
        __asm__ volatile("msr fpcr, %0" : : "r"(before->control) : "memory");
}

#else

#include <fenv.h>

typedef struct cz__float_mode {
    fenv_t environment;
} cz__float_mode;

static inline cz__float_mode cz__float_enter(void)
{
    cz__float_mode before;
    fegetenv(&before.environment);
    fesetenv(FE_DFL_ENV);
    return before;
}

static inline void cz__float_leave(const cz__float_mode *before)
{
    fesetenv(&before->environment);
}

#endif

/* From here to the end of the block; the cleanup runs on every way out. */
#define CZ__OWN_FLOATS                                                                             \
    __attribute__((cleanup(cz__float_leave), unused)) const cz__float_mode callers_floats =        \
        cz__float_enter()

#endif
