/* SPDX-License-Identifier: MIT */
/* The optimizer's insides, for the files of this folder. */
#ifndef CZ_OPTIM_OBJECT_H
#define CZ_OPTIM_OBJECT_H

#include "base/kernel_threads.h"
#include "optim/optim.h"
#include "rule/rule.h"
#include "tensor/model.h"

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

/* A span that this rank owns. Its slots are a row of cz__optim_shard.slots. */
typedef struct cz__local_span {
    int64_t param, begin, end; /* begin == end: an empty parameter, here for its step count */
    int64_t group;
    int64_t next; /* the next span of this parameter here, -1: none */
    const cz_device *device;
    unsigned slots; /* bit e: there is memory for element slot e */
} cz__local_span;

/* Memory for state, had at one time. */
typedef struct cz__arena {
    struct cz__arena *next;
    const cz_device *device;
    size_t stride; /* bytes for each of several parts */
    void *memory;  /* owned, on that device */
} cz__arena;

/* The spans of one rank in one map, and their state. */
typedef struct cz__optim_shard {
    const cz_shard_map *map; /* borrowed; NULL: none yet */
    int64_t *first_span;     /* owned, one per parameter of the model; -1: nothing of it is here */
    int64_t span_count;
    cz__local_span *spans; /* owned */
    void **slots;          /* owned, span_count rows of slot_count; memory in the arenas */
    cz__arena *arenas;     /* owned */
    size_t state_bytes;
    /* For rules with partial sums, one row per span (a parameter's is its first span's): the sums
     * of a step, and what the first pass prepared for the second. */
    cz_sum *sums;           /* owned */
    cz__prepared *prepared; /* owned */
    cz__arena *scratch;     /* owned; one on each device, for the largest whole tensor there */
    bool in_parts;          /* spans may be updated by several threads */
    int parts;              /* so many have scratch memory */
    bool inherits; /* until it is adopted: slots are in the arenas of the present shard, too */
} cz__optim_shard;

struct cz_optim {
    cz_model *model; /* borrowed; frozen if `froze` */
    const cz_rule *rule;
    /* The first parameter's; others are of the same type, and what one of a type does it does for
     * all: kernels, copies. Memory is had on each. */
    const cz_device *device;
    cz_dtype dtype;
    size_t element_size;
    cz_update_kernel kernel;    /* NULL: the rule updates whole tensors */
    cz_sums_kernel sums_kernel; /* NULL: the rule has no partial sums */
    int slot_count;             /* element slots of the rule */
    int scalar_count;           /* its scalar slots, "step" left out */
    bool froze;
    bool stepped; /* at least once */
    bool loaded;  /* from a dictionary or a checkpoint */

    int64_t group_count;
    int64_t group_room;      /* of `groups` */
    cz__optim_group *groups; /* owned */
    int64_t printed;         /* so many groups are in `print`: see cz__optim_groups_print() */
    uint64_t print;
    double *defaults; /* owned; what a group has that says nothing else */
    int64_t first;    /* the parameter that decided type and device */

    int64_t param_count; /* of the model; the next six are owned and have one entry for each */
    int64_t *group_of;   /* -1: none */
    int64_t *steps;
    unsigned *used;     /* bit e: element slot e is present: a step has used it */
    unsigned *expected; /* bit e: there must be memory for element slot e; while loading only */
    bool *scalars_used; /* the scalars are present */
    double *scalars;    /* scalar_count for each */

    cz__optim_shard shard; /* what is here; without a map until cz__optim_set_map() */

    /* Threads that share the work of a step: NULL where there is too little of it, or one core. */
    int thread_count;                   /* at most */
    uint64_t part_bytes;                /* less than this, read and written, is not worth one */
    cz__kernel_threads *kernel_threads; /* owned, as the next two */
    cz_sum *part_sums;           /* a row for each part: of the norm, or of the rule's sums */
    cz__prepared *part_prepared; /* CZ__PART_PARAMS of them */

    cz_step_options step; /* of the one that is being made; what it points to is borrowed */

    cz__model_tables tables;     /* the model's, as long as it is frozen */
    cz__overlap_memory overlaps; /* of what steps have looked at */

    /* Owned; of all ranks: the rule's sum_count for each parameter of the model. */
    double *sum_values;
    int64_t skip_count;

    cz_shard_map *own_map; /* owned; the unsharded optimizer's: rank 0 has everything */
    void **gradients;      /* owned; scratch of cz_optim_step(), one per parameter */
    double *values;        /* owned; scratch of cz_optim_set_hyper(), one per hyper-parameter */
};

/* ---- shard.c ---- */

/* A cache line: where slots begin, and where the work of threads is cut. */
#define CZ__LINE ((size_t)64)
/* How many parts there are, one for each thread. And is the work of a step done by all threads? */
int cz__optim_parts(const cz_optim *optim);
bool cz__optim_works_in_parts(const cz_optim *optim);
#define CZ__PART_PARAMS 64
/* List the spans of `rank` in `map` and have memory for them, and threads, if that is worth it. If
 * every span that is here now is among them, they keep their memory; otherwise all of it is new. To
 * be adopted, or to be cleared (after an error too). */
cz_status cz__optim_shard_create(cz_optim *optim, cz__optim_shard *shard, const cz_shard_map *map,
                                 int rank);
void cz__optim_shard_clear(const cz_optim *optim, cz__optim_shard *shard);
/* This is what is here from now on. Cannot fail. */
void cz__optim_shard_adopt(cz_optim *optim, cz__optim_shard *shard);
/* Scratch memory of a part for a whole tensor on that device; NULL: the rule wants none. */
void *cz__optim_scratch(const cz_optim *optim, const cz_device *device, int part);
/* As cz__optim_slot_address(). */
void *cz__shard_slot_address(const cz_optim *optim, const cz__optim_shard *shard, int64_t param,
                             int slot, int64_t element);
/* Memory for what spans here need and do not have: slots that trainable ones use, that a step
 * has used, that are expected. Nothing was changed on failure. */
cz_status cz__optim_reserve(const cz_optim *optim, cz__optim_shard *shard);

/* ---- state.c ---- */

/* These element slots of a parameter, and its scalars, come into use if they are not: they get
 * what they start with. There is memory for them. */
void cz__optim_start(cz_optim *optim, int64_t param, unsigned slots);
/* Has the rule a slot "step"? */
bool cz__optim_counts_steps(const cz_optim *optim);
/* What a slot of a parameter starts with. */
double cz__optim_first_value(const cz_optim *optim, cz_slot_spec slot, int64_t param);

/* ---- groups.c ---- */

cz_status cz__optim_groups_create(cz_optim *optim, const cz_hyper *hypers,
                                  const cz_optim_options *options);
void cz__optim_groups_destroy(cz_optim *optim);
/* One more, not checked against the others. It is counted, even if it failed, unless there was no
 * memory. */
cz_status cz__optim_append_group(cz_optim *optim, const cz_param_group *group);
/* Some value of some group is another one. */
void cz__optim_groups_changed(cz_optim *optim);
/* Which element slots these values use; bit e is the e-th of the rule's slots that are no
 * scalars. */
unsigned cz__optim_slots_used(const cz_optim *optim, const double *hypers);
/* Set an added value, or append it where there is room. CZ_ERR_ARGUMENT: a bad name or value. */
cz_status cz__extra_set(cz__extra *extras, int *count, const char *name, double value);

/* ---- update.c ---- */

/* Of a parameter, before and after its elements are updated: what the rule prepared, for the second
 * pass too; the step count. And a piece of a span, for elements [first, first + count) of it. */
void cz__optim_begin_param(cz_optim *optim, int64_t param, cz__prepared *prepared);
void cz__optim_begin_sums(cz_optim *optim, int64_t param);
void cz__optim_end_sums(cz_optim *optim, int64_t param);
typedef struct cz__piece {
    int64_t place; /* of the span */
    int64_t first, count;
    const char *gradient; /* of the parameter's element 0 */
    int part;
} cz__piece;
void cz__optim_update_piece(const cz_optim *optim, const cz__piece *piece,
                            const cz__prepared *prepared);
void cz__optim_add_sums_of_piece(const cz_optim *optim, const cz__piece *piece,
                                 const cz__prepared *prepared, cz_sum *sums);
uint64_t cz__optim_element_traffic(const cz_optim *optim, int64_t param_group);

/* ---- parts.c ---- */

void cz__norm_add_in_parts(const cz_optim *optim, void *const *gradients, cz_sum *sum);
void cz__norm_scale_in_parts(const cz_optim *optim, void *const *gradients, double factor);

#endif
