/* SPDX-License-Identifier: MIT */
/* What a group says of itself: what it has sent, which ranks are on this rank's machine, and the
 * cores that there are for it. */
#include "base/float_mode.h"
#include "base/kernel_threads.h"
#include "base/memory.h"
#include "base/options.h"
#include "base/status.h"
#include "base/thread.h"
#include "group/arguments.h"
#include "group/collective.h"
#include "group/internal.h"

bool cz__group_are_together(const cz_group *group, int a, int b)
{
    const cz_backend *backend = group->backend;
    if (group->rendezvous)
        return true;
    if (!backend->machine)
        return a == b || backend->window;
    return backend->machine(group->endpoint, a) == backend->machine(group->endpoint, b);
}

static int count_together(const cz_group *group, int before)
{
    int count = 0;
    for (int r = 0; r < before; r++)
        count += cz__group_are_together(group, r, group->rank);
    return count;
}

static uint64_t read_of(atomic_ullong *from)
{
    return atomic_load_explicit(from, memory_order_relaxed);
}

cz_status cz_group_get_info(const cz_group *group, cz_group_info *info)
{
    if (!group || !info)
        return cz__fail(CZ_ERR_ARGUMENT, "group get_info: %s is NULL", group ? "info" : "group");
    const cz_backend *backend = group->backend;
    cz__traffic *counted = cz__executor_traffic(group->executor);
    const cz_group_info now = {.backend = backend->name,
                               .ordered_sums = !backend->all_reduce && !backend->reduce_scatter,
                               .sent_bytes = read_of(&counted->sent_bytes),
                               .header_bytes = read_of(&counted->header_bytes),
                               .messages = read_of(&counted->messages),
                               .native = read_of(&counted->native),
                               .local_rank = count_together(group, group->rank),
                               .local_size = count_together(group, group->size)};
    return cz__options_write(info, &now, sizeof now, "cz_group_info");
}

/* ---- cores ---- */

/* Those of this rank's machine to the front; where this rank's are then. */
static int choose_local(const cz_group *group, cz__core_set *sets)
{
    int count = 0, mine = 0;
    for (int r = 0; r < group->size; r++) {
        if (!cz__group_are_together(group, r, group->rank))
            continue;
        if (r == group->rank)
            mine = count;
        sets[count++] = sets[r];
    }
    return mine;
}

cz_status cz_group_local_cores(cz_group *group, int *cores)
{
    CZ__OWN_FLOATS;
    CZ__UNCANCELLED;
    if (!group)
        return cz__no_group("local_cores");
    const cz__core_set own = cz__core_set_look();
    cz__core_set *sets = cz__calloc((size_t)group->size, sizeof *sets);
    cz_status status = CZ_OK;
    if (!cores)
        status = cz__fail(CZ_ERR_ARGUMENT, "local_cores: cores is NULL");
    else if (!sets)
        status = cz__fail(CZ_ERR_MEMORY, "local_cores: no memory for the cores of %d ranks",
                          group->size);
    status = cz__agree(group, status, 0, NULL, "local_cores");
    if (!status)
        status = cz_all_gather(group, &own, sets, CZ__CORE_WORDS, CZ_I64, CZ_LABEL("local_cores"));
    if (!status) {
        const cz__cores here = cz__cores_look();
        const int mine = choose_local(group, sets);
        *cores = cz__cores_apportion(sets, count_together(group, group->size), mine, &here);
    }
    cz__free(sets);
    return status;
}
