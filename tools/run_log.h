/* SPDX-License-Identifier: MIT */
/* The log of a run: a folder's metrics.jsonl, a JSON object in each line. Of those that have
 * "step": "loss", and "fingerprint" with "chain" (cz_zero_fingerprint(), cz_fingerprint_chain()),
 * each 32 hexadecimal digits. */
#ifndef CZ_TOOL_RUN_LOG_H
#define CZ_TOOL_RUN_LOG_H

#include <stdbool.h>
#include <stdint.h>

#include "czero/base.h"

#define RUN_LOG_FILE "metrics.jsonl"

typedef struct run_step {
    int64_t step;
    double loss; /* NaN: it was no finite number */
    bool has_loss, has_print;
    uint64_t print[2], chain[2];
} run_step;

typedef struct run_log {
    char *path;     /* owned: of the file */
    bool in_folder; /* it was given by its folder */
    /* Owned, in order: where lines go back to an earlier step, the later ones count. */
    run_step *steps;
    int64_t count, capacity;
    int64_t prints; /* of them that have a fingerprint */
    int64_t backs;  /* times that lines went back */
    bool cut;       /* the last line is incomplete, and left out */
} run_log;

/* A file .jsonl, or a folder with metrics.jsonl and without checkpoints of its own? CZ_ERR_IO,
 * CZ_ERR_MEMORY. */
cz_status run_log_is(const char *path, bool *is);

/* The file, or that of the folder. CZ_ERR_FORMAT: a line is no JSON object, or has something else
 * under these keys: which. CZ_ERR_UNSUPPORTED: more than such a file may cost; CZ_ERR_IO;
 * CZ_ERR_MEMORY. To be cleared in any case. */
cz_status run_log_read(run_log *log, const char *path);
void run_log_clear(run_log *log);

/* NULL: it has no such step. */
const run_step *run_log_find(const run_log *log, int64_t step);

/* 32 hexadecimal digits and a NUL. */
void run_log_digits(const uint64_t number[2], char out[33]);
bool run_log_scan(const char *digits, uint64_t number[2]);

/* On stderr: what of it was left out. */
void run_log_notes(const run_log *log);

#endif
