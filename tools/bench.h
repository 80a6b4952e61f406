/* SPDX-License-Identifier: MIT */
/* What czero bench measures. */
#ifndef CZ_TOOL_BENCH_H
#define CZ_TOOL_BENCH_H

#include <jansson.h>

#include "czero/base.h"

enum { BENCH_ROUNDS = 1000, BENCH_SIZES = 8 };

typedef struct bench_options {
    int ranks, rounds, sizes;
    int64_t bytes[BENCH_SIZES]; /* of a buffer */
    int64_t elements;           /* of the parameter that rules update */
    bool collectives, rules, json;
} bench_options;

/* The median of rounds, in seconds; `values` are in order afterwards. */
double bench_median(double *values, int count);

/* How far apart the middle half of them is, as a part of the median, of values in order. */
double bench_spread(const double *values, int count);

/* Measure, print a table or fill an array. */
cz_status bench_collectives(const bench_options *o, json_t *list);
cz_status bench_rules(const bench_options *o, json_t *list);

#endif
