/* SPDX-License-Identifier: MIT */
/* The inside of a plan. */
#ifndef CZ_PLAN_OBJECT_H
#define CZ_PLAN_OBJECT_H

#include <stdio.h>

#include "czero/plan.h"
#include "base/leaves.h"
#include "io/text.h"
#include "rule/rule.h"
#include "zero/deal.h"

enum { CZ__SHAPE_KINDS = 3 };

typedef struct cz__shape_sums {
    int64_t count, elements;
    uint64_t bytes, name_bytes;
} cz__shape_sums;

struct cz_shapes {
    int64_t count, capacity;
    int64_t *elements; /* owned, as all that follows, one for each tensor */
    uint8_t *dtypes, *kinds;
    uint8_t *dimensions;
    int64_t *sizes; /* those of one tensor after the other */
    int64_t size_count, size_capacity;
    /* Parameters in the fixed layout, counted without buffers; NULL: the last one first. */
    int64_t *layout;
    cz__shape_sums sums[CZ__SHAPE_KINDS];
    cz_dtype dtype;  /* of the first parameter */
    cz__shown other; /* the first one of another type; "": none */
};

/* What each rank has; arrays of world_size + 1 numbers. */
typedef struct cz__plan_ranks {
    int64_t *columns; /* owned, as all: a row for each slot, of elements that have it */
    int64_t *saved; /* elements of parameters that it writes; the same ones if nothing is frozen */
    int64_t *slotted; /* and with how many there are slots */
    int64_t *spans;   /* pieces of parameters in its part of a checkpoint */
    int64_t *reduced; /* elements that it adds up */
    int64_t *buffers; /* bytes of buffers that it writes */
} cz__plan_ranks;

/* Of a group. */
typedef struct cz__plan_rule {
    const cz_rule *rule;
    int64_t granule;
} cz__plan_rule;

struct cz_plan {
    cz_plan_options options; /* complete: no defaults are left */
    cz__plan_rule *rules;    /* owned; of each of its groups */
    cz__shape_sums shapes[CZ__SHAPE_KINDS];
    int64_t param_count; /* with frozen ones */
    cz_dtype dtype;      /* of the parameters, if they have one */
    size_t element_size; /* of it */
    size_t name_bytes;
    int common_slots; /* those of masters, and of averages: all parameters have them */
    int slots;        /* element slots that are in use, at most: a rule's, and those */
    int64_t elements[CZ__RULE_SLOTS + 3]; /* that have slot k, on all ranks together */
    size_t slot_size;      /* bytes of an element of one: of 16-bit values it is in f32 */
    int bucket_count;      /* 0: gradients travel in the step */
    size_t longest;        /* bytes of the largest bucket */
    size_t hook_staging;   /* of all buckets' all-reduces in a hook */
    size_t value_staging;  /* of all buckets' values where these take no turns */
    uint64_t bucket_bytes; /* of all buckets */
    size_t map_bytes;      /* of the optimizer's map */
    cz__plan_ranks ranks;
};

/* What a plan is made from, while it is: all of the parameters, param_count each. */
typedef struct cz__plan_draft {
    cz_plan *plan;
    const cz_shapes *shapes;
    int64_t *counts; /* owned, as all that follows */
    uint8_t *dtypes, *parts, *trains;
    uint8_t *slots;       /* of the parameter's rule */
    int64_t *group_of;    /* 0: it is in none; 1: in the first */
    int64_t *group_sizes; /* of the groups, and of what is in none */
    int64_t listed;       /* entries of `members` */
    int64_t *layout, *members;
    int64_t *granules;
    double *costs;
    int64_t *begins, *params; /* of buckets */
    cz__bucket_lists buckets;
    int64_t *spans; /* world_size + 1: of no interest */
} cz__plan_draft;

/* cuts.c: put the parameters into buckets as a data-parallel model does. CZ_ERR_MEMORY. */
cz_status cz__plan_buckets(cz__plan_draft *draft);

/* Who owns what: fill in all of `ranks`. CZ_ERR_MEMORY. */
cz_status cz__plan_cuts(cz__plan_draft *draft);
uint64_t cz__plan_sent(const cz_plan *plan, int rank);

/* Numbers of bytes that are added up over ranks: UINT64_MAX for more. */
static inline uint64_t cz__plan_plus(uint64_t a, uint64_t b)
{
    return a > UINT64_MAX - b ? UINT64_MAX : a + b;
}
/* Of a batch, without option parts one for each rank. */
static inline cz__leaves cz__plan_leaves(const cz_plan *plan)
{
    const cz_plan_options *o = &plan->options;
    return (cz__leaves){o->parts > 0 ? o->parts : o->world_size, o->world_size};
}
static inline uint64_t cz__plan_times(uint64_t a, uint64_t b)
{
    return b > 0 && a > UINT64_MAX / b ? UINT64_MAX : a * b;
}

/* memory.c */
void cz__plan_memory(const cz_plan *plan, int rank, cz_plan_memory *memory);
void cz__plan_alone(const cz_plan *plan, cz_plan_memory *memory);

/* read.c: append the tensors of a text. CZ_ERR_FORMAT: what is wrong in which line; CZ_ERR_IO,
 * CZ_ERR_MEMORY. */
cz_status cz__shapes_read_text(cz_shapes *shapes, FILE *file, const char *path);

/* As their names say; what is not there is NULL, 0 or -1. */
int cz__plan_bucket_count(const cz_plan *plan);
int64_t cz__shapes_count(const cz_shapes *shapes, cz_shape_kind kind);
int64_t cz__shapes_elements(const cz_shapes *shapes, cz_shape_kind kind);

#endif
