/* SPDX-License-Identifier: MIT */
/* A training in stages, each on its own number of ranks, which goes on from what the stage before
 * has left. After each stage parameters and consolidated state have the bits of one unsharded
 * optimizer that never stopped. */
#ifndef CZ_TEST_STAGES_H
#define CZ_TEST_STAGES_H

#include "support/training.h"

enum { MOST_STAGES = 6 };

typedef struct stage {
    int world, steps;
    cz_partition partition;
    size_t segment_bytes; /* of the group; 0: the default */
    double max_norm;      /* gradients are clipped to it; 0: they are not */
    /* Not 0: parameter k * shuffle (mod their number, to which it is prime) is at place k of the
     * model, and shards are made anew before the second step and the third. */
    int shuffle;
} stage;

struct stages;

/* How a stage goes on from the one before, parameters included, and what it leaves. */
typedef struct handover {
    cz_status (*load)(const struct stages *s, cz_group *group, cz_zero *zero);
    cz_status (*save)(const struct stages *s, cz_group *group, cz_zero *zero);
    void *context;
} handover;

typedef struct stages {
    /* Its partition, gradients and steps do not count. Later stages do `edit` again, which is the
     * program's; what `tune` changed is in what is handed over. */
    const cz_test_training *training;
    const stage *list;
    int count;
    cz_status (*inspect)(const cz_test_subject *subject, cz_group *group); /* at the end */
    const handover *by;
    /* What the unsharded optimizer has after each stage. */
    cz_state_dict *dicts[MOST_STAGES];
    cz_test_memory memories[MOST_STAGES];
    int now;        /* the stage, */
    int begin, end; /* and its steps */
} stages;

/* `by` NULL: the dictionary in memory. */
void check_stages(const handover *by, const cz_test_training *training, const stage *list,
                  int count, cz_status (*inspect)(const cz_test_subject *subject, cz_group *group));

#endif
