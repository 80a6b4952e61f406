/* SPDX-License-Identifier: MIT */
/* Reading an optimizer's state dictionary of torch: what its two parts share. */
#ifndef CZ_INTEROP_TORCH_READING_H
#define CZ_INTEROP_TORCH_READING_H

#include "interop/torch_contents.h"

/* A parameter as the optimizer counts it. */
typedef struct cz__torch_member {
    int64_t number; /* in the file */
    int64_t place;  /* among the members of all groups, one after the other */
} cz__torch_member;

typedef struct cz__torch_reading {
    cz__torch_contents *c;
    const cz__pickle *p;
    const cz__pickle_value *state, *groups;
    const char *rule_name;
    const cz__torch_rule *rule; /* NULL: one that torch does not have */
    cz__torch_member *members;  /* owned, as the next; in the order of their numbers */
    const char **names;         /* by place */
    cz__names model;            /* owned: the place of each tensor of the file's model */
    bool ambiguous;             /* another rule's groups and state would look the same */
    /* Of Adam and AdamW the one that gives its keys in the order of these; NULL: no saying. */
    const char *order;
    int64_t count, capacity;
} cz__torch_reading;

/* torch_names.c: the members of the groups, and their names. *clear false: the last sentence says why they are not known,
 * and nothing is wrong with the file. */
cz_status cz__torch_name_members(cz__torch_reading *reading, bool *clear);
/* Of the member of that number; -1: there is none. */
int64_t cz__torch_place(const cz__torch_reading *reading, const cz__pickle_value *number);

#endif
