/* SPDX-License-Identifier: MIT */
/* Sentences and numbers of the command line. */
#include "tool.h"

#include <errno.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "io/text.h"

void tool_say(FILE *to, const char *text)
{
    size_t length;
    for (const char *at = text; *at; at += length) {
        bool plain;
        length = cz__character(at, &plain);
        if (plain || *at == '\n')
            fwrite(at, 1, length, to);
        else
            fputc('?', to);
    }
}

int tool_trouble(const char *command, const char *format, ...)
{
    va_list args;
    char *sentence = NULL;
    fflush(stdout);
    va_start(args, format);
    const int count = vasprintf(&sentence, format, args);
    va_end(args);
    fprintf(stderr, "%s: ", command);
    tool_say(stderr, count < 0 ? "out of memory" : sentence);
    fputc('\n', stderr);
    if (count >= 0)
        free(sentence);
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

void tool_take_path(const struct argp_state *state, const char **first, const char **second,
                    const char *path, const char *wanted)
{
    if (*second)
        argp_error(state, "%s", wanted);
    *(*first ? second : first) = path;
}

uint64_t tool_bytes(const struct argp_state *state, const char *option, const char *text)
{
    static const char units[] = "KMGT";
    char *end;
    errno = 0;
    const double number = strtod(text, &end);
    const char *unit = *end ? strchr(units, *end) : NULL;
    double bytes = number;
    if (unit)
        for (const char *u = units; u <= unit; u++)
            bytes *= 1024;
    if (errno || end == text || (*end && (!unit || end[1])) || !(bytes >= 1) || bytes > 0x1p62)
        argp_error(state, "--%s is '%s', wanted bytes, such as 500M or 5G", option, text);
    return (uint64_t)bytes;
}

const cz_rule *tool_rule(const struct argp_state *state, const char *text)
{
    char list[300] = "";
    const cz_rule *rule = cz_rule_find(text);
    for (int k = 0; cz_rule_name(k); k++) {
        const size_t used = strlen(list);
        snprintf(list + used, sizeof list - used, "%s%s", k ? ", " : "", cz_rule_name(k));
    }
    if (!rule)
        argp_error(state, "--rule is '%s', wanted one of: %s", text, list);
    return rule;
}

int tool_end(const char *command, int result)
{
    if (fflush(stdout) == 0 && !ferror(stdout))
        return result;
    return tool_trouble(command, "the output cannot be written: %s", strerror(errno));
}
