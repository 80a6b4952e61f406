/* SPDX-License-Identifier: MIT */
/* What loading a state dictionary will change, for the files that find it out. */
#ifndef CZ_OPTIM_LOADING_H
#define CZ_OPTIM_LOADING_H

#include "optim/dict.h"
#include "optim/object.h"

/* Of one parameter. */
typedef struct cz__loaded_param {
    const cz_state_dict *entry; /* NULL: no state */
    int64_t steps;
    unsigned slots;    /* bit e: it has element slot e */
    unsigned outlined; /* bit e: and without its elements */
    bool listed;       /* in its parameter group */
    bool kept;         /* what it has is what it will have */
} cz__loaded_param;

/* Of one parameter group. */
typedef struct cz__loaded_group {
    const cz_state_dict *entry;
    double *hypers;    /* owned, in the order of the rule's specs */
    cz__extra *extras; /* owned; those of the group and those of the dictionary */
    int extra_count;
} cz__loaded_group;

struct cz__load {
    cz_optim *optim; /* borrowed */
    cz_missing_state missing;
    bool outline;             /* slots may be without elements */
    cz__loaded_param *params; /* owned */
    cz__loaded_group *groups; /* owned */
    double *scalars;          /* owned, as those of the optimizer */
};

/* load_groups.c: the dictionary's parameter groups against the optimizer's. CZ_ERR_ARGUMENT,
 * CZ_ERR_MEMORY. */
cz_status cz__load_groups(cz__load *load, const cz_state_dict *dict);

/* load_params.c: the state of its parameters, after the groups. */
cz_status cz__load_params(cz__load *load, const cz_state_dict *dict);

#endif
