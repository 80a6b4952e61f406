/* SPDX-License-Identifier: MIT */
/* What the files of the example share. */
#ifndef MNIST_H
#define MNIST_H

#include "czero/czero.h"

enum { PIXELS = 784, CLASSES = 10 };

typedef struct images {
    int64_t count;
    unsigned char *pixels; /* owned, count * PIXELS */
    unsigned char *labels; /* owned, count */
} images;

typedef struct task {
    images training, test;
    int steps;
} task;

/* Fashion-MNIST from where Debian's dataset-fashion-mnist puts it. */
cz_status task_read(task *t);
void task_free(task *t);

/* What one rank does: train, and print the accuracy; a cz_rank_main whose context is a task. */
cz_status train(cz_group *group, void *context);

#endif
