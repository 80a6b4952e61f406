/* SPDX-License-Identifier: MIT */
/* What can be chosen on the command line. */
#ifndef OPTIONS_H
#define OPTIONS_H

#include <stdbool.h>
#include <stdint.h>

#include "czero/czero.h"
#include "gpt.h"

enum { HOOKS_MOST = 16, HOOK_NAME_BYTES = 48 };

typedef struct options {
    gpt_config model; /* vocab comes from the text */
    int ranks;
    int threads; /* of each rank; 0: as many as it has cores */
    int batch;   /* sequences per step over all ranks */
    /* Of the batch, whose gradients are added up in one order on any number of ranks; 0: none. */
    int parts;
    int steps;
    const cz_rule *rule;
    double lr, min_lr;
    int warmup;
    double weight_decay, beta1, beta2;
    uint64_t seed;
    cz_partition partition;
    bool share;        /* parameters are held once for all ranks */
    cz_dtype dtype;    /* of values and gradients */
    bool no_master;    /* 16-bit values without f32 copies, rounded by chance; and… */
    cz_dtype state;    /* …the type of moments */
    double ema;        /* the decay of moving averages of values, which are validated; 0: none */
    double loss_scale; /* gradients are multiplied by it on their way to a step; 0: by nothing */
    bool loss_scale_adapts; /* it grows, and backs off where a gradient is not finite */
    bool unsharded;         /* all-reduce and a full optimizer on every rank, to compare with */
    const char *hooks[HOOKS_MOST]; /* communication hooks to train with, one after the other */
    int hook_count;
    const char *hook; /* that of the present run; NULL: none was named */
    bool brief;       /* it is one of several: no tables of its own */
    int compress_after, powersgd_rank, average_every;
    bool powersgd_loops;
    int val_every, val_windows, final_windows;
    const char *text; /* NULL: the King James text */
    int64_t text_bytes;
    const char *out;  /* the run folder */
    const char *save; /* the checkpoints' folder; NULL: none are made */
    int save_every, keep;
    int stop_at; /* steps after which it stops, saved; 0: it does not */
    bool resume, fall_back;
    int proof;        /* steps from one fingerprint to the next; 0: none are taken */
    bool check_parts; /* run each part twice first, and compare */
    int sample;
    double temperature;
    bool quiet;
} options;

/* Fills in what the command line says; ends the program on --help and on bad arguments. */
void options_parse(options *o, int argc, char **argv);

#endif
