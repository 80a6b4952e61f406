/* SPDX-License-Identifier: MIT */
/* All that a rank trains with. */
#ifndef TRAINER_H
#define TRAINER_H

#include "hooks.h"
#include "report.h"
#include "train.h"

typedef struct trainer {
    const text *text; /* borrowed */
    options options;  /* of this run */
    cz_group *world;
    int rank, size;
    gpt *gpt;
    cz_model *model;
    cz_parts *parts; /* NULL without --parts */
    cz_ddp *ddp;     /* brings gradients together, bucket by bucket */
    cz_zero *zero;   /* NULL with --unsharded */
    cz_optim *optim; /* NULL otherwise */
    hook_state hook;
    cz_loss_scale loss_scale; /* with --loss-scale */
    cz_averager *averager;    /* NULL, or ranks go their own ways between averagings */
    cz_post_local_optim *post;
    cz_sampler *sampler;
    int64_t local_batch; /* the most sequences of one pass on this rank; with parts on all ranks */
    double *part_losses; /* of this rank's parts; NULL without, as the next one */
    double *part_counts; /* and sequences in each */
    int64_t elements;
    cz_shared *shared; /* NULL, or what `params` lie in */
    /* One block each, in which the model computes; and what is trained, in the type of the options:
     * where that is f32 the same. */
    float *params, *grads;
    void *values, *gradients;
    int *tokens, *targets; /* local_batch sequences */
    int64_t *samples;
    step_times times;
    traffic traffic;
    report *report;                /* rank 0 only */
    cz_checkpoint *checkpoint;     /* NULL without --save */
    int step;                      /* that comes next, from 0: above it, steps were made before */
    int saved;                     /* steps when it was saved last */
    proof proof;                   /* none with options.proof 0 */
    bool stop;                     /* some rank was asked to stop; all know it */
    cz_trace_totals update_before; /* of the run before it was resumed */
} trainer;

/* Everything but the report. Collective; to be cleared also after a failure. */
cz_status trainer_create(trainer *t);
void trainer_clear(trainer *t);

/* Values of 16 bits into what the model computes with, and a gradient out of it. */
cz_status trainer_take_values(trainer *t);
cz_status trainer_give_gradient(const trainer *t, int parameter);

cz_status trainer_set_rates(trainer *t, double lr);
/* What is validated in the place of what trains, and back. Collective. */
cz_status trainer_evaluate(trainer *t, bool evaluated);
cz_status trainer_step(trainer *t);

/* With --parts: each counts for as many sequences as the sampler gives it in a batch, the first
 * ones having the remainder. Collective. */
cz_status trainer_weigh_parts(trainer *t);

/* generate.c: text that goes on from a piece of the held-out part; rank 0 alone. */
cz_status generate(trainer *t);

#endif
