/* SPDX-License-Identifier: MIT */
/* Trainings in parts with a known outcome: a plain loop that adds the gradients of all parts in a
 * tree and updates with an unsharded optimizer. For ranks that are threads of a test, and for
 * processes of a job: it knows the public functions only. */
#ifndef CZ_PART_TRIALS_H
#define CZ_PART_TRIALS_H

#include "czero/zero.h"
#include "support/training.h"

enum { PART_PARAMS = 5, PART_STEPS = 3, MOST_TRIED_PARTS = 40 };
extern const int64_t small_params[PART_PARAMS], large_params[PART_PARAMS];

typedef enum stepping {
    ALONE,       /* cz_zero_step() reduces */
    ALONE_WHOLE, /* so, with whole parameters */
    OVERLAP_NONE,
    OVERLAP_INTERLEAVED,
    OVERLAP_STEP,
    WHOLE,       /* every rank gets the mean, and has an optimizer of its own */
    IN_BACKWARD, /* so, and steps inside the pass */
    WAYS
} stepping;

typedef enum weights_kind { ALIKE, UNEVEN, SOME_ZERO, ALL_ZERO, WEIGHINGS } weights_kind;

typedef struct part_trial {
    stepping way;
    int parts;
    const int64_t *sizes;
    cz_dtype dtype;
    weights_kind weighing;
    bool some_absent; /* parameters have no gradient in some parts */
    double max_norm;
    const cz_rule *rule;
    size_t bucket_bytes;
} part_trial;

/* In parameters of these sizes, f32, with AdamW: all else as if it were not there. */
part_trial plain_part_trial(stepping way, int parts);

/* values[step][p]: after that step, and the fingerprint of values and state. */
typedef struct part_values {
    void *values[PART_STEPS][PART_PARAMS];
    uint64_t prints[PART_STEPS][2];
} part_values;

cz_status part_trial_work_out(const part_trial *trial, part_values *values);
void part_values_free(part_values *values);

/* On one of the group's ranks. CZ_OK: after each step the parameters had those bits, and so had its
 * state. */
cz_status part_trial_run(cz_group *group, const part_trial *trial, const part_values *expected);

/* Steps [begin, end) of it, from the checkpoint in `folder` if `begin` is not 0; saved there at the
 * end. With every way but IN_BACKWARD. */
cz_status part_trial_resume(cz_group *group, const part_trial *trial, const part_values *expected,
                            int begin, int end, const char *folder);

#endif
