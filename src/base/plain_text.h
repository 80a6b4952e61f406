/* SPDX-License-Identifier: MIT */
/* Text that is the same everywhere, and that a terminal does not obey. */
#ifndef CZ_BASE_PLAIN_TEXT_H
#define CZ_BASE_PLAIN_TEXT_H

#include <locale.h>
#include <stdbool.h>
#include <stddef.h>

#include "base/float_mode.h"

/* ---- names ---- */

bool cz__ends_with(const char *text, const char *end);

/* ---- numbers ---- */
/* Numbers as text, the same whatever locale, rounding direction and traps the program has: "0.5" is
 * one half, and a double written with 17 digits is read back as it was. Whoever prints or reads a
 * number with a fraction, by a function of the C library or of jansson, does it in such a block. */

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

/* ---- texts for people ---- */
/* Texts that may come from anywhere, for people: UTF-8, and nothing that a terminal obeys. */

/* Is that UTF-8: nothing longer than need be, no surrogates, nothing above U+10FFFF? */
bool cz__utf8(const char *text);

/* The character at `at`, which is no NUL: its bytes, 1 if it is not UTF-8. *plain: is it one that a
 * terminal shows and does not obey? Not so are control characters, and those that turn or hide what
 * stands beside them. */
size_t cz__character(const char *at, bool *plain);

/* A name for a sentence: what could be a command to a terminal is "?", a long one ends in "…". */
typedef struct cz__shown {
    char text[104];
} cz__shown;
cz__shown cz__show(const char *name);
cz__shown cz__show_part(const char *name, size_t count); /* `count` bytes at most */

/* A sentence, in place, before anybody sees it, whatever was put into it: what could be a command
 * to a terminal becomes "?", but for ends of lines and tabs, and a character that was cut in the
 * middle goes. */
void cz__make_plain(char *sentence);

#endif
