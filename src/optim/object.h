/* SPDX-License-Identifier: MIT */
/* The optimizer's insides, for the files of this folder. */
#ifndef CZ_OPTIM_OBJECT_H
#define CZ_OPTIM_OBJECT_H

#include "base/dtype.h"
#include "base/kernel_threads.h"
#include "device/blocks.h"
#include "optim/optim.h"
#include "rule/rule.h"
#include "tensor/model.h"

#include <string.h>

/* Parameters that joined late or lack a gradient now and then are a few steps behind the others. */
#define CZ__PREPARED 4

/* A value beside the rule's own. */
typedef struct cz__extra {
    char name[64];
    double value;
} cz__extra;

typedef struct cz__optim_group {
    const cz_rule *rule; /* borrowed; what it has of slots, sums and values is by this one */
    int use;             /* its place in cz_optim.rules */
    int64_t *params;     /* owned */
    int64_t param_count;
    cz_dtype state_dtype; /* of its element slots, masters apart */
    bool has_masters;     /* its 16-bit values */
    /* Of 8 bits: bit e: element slot e is, of parameters that are large enough; and its values may
     * be below zero. Others are of state_dtype. */
    unsigned packed, with_sign;
    int64_t granule; /* what it asks for beyond the rule's */
    cz_moving_average average;
    double *hypers;    /* owned, in the order of the rule's specs */
    cz__extra *extras; /* owned; hyper-parameters that were added */
    int extra_count;
    unsigned slots_used;    /* bit e: these values use element slot e */
    unsigned slots_wanted;  /* bit e: memory is needed for it; differs while values change only */
    cz__prepared *prepared; /* owned, CZ__PREPARED of them; step s is at s % CZ__PREPARED */
} cz__optim_group;

/* A rule that some group has, and its kernels for the optimizer's type and device. */
typedef struct cz__rule_use {
    const cz_rule *rule;        /* borrowed */
    int64_t group_count;        /* so many have it */
    int slot_count;             /* of elements, */
    int scalar_count;           /* and scalars, "step" left out */
    bool counts_steps;          /* it has a slot "step" */
    cz_update_kernel kernel;    /* NULL: the rule updates whole tensors */
    cz_sums_kernel sums_kernel; /* NULL: the rule has no partial sums */
} cz__rule_use;

/* How wide tables are whose rows are a parameter's or a span's: enough for each of the rules. */
typedef struct cz__widths {
    int slots;   /* element slots of rules; after them one for masters, one for averages */
    int scalars; /* of rules, without "step"; after them one for averages */
    int sums;
    int hypers;
    bool has_masters, has_averages;
} cz__widths;

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
    /* Where a rule has partial sums, one row per span (a parameter's is its first span's): the sums
     * of a step, and what the first pass prepared for the second. */
    cz_sum *sums;           /* owned */
    cz__prepared *prepared; /* owned */
    /* Owned; one on each device, for the largest whole tensor there, or for tiles in f32. */
    cz__arena *scratch;
    bool in_parts; /* spans may be updated by several threads */
    int parts;     /* so many have scratch memory */
    /* Owned, a row for each span, NULL: there is none; in f32 what is here in 8 bits, while
     * somebody reads or writes it by address. */
    float **unpacked;
    bool inherits; /* until it is adopted: slots are in the arenas of the present shard, too */
} cz__optim_shard;

struct cz_optim {
    cz_model *model;     /* borrowed; frozen if `froze` */
    const cz_rule *rule; /* of groups that say nothing else */
    cz__rule_use *rules; /* owned; those that groups have, in the order of their first groups */
    int rule_count;
    /* The first parameter's; others are of the same type, and what one of a type does it does for
     * all: kernels, copies. Memory is had on each. */
    const cz_device *device;
    cz_dtype dtype;   /* in which kernels compute; of whole tensors: the values' */
    cz_master master; /* of groups that say nothing else, as the next two */
    cz_dtype state_dtype;
    int64_t packed_from; /* elements of a parameter whose state may be in 8 bits */
    cz_moving_average average;
    uint64_t seed;
    bool is_mixed;     /* some value, gradient or state is of another type than `dtype` */
    bool has_means;    /* cz__optim_take_means() */
    double factor;     /* of the present step's gradients, as far as they are of another type */
    bool is_narrow;    /* some value of the model has 16 bits */
    bool has_averages; /* some group was made with them, or may be */
    /* As wide as the widest rule's and what is added, as rows of tables have them: cz__widths. */
    int rule_slots;   /* element slots: of the widest rule, */
    int slot_count;   /* and with those of masters and averages, in this order */
    int master_slot;  /* -1: no value has 16 bits */
    int average_slot; /* -1: no group has averages */
    int rule_scalars; /* scalar slots of the widest rule, "step" left out, */
    int scalar_count; /* and with that of averages */
    int sum_count;
    int hyper_room; /* of `values` */
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
    bool threads_asked;                 /* for functions of the program's, too */
    bool alone;                         /* there are some, and no threads were asked for */
    uint64_t part_bytes;                /* less than this, read and written, is not worth one */
    cz__kernel_threads *kernel_threads; /* owned, as the next two */
    cz_sum *part_sums;           /* a row for each part: of the norm, or of the rule's sums */
    cz__prepared *part_prepared; /* CZ__PART_PARAMS of them */

    cz_step_options step; /* of the one that is being made; what it points to is borrowed */

    cz__model_tables tables;     /* the model's, as long as it is frozen */
    cz__overlap_memory overlaps; /* of what steps have looked at */

    double *sum_values; /* owned; of all ranks: sum_count for each parameter of the model */
    int64_t skip_count;

    bool evaluated; /* values are those to be evaluated */
    void **kept;    /* owned, while they are: the values of spans that are put aside */

    cz_shard_map *own_map; /* owned; the unsharded optimizer's: rank 0 has everything */
    void **gradients;      /* owned; scratch of cz_optim_step(), one per parameter */
    double *values;        /* owned; scratch of cz_optim_set_hyper(), one per hyper-parameter */
};

/* ---- rules.c ---- */

/* The group has been filled: its rule is one of the optimizer's from now on, tables are as wide as
 * it needs. With room for a rule that is new. CZ_ERR_UNSUPPORTED: there is no slot left for
 * masters; CZ_ERR_MEMORY. Nothing was changed then. */
cz_status cz__optim_take_rule(cz_optim *optim, cz__optim_group *group);
/* The reverse, for the last group. Cannot fail. */
void cz__optim_leave_rule(cz_optim *optim, cz__optim_group *group);
/* The kernels of a parameter's rule, if they are not known yet. CZ_ERR_UNSUPPORTED. */
cz_status cz__optim_find_kernels(cz_optim *optim, int64_t param);
/* What a group's rule is to the optimizer. */
static inline const cz__rule_use *cz__optim_use(const cz_optim *optim, int64_t group)
{
    return &optim->rules[optim->groups[group].use];
}
/* Of a parameter that is in a group. */
static inline const cz__rule_use *cz__optim_use_of(const cz_optim *optim, int64_t param)
{
    return cz__optim_use(optim, optim->group_of[param]);
}
/* Is it the step count? */
static inline bool cz__slot_is_step(cz_slot_spec slot)
{
    return slot.kind == CZ_SLOT_SCALAR && strcmp(slot.name, "step") == 0;
}

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
/* What the rule of a whole tensor asks for of it, and a row of all its elements in f32. */
size_t cz__optim_own_scratch_bytes(const cz_optim *optim, int64_t param);
size_t cz__optim_row_bytes(const cz_optim *optim, int64_t param);
/* As cz__optim_slot_address(). */
void *cz__shard_slot_address(const cz_optim *optim, const cz__optim_shard *shard, int64_t param,
                             int slot, int64_t element);
/* Memory for what spans here need and do not have: slots that trainable ones use, that a step
 * has used, that are expected. Nothing was changed on failure. */
cz_status cz__optim_reserve(const cz_optim *optim, cz__optim_shard *shard);

/* ---- types.c ---- */

/* Of these slots of its group, those that a parameter has: only 16-bit values have a master. And
 * those that its values use now. */
unsigned cz__optim_slots_of(const cz_optim *optim, int64_t param, unsigned slots);
unsigned cz__optim_slots_in_use(const cz_optim *optim, int64_t param);
/* The type of the gradient that updates are given of it; bytes of an element of that, and of a
 * slot. */
static inline cz_dtype cz__optim_given_dtype(const cz_optim *optim, int64_t param)
{
    return optim->has_means ? optim->dtype : cz__model_gradient_dtype(optim->model, param);
}
static inline size_t cz__optim_gradient_size(const cz_optim *optim, int64_t param)
{
    return cz_dtype_size(cz__optim_given_dtype(optim, param));
}
static inline size_t cz__optim_slot_size(const cz_optim *optim, int64_t param, int slot)
{
    return cz_dtype_size(cz__optim_slot_dtype(optim, param, slot));
}
/* The fewest bytes of an element of anything that is updated. */
static inline size_t cz__optim_smallest_size(const cz_optim *optim)
{
    return optim->is_mixed ? sizeof(uint16_t) : cz_dtype_size(optim->dtype);
}
/* The bits of the slots that are not the rule's. */
static inline unsigned cz__optim_master_bit(const cz_optim *optim)
{
    return optim->master_slot < 0 ? 0u : 1u << optim->master_slot;
}
static inline unsigned cz__optim_average_bit(const cz_optim *optim)
{
    return optim->average_slot < 0 ? 0u : 1u << optim->average_slot;
}
static inline unsigned cz__optim_added_bits(const cz_optim *optim)
{
    return cz__optim_master_bit(optim) | cz__optim_average_bit(optim);
}

/* ---- blocks.c: state in 8 bits ---- */

/* Elements of a parameter from which on its state is, where nothing else is said. */
#define CZ__PACKED_FROM 4096
/* A slot of a span: the scales of its blocks, then a code for each element. */
size_t cz__packed_bytes(int64_t count);
typedef struct cz__packed {
    float *scales;
    uint8_t *codes;
} cz__packed;
/* From an element of the span on, with which a block begins. */
cz__packed cz__optim_packed(const cz_optim *optim, const cz__optim_shard *shard, int64_t place,
                            int slot, int64_t first);
void cz__optim_read_packed(const cz_optim *optim, int64_t place, int slot, int64_t first,
                           int64_t count, float *values);
void cz__optim_write_packed(const cz_optim *optim, int64_t place, int slot, int64_t first,
                            int64_t count, const float *values);
/* Of a group that wants it: which slots? CZ_ERR_ARGUMENT: there are none. */
cz_status cz__optim_settle_packed(const cz_optim *optim, int64_t number);
/* A map may cut state in 8 bits where blocks begin. CZ_ERR_ARGUMENT. */
cz_status cz__optim_check_blocks(const cz_optim *optim, const cz_shard_map *map);
/* Elements of a block of its state; 1: it has none in 8 bits. */
int64_t cz__optim_block(const cz_optim *optim, int64_t param);
/* In f32, all that is here in 8 bits: made; read again; back to 8 bits, or left as they are. */
cz_status cz__shard_unpack(const cz_optim *optim, cz__optim_shard *shard);
void cz__shard_read_again(const cz_optim *optim, cz__optim_shard *shard);
void cz__shard_pack(const cz_optim *optim, cz__optim_shard *shard);
void cz__shard_drop_unpacked(const cz_optim *optim, cz__optim_shard *shard);

/* ---- state.c ---- */

/* These element slots of a parameter, and its scalars, come into use if they are not: they get
 * what they start with. There is memory for them. */
void cz__optim_start(cz_optim *optim, int64_t param, unsigned slots);
/* What a slot of a parameter starts with. */
double cz__optim_first_value(const cz_optim *optim, cz_slot_spec slot, int64_t param);

/* ---- groups.c ---- */

cz_status cz__optim_read_average(cz_moving_average *ours, const cz_moving_average *theirs);
cz_status cz__optim_groups_create(cz_optim *optim, const cz_hyper *hypers,
                                  const cz_optim_options *options);
void cz__optim_groups_destroy(cz_optim *optim);
/* Now that it is known in which type kernels compute: the types of groups that said none, and can
 * they be had? CZ_ERR_ARGUMENT, CZ_ERR_UNSUPPORTED. */
cz_status cz__optim_settle_types(cz_optim *optim);
/* One more, not checked against the others. It is counted, even if it failed, unless there was no
 * memory. */
cz_status cz__optim_append_group(cz_optim *optim, const cz_param_group *group);
/* Some value of some group is another one. */
void cz__optim_groups_changed(cz_optim *optim);
/* Which element slots a group uses with these values; bit e is the e-th of its rule's slots that
 * are no scalars, optim->master_slot that of masters. */
unsigned cz__optim_slots_used(const cz_optim *optim, const cz__optim_group *group,
                              const double *hypers);
/* The group's added value of that name, NULL if there is none. */
cz__extra *cz__optim_find_extra(const cz__optim_group *group, const char *name);
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
    cz_dtype dtype;       /* the gradient's */
    double factor;        /* that is multiplied with it first, in f32: its memory stays as it is */
    int part;
} cz__piece;
/* From the span's first element on, without any: its gradient as the model has it. */
cz__piece cz__optim_piece(const cz_optim *optim, int64_t place, const void *gradient);
void cz__optim_update_piece(const cz_optim *optim, const cz__piece *piece,
                            const cz__prepared *prepared);
void cz__optim_add_sums_of_piece(const cz_optim *optim, const cz__piece *piece,
                                 const cz__prepared *prepared, cz_sum *sums);
uint64_t cz__optim_element_traffic(const cz_optim *optim, int64_t param);

/* ---- mixed.c ---- */

/* Where a piece is now: another optimizer may have moved the value into its buckets, or back. */
typedef struct cz__span_memory {
    int64_t count;
    char *value;
    const char *gradient;
    void *slots[CZ__RULE_SLOTS];   /* the rule's; NULL where not in use */
    float *scales[CZ__RULE_SLOTS]; /* of slots in 8 bits, which are codes; NULL: of another type */
} cz__span_memory;
/* Elements of a tile, and of its row in f32, such that rows are not at one place within pages. */
enum { CZ__TILE = 256, CZ__ROW = CZ__TILE + 48 };
/* Scratch memory that a part needs. */
static inline size_t cz__optim_mixed_scratch_bytes(const cz_optim *optim)
{
    const size_t rows = 2 + (size_t)optim->slot_count;
    return optim->is_mixed ? rows * CZ__ROW * sizeof(float) : 0;
}
/* A rule over a whole tensor, of which everything is in the type in which it computes. */
void cz__optim_update_tensor(const cz_optim *optim, int64_t param, void *value,
                             const void *gradient, void *const *slots, const cz__prepared *prepared,
                             int part);
/* The rule over a piece; with `sums` its first pass. */
void cz__optim_update_mixed(const cz_optim *optim, const cz__piece *piece,
                            const cz__prepared *prepared, const cz__span_memory *memory,
                            cz_sum *sums);

/* ---- average.c ---- */

#define CZ__AVERAGE_DECAY "average_decay"

/* The step of a parameter has begun: the weight of the new value in its average, which comes into
 * use; 0: this one is not averaged. */
double cz__optim_begin_average(cz_optim *optim, int64_t param);
/* New values into their averages, in one type. */
void cz__optim_average(const cz_device *device, cz_dtype dtype, double weight, int64_t count,
                       const void *values, void *averages);
/* How many values are in it. */
static inline double *cz__optim_averaged(cz_optim *optim, int64_t param)
{
    return &optim->scalars[param * optim->scalar_count + optim->rule_scalars];
}
/* Scratch memory for a tile of whole tensors, and for what is evaluated: two rows of any type. */
static inline size_t cz__optim_average_scratch_bytes(const cz_optim *optim)
{
    return optim->average_slot >= 0 || cz__optim_any_rule(optim, CZ__EVALUATES_ANOTHER)
               ? 2 * CZ__ROW * sizeof(double)
               : 0;
}

/* ---- parts.c ---- */

void cz__norm_add_in_parts(const cz_optim *optim, void *const *gradients, cz_sum *sum);
void cz__norm_scale_in_parts(const cz_optim *optim, void *const *gradients, double factor);

#endif
