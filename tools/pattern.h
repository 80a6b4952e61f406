/* SPDX-License-Identifier: MIT */
/* Names with stars: "h.*.weight" fits a name that has any text in the place of each '*', as little
 * as there can be, and makes a name of such texts. */
#ifndef CZ_TOOL_PATTERN_H
#define CZ_TOOL_PATTERN_H

#include "czero/base.h"
#include "io/text.h"

enum { PATTERN_STARS = 16 }; /* at most */

/* Zeroed is empty. */
typedef struct pattern {
    char *memory;                           /* owned: the texts between the stars */
    const char *between[PATTERN_STARS + 1]; /* stars + 1 of them, in `memory` */
    int stars;
} pattern;

/* What stood in the place of the stars; borrowed from the name. */
typedef struct pattern_match {
    const char *text[PATTERN_STARS];
    size_t length[PATTERN_STARS];
} pattern_match;

/* The first `length` bytes of a text. "\*" is a star, and "\" before any other byte is that byte.
 * CZ_ERR_ARGUMENT: empty, too many stars, nothing behind the last "\"; CZ_ERR_MEMORY. */
cz_status pattern_parse(pattern *p, const char *text, size_t length);
void pattern_clear(pattern *p);

bool pattern_fits(const pattern *p, const char *name, pattern_match *match);

/* Append the name that it makes of a match with as many texts as it has stars, or of more: the
 * first ones; `number`: of one that has a star more, which becomes that. False: no memory. */
bool pattern_make(const pattern *p, const pattern_match *match, int matched, int64_t number,
                  cz__text *name);

#endif
