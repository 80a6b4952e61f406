/* SPDX-License-Identifier: MIT */
/* Numbers on the command line; other texts end the program. */
#ifndef ARGUMENTS_H
#define ARGUMENTS_H

#include <argp.h>
#include <stdint.h>

int64_t argument_whole(const struct argp_state *state, const char *name, const char *text,
                       int64_t least, int64_t most);
double argument_number(const struct argp_state *state, const char *name, const char *text,
                       double least);

#endif
