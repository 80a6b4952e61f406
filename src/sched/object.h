/* SPDX-License-Identifier: MIT */
/* What a scheduler is made of, for the files of this folder.
 *
 * A kind of scheduler is a struct that begins with `struct cz_sched`, and a const table. Simple
 * kinds have formulas for one parameter group; sched.c does the rest. A change of epoch works on a
 * copy of the rates (rates.c) and is taken back as a whole if a rate is refused. */
#ifndef CZ_SCHED_OBJECT_H
#define CZ_SCHED_OBJECT_H

#include "base/options.h"
#include "czero/sched.h"

/* Nesting of sequential and chained schedulers. */
#define CZ__SCHED_MAX_DEPTH 16

typedef struct cz__list {
    double *items; /* owned, except in a draft */
    int64_t count;
} cz__list;

typedef enum cz__field_type {
    CZ__SCHED_INTEGER,  /* int64_t */
    CZ__SCHED_REAL,     /* double */
    CZ__SCHED_LIST,     /* cz__list */
    CZ__SCHED_PER_GROUP /* cz__list with one entry, or one per parameter group */
} cz__field_type;

/* What a kind saves, and checks when it is made or loaded; of a list each entry is in the range. */
typedef struct cz__field {
    const char *name;
    cz__field_type type;
    size_t offset;
    cz__range range;
} cz__field;
/* clang-format off */
#define CZ__SCHED_FIELD(of_type, owner, member, ...)                                               \
    {.name = #member, .type = CZ__SCHED_##of_type, .offset = offsetof(owner, member), __VA_ARGS__}
/* clang-format on */

/* Values of all parameter groups while an epoch changes; they are in the scheduler that the program
 * called. */
typedef struct cz__rates {
    int64_t count;
    double *lr;       /* to become */
    double *momentum; /* to become, if any scheduler drives it */
    double *initial;  /* initial_lr, or the rate before this change */
    double *old_lr, *old_momentum;
} cz__rates;

typedef struct cz__sched_kind {
    const char *name;
    size_t size; /* of the struct */
    int field_count;
    const cz__field *fields;
    /* Is what ranges do not say right? The sentence begins with the kind's name. NULL: yes. */
    cz_status (*check)(const cz_sched *sched);
    /* May `sched->epoch` be? NULL: any whole number. */
    cz_status (*check_epoch)(const cz_sched *sched);
    bool fractions; /* epochs need not be whole */

    /* A group's rate at sched->epoch, from its rate at the epoch before. */
    double (*rate)(const cz_sched *sched, int64_t param_group, double lr);
    /* The same from its base; `lr` is the present rate. NULL: `rate` needs no rate. */
    double (*closed)(const cz_sched *sched, int64_t param_group, double lr);
    bool resumes_closed; /* `closed` sets the first rate if that is not of epoch 0 */
    double (*momentum)(const cz_sched *sched, int64_t param_group); /* NULL: none */
    bool (*drives_momentum)(const cz_sched *sched);
    double (*base)(const cz_sched *sched, int64_t param_group); /* NULL: initial_lr, or the rate */
    /* Add what a group has to carry, its initial_lr first of all. NULL: that only. */
    cz_status (*publish)(const cz_sched *sched, int64_t param_group);

    /* Composite kinds, which have members and no formulas: from the present rates to those of epoch
     * 0, and to the next epoch. */
    cz_status (*start)(cz_sched *sched, cz__rates *rates);
    cz_status (*next)(cz_sched *sched, cz__rates *rates);
    /* Is this member the one whose rates are in force, one of those? */
    bool (*active)(const cz_sched *sched, int64_t member);

    /* Driven by a metric instead. */
    cz_status (*metric)(cz_sched *sched, cz__rates *rates, double metric);
    cz_status (*agree)(const cz_sched *sched, double *metric);
} cz__sched_kind;

struct cz_sched {
    const cz__sched_kind *kind;
    cz_optim *optim;
    bool drives_momentum; /* or what the rule of a group calls so */
    double epoch;         /* of the rates in force; below 0: it has not begun */
    int64_t group_count;  /* parameter groups that take part */
    cz_sched **members;   /* owned */
    int64_t member_count;
    int depth;    /* 1: no members */
    bool stepped; /* by the program */

    double *base; /* owned: CZ__ROOM arrays of `capacity` entries, the first is `base` */
    double *last;
    int64_t capacity;
    void *saved; /* owned: what to return to while an epoch changes */
};

/* sched.c: make one of `draft`, whose kind and options are filled in; its lists are copied. */
cz_status cz__sched_create(cz_sched **out, cz_optim *optim, const cz_sched *draft,
                           int64_t first_epoch);

/* The options of schedulers that have no more of them; *out is NULL until there is one. */
cz_status cz__sched_first_epoch(cz_sched **out, const cz_sched_options *options,
                                int64_t *first_epoch);

/* One of `draft` with these options. */
cz_status cz__sched_create_simple(cz_sched **out, cz_optim *optim, const cz_sched *draft,
                                  const cz_sched_options *options);

/* A copy with memory of its own for everything but members, of which it has none. */
cz_status cz__sched_clone(cz_sched **out, const cz_sched *draft);

/* The rate of a group at epoch 0 of a scheduler, or of the first in it, before its formula. */
double cz__sched_base(const cz_sched *sched, int64_t param_group);

/* Changes of epoch: of `rates`, and of positions in the tree of schedulers. `epoch` is what the
 * third goes to. */
typedef cz_status (*cz__sched_move)(cz_sched *sched, cz__rates *rates, double epoch);
cz_status cz__sched_start(cz_sched *sched, cz__rates *rates);
cz_status cz__sched_next(cz_sched *sched, cz__rates *rates, double unused);
cz_status cz__sched_seek(cz_sched *sched, cz__rates *rates, double epoch);

/* Let new parameter groups take part, move, set the optimizer's rates; all of it or nothing. */
cz_status cz__sched_change(cz_sched *sched, cz__sched_move move, double argument);

/* rates.c */
cz_status cz__rates_reserve(cz_sched *sched, int64_t count); /* of members too */
cz_status cz__rates_read(const cz_sched *sched, cz__rates *rates, int64_t count);
cz_status cz__rates_write(const cz_sched *sched, const cz__rates *rates);
void cz__rates_take_back(const cz_sched *sched, const cz__rates *rates, int64_t count);
/* Has the group a hyper-parameter of that name? */
bool cz__sched_has(const cz_optim *optim, int64_t param_group, const char *name);

/* rates.c: is this option right? If not: "KIND scheduler: NAME is VALUE, wanted WANTED". */
cz_status cz__sched_check(const cz_sched *sched, bool right, const char *name, double value,
                          const char *wanted);

/* Every entry of a list: within the range? */
cz_status cz__sched_check_list(const cz_sched *sched, const char *name, const cz__list *list,
                               const cz__range *range);

/* All of the kind's fields, and what else it checks. */
cz_status cz__sched_check_options(const cz_sched *sched);

/* Do lists with an entry per parameter group fit that many? Of members too. */
cz_status cz__sched_check_groups(const cz_sched *sched, int64_t count, cz_status otherwise);

/* All of the above for options that were filled in; finds the momentum that is driven. */
cz_status cz__sched_settle(cz_sched *sched, int64_t group_count);

/* Lists for a draft. One of integers, which the caller frees; of `one` for all groups, or of
 * `many`, if they are given, one for each, which borrows either. */
cz_status cz__list_from_integers(cz__list *list, const int64_t *integers, int64_t count,
                                 const cz_sched *draft);
cz__list cz__list_per_group(const double *one, const double *many, const cz_optim *optim);

/* The entry for a parameter group of a list that has one, or one per group. */
static inline double cz__list_pick(const cz__list *list, int64_t param_group)
{
    return list->items[list->count == 1 ? 0 : param_group];
}

#endif
