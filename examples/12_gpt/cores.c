/* SPDX-License-Identifier: MIT */
/* How many cores a rank has: ranks that are threads of one process, or processes of one machine
 * that nobody has bound to cores of their own, share the same ones. */
#define _GNU_SOURCE /* sched_getaffinity */
#include "cores.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#if defined(__linux__)
#include <sched.h>
#endif

/* FNV-1a. Fowler, Noll, Vo, IETF draft-eastlake-fnv. */
static uint64_t fingerprint(uint64_t seed, const void *bytes, size_t count)
{
    uint64_t hash = seed ^ UINT64_C(0xcbf29ce484222325);
    for (size_t i = 0; i < count; i++)
        hash = (hash ^ ((const unsigned char *)bytes)[i]) * UINT64_C(0x100000001b3);
    return hash;
}

/* The cores on which this rank may run, and what is equal where they are the same ones of the same
 * machine. */
static int look(int64_t *which)
{
    char host[256] = "";
    gethostname(host, sizeof host - 1);
    *which = (int64_t)fingerprint(0, host, strlen(host));
#if defined(__linux__)
    cpu_set_t allowed;
    CPU_ZERO(&allowed);
    if (sched_getaffinity(0, sizeof allowed, &allowed) == 0) {
        *which = (int64_t)fingerprint((uint64_t)*which, &allowed, sizeof allowed);
        return CPU_COUNT(&allowed);
    }
#endif
    return 1;
}

cz_status cores_of_rank(cz_group *world, int *cores)
{
    int64_t mine;
    const int count = look(&mine), size = cz_group_size(world);
    int64_t *all = calloc((size_t)size, sizeof *all);
    int sharers = 0;
    if (!all)
        return cz_fail(CZ_ERR_MEMORY, "no memory for the cores of %d ranks", size);
    const cz_status status = cz_all_gather(world, &mine, all, 1, CZ_I64, CZ_LABEL("cores"));
    for (int r = 0; r < size; r++)
        sharers += all[r] == mine;
    *cores = sharers > 0 && sharers < count ? count / sharers : 1;
    free(all);
    return status;
}
