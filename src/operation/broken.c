/* SPDX-License-Identifier: MIT */
/* Groups that are of no use any more: broken, from an operation on; or of another process. */
#include <stdio.h>
#include <string.h>

#include "base/process.h"
#include "base/status.h"
#include "operation/operation.h"

cz_status cz__group_check_process(const cz_group *group, const char *call)
{
    return group->process == cz__process()
               ? CZ_OK
               : cz__fail(CZ_ERR_STATE,
                          "%s: this process is a child of the one that is rank %d of the group; "
                          "only that one can use it",
                          call, group->rank);
}

/* Whoever broke the group had done its part of all operations before, so those still end. */
cz_status cz__group_intact(const cz_group *group, uint64_t sequence)
{
    uint64_t from;
    const cz_status broken = group->backend->broken(group->endpoint, &from, NULL, 0);
    return broken && sequence >= from ? cz__fail(broken, "the group is broken") : CZ_OK;
}

cz_status cz__group_break(cz_group *group, uint64_t sequence, cz_status status,
                          const char *sentence, char *why)
{
    char whole[CZ__SENTENCE_BYTES];
    cz__group_tell(group, sentence, whole, sizeof whole);
    group->backend->break_group(group->endpoint, sequence, status, whole);
    const cz_status agreed =
        group->backend->broken(group->endpoint, &sequence, why, CZ__SENTENCE_BYTES);
    if (agreed == CZ_OK) /* a group of one, which tells nobody */
        snprintf(why, CZ__SENTENCE_BYTES, "%s", whole);
    else
        status = agreed;
    cz__executor_lock(group->executor);
    const bool first = group->broken == CZ_OK;
    if (first) {
        group->broken = status;
        snprintf(group->why, sizeof group->why, "%s", why);
    }
    cz__executor_unlock(group->executor);
    if (first)
        cz__recorder_write(group, why);
    return status;
}

bool cz__group_is_broken(cz_group *group)
{
    if (group->process != cz__process())
        return true;
    cz__executor_lock(group->executor);
    const bool broken = group->broken != CZ_OK;
    cz__executor_unlock(group->executor);
    return broken;
}
