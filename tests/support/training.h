/* SPDX-License-Identifier: MIT */
/* Trainings whose outcome is known to the last bit: gradients of which every sum over ranks is
 * exact, and the unsharded optimizer on their mean as the reference. */
#ifndef CZ_TEST_TRAINING_H
#define CZ_TEST_TRAINING_H

#include "czero/shared.h"
#include "czero/zero.h"

/* What is being trained: the reference (`optim`) or one rank's part (`zero`); the other is NULL. */
typedef struct cz_test_subject {
    cz_model *model;
    cz_optim *optim;
    cz_zero *zero;
} cz_test_subject;

typedef struct cz_test_training {
    int64_t param_count;
    const int64_t *sizes; /* element i of each parameter starts as i / 64 */
    /* NULL: tensors of one dimension; otherwise a parameter with rows is a matrix. Of muon, which
     * takes no others, all are matrices. */
    const int64_t *rows;
    int order;      /* not 0: parameter k * order (mod param_count) is at place k of the model */
    cz_dtype dtype; /* CZ_F32 or CZ_F64 */
    bool flat;      /* one block of memory */
    /* The ranks' values are in memory that they share; not with an `edit` that writes values. */
    bool shared;
    const cz_rule *rule;
    const cz_hyper *hypers;
    const cz_param_group *groups;
    int64_t group_count;
    /* In stages the last group comes before this step, and those that begin later are made with all
     * groups and with what is frozen by then. 0: all groups are there from the start. */
    int last_group_at;
    cz_partition partition;
    cz_gradients gradients;
    const int *owners;
    int steps;
    /* Has this rank a gradient for this parameter in this step? NULL: always. The reference has one
     * where any rank has. */
    bool (*has_gradient)(int rank, int step, int64_t param);
    /* The argument of a step for the rule, on every rank. NULL: none. */
    const void *(*argument)(int step);
    /* Before the first step (-1: before the optimizer is made) and every other: freeze, set
     * values. */
    cz_status (*edit)(const cz_test_subject *subject, int step);
    /* Then, before each step: change hyper-parameters. */
    cz_status (*tune)(const cz_test_subject *subject, int step);
} cz_test_training;

/* Set a hyper-parameter on whichever optimizer it is. */
cz_status cz_test_set_hyper(const cz_test_subject *subject, int64_t param_group, const char *name,
                            double value);

/* Train on `world_size` ranks. CZ_OK if on every rank all parameters, the state of its spans and
 * its step counts have the bits of the reference, and a step left alone what it must leave alone;
 * otherwise `why` says what is wrong. `inspect`, if not NULL, is called on every rank at the
 * end. */
cz_status cz_test_train(const cz_test_training *training, int world_size,
                        cz_status (*inspect)(const cz_test_subject *subject, cz_group *group),
                        char why[256]);

/* A rule (of f32) with all the partial sums there can be: its scalars "sum0" … keep their bits.
 * Divides its rate by the step count, and takes the argument of a step, a double, as a factor. */
const cz_rule *cz_test_probe_rule(void);

/* A model of these parameters "p0", "p1", … with values as above and gradient memory. */
typedef struct cz_test_memory {
    cz_model *model;
    void **values; /* per parameter */
    void **grads;
    void *block;       /* owned: all of it */
    cz_shared *shared; /* owned; NULL: values are in `block`, too */
} cz_test_memory;

/* With a group: values are in memory that its ranks share, rank 0 has written them. */
cz_status cz_test_memory_create(cz_test_memory *memory, const cz_test_training *training);
cz_status cz_test_memory_share(cz_test_memory *memory, const cz_test_training *training,
                               cz_group *group);
void cz_test_memory_destroy(cz_test_memory *memory);

/* The gradient of most tests: (rank + 1) (step + 1) ((i mod 7) + 1) / 64. */
double cz_test_gradient(int rank, int step, int64_t i);

/* Element i of memory of that type. */
void cz_test_store(void *memory, cz_dtype dtype, int64_t i, double value);
double cz_test_load(const void *memory, cz_dtype dtype, int64_t i);

#endif
