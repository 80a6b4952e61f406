/* SPDX-License-Identifier: MIT */
/* What the run shows and leaves behind; rank 0 only. */
#ifndef REPORT_H
#define REPORT_H

#include "history.h"
#include "options.h"
#include "proof.h"
#include "text.h"

typedef struct report report;

/* Makes the run folder (and the folders above it), empties it of an earlier run's files and opens
 * metrics.jsonl in it. */
cz_status report_create(report **out, const options *o, int ranks, int64_t parameters,
                        const text *t);
void report_destroy(report **r); /* accepts NULL and *NULL */

/* Time between pause and the end of it does not count as training. */
void report_pause(report *r, bool pause);

/* One training step is over: its loss (mean over all ranks), learning rate, and NULL or its
 * fingerprint. */
void report_step(report *r, int step, double loss, double lr, const proof_link *link);
void report_validation(report *r, int step, double loss);

/* The run goes on from a checkpoint after that step; `past` is taken over. */
void report_resume(report *r, history *past, const proof *proved, int step, int ranks);

/* What a checkpoint keeps: curves that are still the report's, and what is given. */
void report_look_back(report *r, const step_times *times, const cz_trace_totals *update,
                      const traffic *sent, history *out);
void report_say(report *r, const char *line); /* to the terminal */

/* After training: tables to the terminal, summary.json and loss.svg to the folder. */
typedef struct memory_use {
    int ranks;
    const int64_t *state_bytes; /* optimizer state on each rank */
    int64_t state_bytes_unsharded;
    int64_t parameter_bytes, gradient_bytes; /* on every rank */
    int64_t parts_bytes;                     /* of partial sums over parts, on rank 0: the most */
} memory_use;
cz_status report_finish(report *r, const memory_use *memory, const step_times *spent,
                        const cz_trace_totals *update, const traffic *sent, double val_loss);

/* The training curve, which the report then has no more. */
void report_take_curve(report *r, curve *out);

/* FOLDER/summary.json; the JSON is consumed, NULL: there was no memory for it. */
cz_status report_write_summary(const char *folder, json_t *summary);

/* Generated text, to the terminal and to sample.txt. */
cz_status report_sample(report *r, const char *sample);

/* The end: where the files are; a sentence on stderr if a loss was not finite. */
void report_end(const report *r);

/* tables.c: bytes on a rank; where it was resumed, and whether the curve went on there. */
void show_memory(const memory_use *memory);
void show_resumed(const history *h);
json_t *resumed_json(const curve *resumed);

/* plot.c: both curves over the steps as an SVG that is readable on light and dark pages, with marks
 * where the run was resumed. */
cz_status plot_write(const char *path, const history *h);

/* Training curves of several runs, each in a colour of its own, with their names. */
cz_status plot_compare(const char *path, const curve *const *curves, const char *const *names,
                       int count);

/* For other writers into a run folder: it is made, and files of an earlier run are removed. A
 * number is null if it is not finite. */
cz_status report_open_folder(const char *path);
json_t *report_number(double value);

#endif
