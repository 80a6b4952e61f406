/* SPDX-License-Identifier: MIT */
/* An optimizer that is to hold other spans than now: the new ones beside the old until the elements have
 * been moved. */
#include "base/memory.h"
#include "base/status.h"
#include "optim/object.h"

#include <string.h>

struct cz__relocation {
    cz_optim *optim;              /* borrowed */
    const cz__progress *progress; /* borrowed; of all ranks */
    cz__optim_shard shard;        /* owned until it is adopted */
};

cz_status cz__relocation_create(cz__relocation **out, cz_optim *optim, const cz_shard_map *map,
                                int rank, const cz__progress *progress)
{
    cz__relocation *relocation = cz__calloc(1, sizeof *relocation);
    *out = NULL;
    if (!relocation)
        return cz__fail(CZ_ERR_MEMORY, "optim: no memory to move to other spans");
    relocation->optim = optim;
    relocation->progress = progress;
    for (int64_t p = 0; p < optim->param_count; p++)
        optim->expected[p] = progress->used[p];
    const cz_status status = cz__optim_shard_create(optim, &relocation->shard, map, rank);
    for (int64_t p = 0; p < optim->param_count; p++)
        optim->expected[p] = 0;
    if (status != CZ_OK)
        cz__relocation_destroy(&relocation);
    *out = relocation;
    return status;
}

void *cz__relocation_slot_address(const cz__relocation *relocation, int64_t param, int slot,
                                  int64_t element)
{
    return cz__shard_slot_address(relocation->optim, &relocation->shard, param, slot, element);
}

void cz__relocation_commit(cz__relocation *relocation)
{
    cz_optim *optim = relocation->optim;
    const cz__progress *progress = relocation->progress;
    const size_t row = (size_t)optim->scalar_count * sizeof *optim->scalars;
    cz__optim_shard_adopt(optim, &relocation->shard);
    relocation->shard = (cz__optim_shard){0};
    for (int64_t p = 0; p < optim->param_count; p++) {
        const bool held = cz__optim_holds(optim, p);
        optim->steps[p] = held ? progress->steps[p] : 0;
        optim->used[p] = held ? progress->used[p] : 0;
        optim->scalars_used[p] = held && (progress->steps[p] > 0 || progress->used[p]);
        if (row > 0 && held)
            memcpy(&optim->scalars[p * optim->scalar_count],
                   &progress->scalars[p * optim->scalar_count], row);
    }
    (void)cz__optim_prepare(optim); /* there is memory; Adagrad's sums begin */
}

void cz__relocation_destroy(cz__relocation **relocation)
{
    if (!relocation || !*relocation)
        return;
    cz__optim_shard_clear((*relocation)->optim, &(*relocation)->shard);
    cz__free(*relocation);
    *relocation = NULL;
}
