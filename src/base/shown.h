/* SPDX-License-Identifier: MIT */
/* Texts that may come from anywhere, for people: UTF-8, and nothing that a terminal obeys. */
#ifndef CZ_BASE_SHOWN_H
#define CZ_BASE_SHOWN_H

#include <stdbool.h>
#include <stddef.h>

/* Is that UTF-8: nothing longer than need be, no surrogates, nothing above U+10FFFF? */
bool cz__utf8(const char *text);

/* The character at `at`, which is no NUL: its bytes, 1 if it is not UTF-8. *plain: is it one that a terminal shows and
 * does not obey? Not so are control characters, and those that turn or hide what stands beside them. */
size_t cz__character(const char *at, bool *plain);

/* A name for a sentence: what could be a command to a terminal is "?", a long one ends in "…". */
typedef struct cz__shown {
    char text[104];
} cz__shown;
cz__shown cz__show(const char *name);
cz__shown cz__show_part(const char *name, size_t count); /* `count` bytes at most */

/* A sentence, in place, before anybody sees it, whatever was put into it: what could be a command to a terminal becomes
 * "?", but for ends of lines and tabs, and a character that was cut in the middle goes. */
void cz__make_plain(char *sentence);

#endif
