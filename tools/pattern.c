/* SPDX-License-Identifier: MIT */
/* Names with stars. */
#include "pattern.h"

#include <inttypes.h>
#include <string.h>

#include "base/memory.h"

/* Cut in place, where stars and backslashes were. */
static cz_status cut(pattern *p, const char *text, size_t length)
{
    char *to = p->memory;
    p->between[0] = to;
    for (size_t i = 0; i < length; i++) {
        if (text[i] == '*') {
            if (p->stars == PATTERN_STARS)
                return cz_fail(CZ_ERR_ARGUMENT, "'%.*s' has more than %d stars", (int)length, text,
                               PATTERN_STARS);
            *to++ = '\0';
            p->between[++p->stars] = to;
            continue;
        }
        if (text[i] == '\\' && ++i == length)
            return cz_fail(CZ_ERR_ARGUMENT, "'%.*s' ends with '\\', which is for what follows it",
                           (int)length, text);
        *to++ = text[i];
    }
    *to = '\0';
    return CZ_OK;
}

cz_status pattern_parse(pattern *p, const char *text, size_t length)
{
    *p = (pattern){.memory = cz__calloc(1, length + 1)};
    if (!p->memory)
        return cz_fail(CZ_ERR_MEMORY, "no memory for a name");
    return length > 0 ? cut(p, text, length) : cz_fail(CZ_ERR_ARGUMENT, "a name is empty");
}

void pattern_clear(pattern *p)
{
    cz__free(p->memory);
    *p = (pattern){0};
}

/* The first place of each text is as good as any later one, but for the last, which ends the
 * name. */
bool pattern_fits(const pattern *p, const char *name, pattern_match *match)
{
    const size_t length = strlen(name), first = strlen(p->between[0]);
    const size_t last = p->stars > 0 ? strlen(p->between[p->stars]) : 0;
    const char *at = name + first, *const end = name + length - last;
    if (p->stars == 0)
        return strcmp(name, p->between[0]) == 0;
    if (length < first + last || memcmp(name, p->between[0], first) != 0 ||
        memcmp(end, p->between[p->stars], last) != 0)
        return false;
    for (int k = 0; k < p->stars; k++) {
        const char *next = k + 1 < p->stars ? strstr(at, p->between[k + 1]) : end;
        const size_t between = k + 1 < p->stars ? strlen(p->between[k + 1]) : 0;
        if (!next || next + between > end)
            return false;
        match->text[k] = at;
        match->length[k] = (size_t)(next - at);
        at = next + between;
    }
    return true;
}

bool pattern_make(const pattern *p, const pattern_match *match, int matched, int64_t number,
                  cz__text *name)
{
    bool fine = cz__text_print(name, "%s", p->between[0]);
    for (int k = 0; k < p->stars && fine; k++) {
        fine = k < matched ? cz__text_append(name, match->text[k], match->length[k])
                           : cz__text_print(name, "%" PRId64, number);
        fine = fine && cz__text_print(name, "%s", p->between[k + 1]);
    }
    return fine;
}
