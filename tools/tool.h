/* SPDX-License-Identifier: MIT */
/* What the subcommands of czero have in common: how they are called, how they end, what they
 * say. */
#ifndef CZ_TOOL_H
#define CZ_TOOL_H

#include <argp.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#include "czero/rule.h"

/* How czero ends. */
enum {
    TOOL_FINE = 0,
    TOOL_NO = 1,     /* the answer is no: damaged, different */
    TOOL_TROUBLE = 2 /* a wrong command line, or it could not be done */
};

/* A subcommand gets its own name as argv[0]: "czero inspect". */
typedef struct tool_command {
    const char *name, *summary;
    int (*run)(int argc, char **argv);
} tool_command;

int tool_bench(int argc, char **argv);
int tool_convert(int argc, char **argv);
int tool_diff(int argc, char **argv);
int tool_doctor(int argc, char **argv);
int tool_inspect(int argc, char **argv);
int tool_plan(int argc, char **argv);
int tool_verify(int argc, char **argv);

/* Text without what a terminal would obey. */
void tool_say(FILE *to, const char *text);

/* Say "czero inspect: …" on stderr; TOOL_TROUBLE. And the library's last sentence. */
int tool_trouble(const char *command, const char *format, ...) CZ_PRINTF(2, 3);
int tool_failed(const char *command);

/* A number of an option, from `least` to `most`; otherwise the command ends with a sentence. */
int64_t tool_number(const struct argp_state *state, const char *option, const char *text,
                    int64_t least, int64_t most);
/* The first path, or the second; a third ends the command with `wanted`. */
void tool_take_path(const struct argp_state *state, const char **first, const char **second,
                    const char *path, const char *wanted);
/* Bytes: a number that may have K, M, G or T behind it (of 1024). */
uint64_t tool_bytes(const struct argp_state *state, const char *option, const char *text);

/* An update rule by the name that --rule was given. */
const cz_rule *tool_rule(const struct argp_state *state, const char *text);

/* All output has arrived where it goes: `result`, or TOOL_TROUBLE. */
int tool_end(const char *command, int result);

#endif
