/* SPDX-License-Identifier: MIT */
/* Parameter groups of a scheduler's state: their members, and which of them is which here. */
#ifndef CZ_SCHED_REGROUP_H
#define CZ_SCHED_REGROUP_H

#include "sched/object.h"

typedef struct cz__regroup {
    int64_t saved_count; /* groups in the dictionary */
    int64_t count;       /* groups here that were among them: the first ones */
    int64_t *from;       /* owned: which of the saved ones each of these is */
    uint8_t *found;      /* owned: flags of the saved ones; NULL: there are no members */
} cz__regroup;

/* "param_groups": "0", "1", …: the names of the members of each group that takes part. CZ_ERR_MEMORY. */
cz_status cz__regroup_write(const cz_sched *sched, cz_state_dict *dict);

/* CZ_ERR_ARGUMENT: groups do not have the members that they had, which; CZ_ERR_MEMORY. To be cleared in any case. */
cz_status cz__regroup_read(cz__regroup *regroup, const cz_sched *sched, const cz_state_dict *dict);
void cz__regroup_clear(cz__regroup *regroup);

#endif
