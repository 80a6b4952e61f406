/* SPDX-License-Identifier: MIT */
/* Sentences and numbers of the command line. */
#include "tool.h"

#include <errno.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int tool_trouble(const char *command, const char *format, ...)
{
    va_list args;
    fflush(stdout);
    fprintf(stderr, "%s: ", command);
    va_start(args, format);
    vfprintf(stderr, format, args);
    va_end(args);
    fputc('\n', stderr);
    return TOOL_TROUBLE;
}

int tool_failed(const char *command)
{
    return tool_trouble(command, "%s", cz_last_error());
}

int64_t tool_number(const struct argp_state *state, const char *option, const char *text,
                    int64_t least, int64_t most)
{
    char *end;
    errno = 0;
    const long long number = strtoll(text, &end, 10);
    if (errno || end == text || *end || number < least || number > most)
        argp_error(state, "--%s is '%s', wanted a whole number from %" PRId64 " to %" PRId64,
                   option, text, least, most);
    return number;
}

uint64_t tool_bytes(const struct argp_state *state, const char *option, const char *text)
{
    static const char units[] = "KMGT";
    char *end;
    errno = 0;
    const double number = strtod(text, &end);
    const char *unit = *end ? strchr(units, *end) : NULL;
    double bytes = number;
    for (const char *u = units; unit && u <= unit; u++)
        bytes *= 1024;
    if (errno || end == text || (*end && (!unit || end[1])) || !(bytes >= 1) || bytes > 0x1p62)
        argp_error(state, "--%s is '%s', wanted bytes, such as 500M or 5G", option, text);
    return (uint64_t)bytes;
}

int tool_end(const char *command, int result)
{
    if (fflush(stdout) == 0 && !ferror(stdout))
        return result;
    return tool_trouble(command, "the output cannot be written: %s", strerror(errno));
}
