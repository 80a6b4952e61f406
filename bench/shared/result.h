/* SPDX-License-Identifier: MIT */
/* What benchmarks say: a line for people, and, where CZ_BENCH_RESULTS names a file, a line of JSON
 * at its end. scripts/bench.sh makes build/bench/results.json of all of them. */
#ifndef CZ_BENCH_RESULT_H
#define CZ_BENCH_RESULT_H

#include <stdbool.h>
#include <stddef.h>

enum { BENCH_ROUNDS = 99 };

/* Seconds of both sides in alternating rounds, and how far cores were from each other just before
 * each (one way, in seconds; 0: not known). `limit` may be all zero: nothing to compare with; so
 * may `ours`: a limit on its own. */
typedef struct bench_samples {
    int rounds;
    double ours[BENCH_ROUNDS], limit[BENCH_ROUNDS];
    double ours_bounce[BENCH_ROUNDS], limit_bounce[BENCH_ROUNDS];
} bench_samples;

typedef struct bench_row {
    const char *name;    /* of the work; with size and ranks it is what two files are compared by */
    size_t bytes;        /* of the work's buffer */
    int ranks;           /* or threads */
    const char *against; /* what the limit is */
    double counted;      /* bytes that GB/s count; 0: `bytes` */
    double wanted;       /* the ratio that is aimed at; 0: none is */
} bench_row;

/* Medians over rounds; the ratio is the median of limit / ours of rounds in which cores were as
 * near for both (of all rounds where that leaves less than a third); its spread what lies between
 * its quartiles. */
typedef struct bench_summary {
    double ours, limit, ratio, spread, bounce;
    int kept;
} bench_summary;
bench_summary bench_summarise(const bench_samples *samples);

void bench_heading(const char *text);
void bench_say(const bench_row *row, const bench_samples *samples);
void bench_record(const bench_row *row, const bench_samples *samples); /* only the line of JSON */

/* ---- command lines ---- */
typedef struct bench_option {
    const char *name; /* "--ranks" */
    const char *help;
    bool *flag;  /* set, if the option takes nothing */
    int *number; /* else one of these */
    const char **text;
} bench_option;
/* `options` end with a NULL name. Ends the program where something else was given, or with
 * --help. */
void bench_arguments(int argc, char **argv, const char *what, const bench_option *options);

#endif
