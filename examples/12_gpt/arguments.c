/* SPDX-License-Identifier: MIT */
/* Numbers on the command line. */
#include "arguments.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>

int64_t argument_whole(const struct argp_state *state, const char *name, const char *text,
                       int64_t least, int64_t most)
{
    char *end;
    errno = 0;
    const long long value = strtoll(text, &end, 10);
    if (errno || end == text || *end || value < least || value > most)
        argp_error(state, "--%s is '%s', allowed is a whole number from %lld to %lld", name, text,
                   (long long)least, (long long)most);
    return value;
}

/* Ranges of what goes to the library are the library's; here only: it is a number. */
double argument_number(const struct argp_state *state, const char *name, const char *text,
                       double least)
{
    char *end;
    const double value = strtod(text, &end);
    if (end == text || *end || !isfinite(value) || value < least)
        argp_error(state, "--%s is '%s', allowed is a number from %g", name, text, least);
    return value;
}
