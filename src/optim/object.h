/* SPDX-License-Identifier: MIT */
/* The optimizer's insides, for the files of this folder. */
#ifndef CZ_OPTIM_OBJECT_H
#define CZ_OPTIM_OBJECT_H

#include "optim/optim.h"
#include "rule/rule.h"

/* What a rule prepared for one step count. */
typedef struct cz__prepared {
    int64_t step; /* 0: nothing yet */
    unsigned flags;
    double coefficients[CZ_RULE_COEFFICIENTS];
} cz__prepared;

/* Parameters that joined late or lack a gradient now and then are a few steps behind the others. */
#define CZ__PREPARED 4

/* A value beside the rule's own. */
typedef struct cz__extra {
    char name[64];
    double value;
} cz__extra;

typedef struct cz__optim_group {
    int64_t *params; /* owned */
    int64_t param_count;
    double *hypers;    /* owned, in the order of the rule's specs */
    cz__extra *extras; /* owned; hyper-parameters that were added */
    int extra_count;
    unsigned slots_used;    /* bit e: these values use element slot e */
    unsigned slots_wanted;  /* bit e: memory is needed for it; differs while values change only */
    cz__prepared *prepared; /* owned, CZ__PREPARED of them; step s is at s % CZ__PREPARED */
} cz__optim_group;

/* A span that this rank owns. Its slots are in a row of cz_optim.slots. */
typedef struct cz__local_span {
    int64_t param, begin, end; /* begin == end: an empty parameter, here for its step count */
    int64_t group;
    int64_t next;   /* the next span of this parameter here, -1: none */
    char *value;    /* address of element `begin` */
    unsigned slots; /* bit e: there is memory for element slot e */
} cz__local_span;

/* Memory for state, had at one time. */
typedef struct cz__arena {
    struct cz__arena *next;
    void *memory; /* owned, on the optimizer's device */
} cz__arena;

struct cz_optim {
    cz_model *model; /* borrowed; frozen if `froze` */
    const cz_rule *rule;
    const cz_device *device;
    cz_dtype dtype;
    size_t element_size;
    cz_update_kernel kernel;
    int slot_count; /* element slots of the rule */
    bool froze;

    int64_t group_count;
    cz__optim_group *groups; /* owned */

    int64_t param_count; /* of the model; the next four are owned and have one entry for each */
    int64_t *group_of;   /* -1: none */
    int64_t *steps;
    unsigned *used;      /* bit e: a step has used element slot e */
    int64_t *first_span; /* -1: nothing of it is here */

    const cz_shard_map *map; /* NULL until cz__optim_set_map() */
    int64_t span_count;
    cz__local_span *spans; /* owned */
    void **slots;          /* owned, span_count rows of slot_count; memory in the arenas */
    cz__arena *arenas;     /* owned */
    size_t state_bytes;

    cz_shard_map *own_map; /* owned; the unsharded optimizer's: rank 0 has everything */
    void **gradients;      /* owned; scratch of cz_optim_step(), one per parameter */
    double *values;        /* owned; scratch of cz_optim_set_hyper(), one per hyper-parameter */
};

/* groups.c */
cz_status cz__optim_groups_create(cz_optim *optim, const cz_hyper *hypers,
                                  const cz_optim_options *options);
void cz__optim_groups_destroy(cz_optim *optim);

/* hyper.c: which element slots these values use; bit e is the e-th of the rule's slots that are no
 * scalars. */
unsigned cz__optim_slots_used(const cz_optim *optim, const double *hypers);

/* state.c: memory for what trainable spans here need and do not have. Nothing was changed on failure. */
cz_status cz__optim_reserve(cz_optim *optim);
void cz__optim_state_destroy(cz_optim *optim);

#endif
