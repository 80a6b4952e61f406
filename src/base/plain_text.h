/* SPDX-License-Identifier: MIT */
/* Numbers as text, the same whatever locale, rounding direction and traps the program has: "0.5" is one half, and a
 * double written with 17 digits is read back as it was. Whoever prints or reads a number with a fraction, by a function
 * of the C library or of jansson, does it in such a block. */
#ifndef CZ_BASE_PLAIN_TEXT_H
#define CZ_BASE_PLAIN_TEXT_H

#include "base/float_mode.h"

#include <locale.h>

#if defined(__APPLE__)
#include <xlocale.h>
#endif

typedef struct cz__plain_text {
    cz__float_mode floats;
    locale_t locale;
} cz__plain_text;

/* On this thread; nests. */
cz__plain_text cz__plain_text_enter(void);
void cz__plain_text_leave(const cz__plain_text *before);

/* From here to the end of the block. */
#define CZ__PLAIN_TEXT                                                                             \
    __attribute__((cleanup(cz__plain_text_leave), unused)) const cz__plain_text callers_text =     \
        cz__plain_text_enter()

/* The shortest of three forms that is read back as the same number. */
#define CZ__REAL_TEXT_BYTES 32
void cz__real_text(char text[CZ__REAL_TEXT_BYTES], double value);

/* As strtod(). */
double cz__read_real(const char *text, char **end);

#endif
