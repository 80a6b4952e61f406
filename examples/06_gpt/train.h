/* SPDX-License-Identifier: MIT */
/* Training: what every rank does. */
#ifndef TRAIN_H
#define TRAIN_H

#include "options.h"
#include "text.h"

typedef struct task { /* shared by all ranks, read only */
    options options;
    text text;
} task;

/* A cz_rank_main; `context` is a task. */
cz_status train(cz_group *world, void *context);

#endif
