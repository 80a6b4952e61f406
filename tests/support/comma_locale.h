/* SPDX-License-Identifier: MIT */
/* A locale in which one half is written 0,5: an installed one, or one that is made here. */
#ifndef CZ_TEST_COMMA_LOCALE_H
#define CZ_TEST_COMMA_LOCALE_H

#include <locale.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* From here on in this program; back with setlocale(LC_ALL, "C"). False: there is none. */
static inline bool set_comma_locale(void)
{
    static const char *const names[] = {"de_DE.UTF-8", "de_DE", "fr_FR.UTF-8", "ru_RU.UTF-8"};
    const char *folder = CZ_TEST_BINARY_DIR "/locales";
    bool found = false;
    for (size_t i = 0; i < sizeof names / sizeof *names && !found; i++)
        found = setlocale(LC_ALL, names[i]) != NULL;
    if (!found && system("mkdir -p '" CZ_TEST_BINARY_DIR "/locales' && cd '" CZ_TEST_BINARY_DIR
                         "/locales' && { [ -d de_DE.UTF-8 ] || { localedef -i de_DE -f UTF-8 "
                         "./own.$$ && mv own.$$ de_DE.UTF-8; }; } >/dev/null 2>&1") == 0) {
        setenv("LOCPATH", folder, 1);
        found = setlocale(LC_ALL, "de_DE.UTF-8") != NULL;
    }
    return found && strcmp(localeconv()->decimal_point, ",") == 0;
}

#endif
