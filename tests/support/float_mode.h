/* SPDX-License-Identifier: MIT */
/* Floating-point environments that a program may have, and whether a call leaves them as they
 * were. */
#ifndef CZ_TEST_FLOAT_MODE_H
#define CZ_TEST_FLOAT_MODE_H

#include <fenv.h>
#include <stdint.h>
#include <string.h>

#if defined(__x86_64__)
#include <xmmintrin.h>
#endif

typedef enum test_mode {
    MODE_DEFAULT,
    MODE_UP,
    MODE_DOWN,
    MODE_ZERO,
    MODE_FLUSH, /* and denormals are zeros */
    MODE_TRAPS,
    MODE_NARROW, /* x87 registers of 24 bits */
    MODE_COUNT
} test_mode;

static inline const char *mode_name(test_mode mode)
{
    static const char *const names[] = {"default",       "upward", "downward",        "toward zero",
                                        "flush to zero", "traps",  "narrow registers"};
    return names[mode];
}

static inline void set_mode(test_mode mode)
{
    static const int directions[] = {FE_TONEAREST, FE_UPWARD, FE_DOWNWARD, FE_TOWARDZERO};
    fesetenv(FE_DFL_ENV);
    if (mode <= MODE_ZERO)
        fesetround(directions[mode]);
#if defined(__x86_64__)
    const uint16_t narrow = 0x007f;
    if (mode == MODE_FLUSH)
        _mm_setcsr(_mm_getcsr() | 0x8040);
    if (mode == MODE_NARROW)
        __asm__ volatile("fldcw %0" : : "m"(narrow));
#endif
#if defined(__GLIBC__)
    if (mode == MODE_TRAPS)
        feenableexcept(FE_ALL_EXCEPT);
#endif
}

/* Modes and flags, as far as they can be seen. */
typedef struct mode_seen {
    uint64_t words[3];
} mode_seen;

static inline mode_seen see_mode(void)
{
    mode_seen seen = {{0}};
#if defined(__x86_64__)
    uint16_t control, status;
    __asm__ volatile("fnstcw %0" : "=m"(control));
    __asm__ volatile("fnstsw %0" : "=m"(status));
    seen.words[0] = _mm_getcsr();
    seen.words[1] = control;
    seen.words[2] = status & 0x3f;
#else
    seen.words[0] = (uint64_t)fegetround();
    seen.words[1] = (uint64_t)fetestexcept(FE_ALL_EXCEPT);
#endif
    return seen;
}

/* `call` in that environment, which it has to leave as it was. */
#define IN_MODE(mode, call)                                                                        \
    do {                                                                                           \
        set_mode(mode);                                                                            \
        const mode_seen in_mode_before = see_mode();                                               \
        const cz_status in_mode_status = (call);                                                   \
        const mode_seen in_mode_after = see_mode();                                                \
        fesetenv(FE_DFL_ENV);                                                                      \
        CZ_TRY(in_mode_status);                                                                    \
        if (memcmp(&in_mode_before, &in_mode_after, sizeof in_mode_before) != 0)                   \
            return cz_fail(CZ_ERR_INTERNAL, "%s leaves another environment (%s)", #call,           \
                           mode_name(mode));                                                       \
    } while (0)

#endif
