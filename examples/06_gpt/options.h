/* SPDX-License-Identifier: MIT */
/* What can be chosen on the command line. */
#ifndef OPTIONS_H
#define OPTIONS_H

#include <stdbool.h>
#include <stdint.h>

#include "czero/czero.h"
#include "gpt.h"

typedef struct options {
    gpt_config model; /* vocab comes from the text */
    int ranks;
    int batch; /* sequences per step over all ranks */
    int steps;
    double lr, min_lr;
    int warmup;
    double weight_decay, beta1, beta2;
    uint64_t seed;
    cz_partition partition;
    bool unsharded; /* all-reduce and a full optimizer on every rank, to compare with */
    int val_every, val_windows, final_windows;
    const char *text; /* NULL: the King James text */
    int64_t text_bytes;
    const char *out; /* the run folder */
    int sample;
    double temperature;
    bool quiet;
} options;

/* Fills in what the command line says; ends the program on --help and on bad arguments. */
void options_parse(options *o, int argc, char **argv);

#endif
