/* SPDX-License-Identifier: MIT */
/* Trainings over passes of a data-parallel model under a sharded optimizer, in stretches between
 * which the number of ranks changes, of which all values and all state are known to the last bit
 * after each step. */
#ifndef CZ_TEST_PASSES_H
#define CZ_TEST_PASSES_H

#include "czero/ddp.h"
#include "czero/sched.h"
#include "czero/zero.h"
#include "support/training.h"

enum { CZ_TEST_PASSES_PARAMS = 16 };

/* So many steps on so many ranks. Before the next one all state goes into a dictionary, and from
 * there to new optimizers over new models. */
typedef struct cz_test_stretch {
    int world_size; /* 0: the end */
    int steps;
    cz_partition partition;
    cz_overlap overlap;
} cz_test_stretch;

typedef struct cz_test_passes {
    int64_t param_count; /* CZ_TEST_PASSES_PARAMS at most */
    const int64_t *sizes;
    cz_dtype dtype;
    bool flat;
    const cz_rule *rule;
    const cz_hyper *hypers;
    const cz_param_group *groups;
    int64_t group_count;
    cz_ddp_options buckets;
    bool views, late; /* parameters_as_bucket_view, overlap_gather */
    /* The ranks' values are in memory that they share; before a rank marks a parameter it still has
     * the values of the step before. Not with an `edit` that writes values. */
    bool shared;
    double max_norm;
    const char *hook; /* NULL: none */
    int threads;      /* that mark, each its part of the parameters; 0: the rank's own */
    bool sub_group;   /* trained by every other rank of a larger group, the last one first */
    /* How many passes a step has, of which the last one synchronises. NULL: one. */
    int (*micro_batches)(int step);
    /* Has this rank a gradient for this parameter in this micro-batch? NULL: always. */
    bool (*uses)(int rank, int step, int micro, int64_t param);
    /* How often it is marked then, by parts of the gradient; NULL: once. For cz_ddp_set_uses(). */
    int (*marks)(int64_t param);
    /* Before each step, also of those that earlier stretches made: freeze, set values, add groups.
     * Before an optimizer is made with step -1. */
    cz_status (*edit)(const cz_test_subject *subject, int step);
    /* Between steps, of this stretch only: what changes nothing. */
    cz_status (*visit)(const cz_test_subject *subject, cz_group *group, int step);
    cz_status (*schedule)(cz_sched **out,
                          cz_optim *optim); /* stepped after each step; NULL: none */
} cz_test_passes;

/* CZ_OK if on every rank, after each step, all parameters have the bits of one unsharded optimizer
 * on the mean gradient, and at the end of each stretch the dictionary of all state is its, too. */
cz_status cz_test_passes_run(const cz_test_passes *passes, const cz_test_stretch *stretches,
                             char why[256]);

/* All of one kind: `world_size` ranks, so many steps. */
cz_status cz_test_passes_on(const cz_test_passes *passes, cz_test_stretch stretch, char why[256]);

#endif
