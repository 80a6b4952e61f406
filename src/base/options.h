/* SPDX-License-Identifier: MIT */
/* Option structs that grow, and values from the environment. */
#ifndef CZ_BASE_OPTIONS_H
#define CZ_BASE_OPTIONS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "czero/base.h"

/* Larger structs are none: a size that was never set is found here, not by reading that far. */
#define CZ__OPTIONS_BYTES 4096

/* What a field holds, by its type in C. */
typedef enum cz__option_type {
    CZ__OPTION_I32,
    CZ__OPTION_U32, /* and enumerations */
    CZ__OPTION_I64,
    CZ__OPTION_U64,
    CZ__OPTION_REAL,
    CZ__OPTION_ADDRESS
} cz__option_type;

/* How ranks have it. */
typedef enum cz__option_scope {
    CZ__LOCAL,         /* each as it likes */
    CZ__COMPARED,      /* alike: cz__describe_options() */
    CZ__COMPARED_APART /* alike: the part itself says how, as of what is behind an address */
} cz__option_scope;

/* Numbers from `lowest` to `highest`; INT64_MAX: as large as there are, of real ones the finite.
 * NaN is in none. */
typedef struct cz__range {
    int64_t lowest, highest;
    bool above, below; /* `lowest`, or `highest`, itself is not allowed */
    bool infinite;     /* infinity is */
    int64_t multiple;  /* of what whole numbers have to be; 0: of nothing */
} cz__range;

/* A field. Without a range but 0 it is reserved. */
typedef struct cz__option {
    const char *name;
    size_t offset;
    cz__option_type type;
    cz__option_scope scope;
    cz__range range;
    double standard;          /* what 0 stands for, and is replaced by */
    bool has_none;            /* -1 stands for 0 */
    const char *const *words; /* for 0 and what follows, in comparisons; end with NULL */
} cz__option;

/* All fields of one struct but `size`, in order: the one place that knows them. */
typedef struct cz__option_table {
    const char *name; /* of the struct */
    size_t bytes;
    const cz__option *options; /* the last one has no name */
} cz__option_table;

/* clang-format off */
#define CZ__OPTION_TABLE(type, ...) {#type, sizeof(type), (const cz__option[]){__VA_ARGS__, {0}}}

/* The last arguments: a range, and what else there is to say. */
#define CZ__OPTION(type_, member, of_ranks, ...)                                                   \
    {.name = #member, .offset = offsetof(type_, member), .scope = (of_ranks),                      \
     .type = _Generic(((type_ *)0)->member, int32_t: CZ__OPTION_I32, uint32_t: CZ__OPTION_U32,     \
                      int64_t: CZ__OPTION_I64, uint64_t: CZ__OPTION_U64, double: CZ__OPTION_REAL,  \
                      default: CZ__OPTION_ADDRESS), __VA_ARGS__}
/* clang-format on */
#define CZ__BETWEEN(low, high) .range.lowest = (low), .range.highest = (high)
#define CZ__ANY CZ__BETWEEN(INT64_MIN, INT64_MAX) /* NaN, too */
#define CZ__FROM(low) CZ__BETWEEN(low, INT64_MAX)
#define CZ__ABOVE(low, high) CZ__BETWEEN(low, high), .range.above = true
#define CZ__BELOW(low, high) CZ__BETWEEN(low, high), .range.below = true
#define CZ__FLAG CZ__BETWEEN(0, 1)
#define CZ__RESERVED CZ__BETWEEN(0, 0)
#define CZ__WORDS(list) CZ__BETWEEN(0, (int64_t)(sizeof(list) / sizeof *(list)) - 2), .words = list
#define CZ__ZERO_IS(value) .standard = (value)
#define CZ__ZERO_IS_OR_NONE(value) .standard = (value), .has_none = true

/* The tables, each beside the code that reads its struct. */
extern const cz__option_table cz__allocator_options, cz__sampler_options, cz__group_options,
    cz__launch_options, cz__operation_options, cz__replicas_options, cz__optim_options,
    cz__moving_average_options, cz__param_group_options, cz__step_options, cz__optim_load_options,
    cz__in_backward_options, cz__sched_options, cz__sched_cyclic_options,
    cz__sched_one_cycle_options, cz__sched_plateau_options, cz__join_options, cz__joinable_options,
    cz__parts_options, cz__ddp_options, cz__hook_options, cz__zero_options, cz__averager_options,
    cz__averager_level_options, cz__post_local_sgd_options, cz__powersgd_options,
    cz__mixed_precision_options, cz__checkpoint_options, cz__save_options, cz__load_options,
    cz__export_options, cz__verify_options, cz__plan_options;

/* Is the number in the range, and the range in words: "0 or more", "above 0, at most 1". */
bool cz__range_has_whole(const cz__range *range, int64_t number);
bool cz__range_has_real(const cz__range *range, double number);
#define CZ__RANGE_TEXT_BYTES 96
void cz__range_text(char text[CZ__RANGE_TEXT_BYTES], const cz__range *range, bool whole);

/* Copy the caller's option struct (its first member is `size_t size`, the size it was compiled
 * with) into ours, which is zeroed first; NULL leaves it zeroed. The shorter size counts; bytes
 * beyond ours must be zero. `ours->size` becomes the table's. Then ranges are checked, and what
 * stands for another value is replaced by it. CZ_ERR_ARGUMENT: a size below sizeof(size_t) or above
 * CZ__OPTIONS_BYTES, or a value out of its range: "WHAT: option NAME is …, wanted …";
 * CZ_ERR_UNSUPPORTED: an option that this library does not know, or a reserved one. */
cz_status cz__options_read(void *ours, const cz__option_table *table, const void *theirs,
                           const char *what);

/* The same for element `index` of an array, whose elements are as long as the first one says. */
cz_status cz__options_read_element(void *ours, const cz__option_table *table, const void *array,
                                   int64_t index, const char *what);

/* The value of one that is a whole number. */
int64_t cz__option_number(const cz__option *option, const void *options);

/* A fingerprint of those that ranks have alike; `print`: of what comes before. */
uint64_t cz__options_print(const cz__option_table *table, const void *options, uint64_t print);

/* The other way: fill the caller's struct as far as it goes, but for its size, which is the
 * caller's. CZ_ERR_ARGUMENT as above. */
cz_status cz__options_write(void *theirs, const void *ours, size_t our_size, const char *name);

/* Is that the size of a struct? CZ_ERR_ARGUMENT as above. */
cz_status cz__options_check_size(size_t size, const char *name);

/* The number in an environment variable, or `otherwise` where it is unset or empty. What is no
 * number or outside [minimum, maximum] gives a line in the log and `otherwise`. */
double cz__environment_number(const char *variable, double minimum, double maximum,
                              double otherwise);

#endif
