/* SPDX-License-Identifier: MIT */
/* Numbers as text, in the C locale and our own floating-point environment. */
#include "base/plain_text.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

static pthread_once_t once = PTHREAD_ONCE_INIT;
static locale_t
    plain; /* never freed: some thread may be using it. Constant data in the usual C libraries. */

static void make_plain(void)
{
    plain = newlocale(LC_ALL_MASK, "C", (locale_t)0);
}

/* Without memory for a locale the thread keeps the one that it has. */
cz__plain_text cz__plain_text_enter(void)
{
    cz__plain_text before = {.floats = cz__float_enter()};
    pthread_once(&once, make_plain);
    before.locale = uselocale(plain);
    return before;
}

void cz__plain_text_leave(const cz__plain_text *before)
{
    uselocale(before->locale);
    cz__float_leave(&before->floats);
}

void cz__real_text(char text[CZ__REAL_TEXT_BYTES], double value)
{
    static const int digits[] = {6, 15, 17};
    CZ__PLAIN_TEXT;
    for (size_t k = 0; k < sizeof digits / sizeof *digits; k++) {
        snprintf(text, CZ__REAL_TEXT_BYTES, "%.*g", digits[k], value);
        if (strtod(text, NULL) == value)
            return;
    }
}

double cz__read_real(const char *text, char **end)
{
    CZ__PLAIN_TEXT;
    return strtod(text, end);
}
