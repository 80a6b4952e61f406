/* SPDX-License-Identifier: MIT */
/* Training: what every rank does. */
#ifndef TRAIN_H
#define TRAIN_H

#include "options.h"
#include "report.h"
#include "text.h"

typedef struct task { /* shared by all ranks, read only */
    options options;
    text text;
} task;

/* A cz_rank_main; `context` is a task. */
cz_status train(cz_group *world, void *context);

/* What came of one run, for a comparison; rank 0 only. */
typedef struct outcome {
    const char *hook;
    bool unsharded;
    curve train; /* owned points */
    double val_loss;
    traffic sent;
    double seconds; /* of a mean step */
} outcome;

/* One run, with options.hook or none. Collective. `out` may be NULL; it is filled in on rank 0. */
cz_status train_once(cz_group *world, const text *corpus, const options *o, outcome *out);

#endif
