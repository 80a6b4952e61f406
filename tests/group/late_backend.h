/* SPDX-License-Identifier: MIT */
/* Thread ranks whose data go by messages that land late and in any order, as far as the library can tell: a transfer
 * that has ended sometimes does not say so, by chance. */
#ifndef CZ_LATE_BACKEND_H
#define CZ_LATE_BACKEND_H

#include "group/group_test.h"
#include "group/internal.h"

static _Thread_local uint64_t late_asked;

static inline cz_status late_test(void *endpoint, cz_transfer *t, bool *done)
{
    *done = false;
    return mix(++late_asked) % 8 ? cz__backend_threads.test(endpoint, t, done) : CZ_OK;
}

static inline void late_poll(void *endpoint)
{
}

static inline cz_status late_create(cz_group **groups, int world, const cz_group_options *options)
{
    void *endpoints[MANY_RANKS];
    cz_backend late = cz__backend_threads;
    if (!groups || world < 1 || world > MANY_RANKS)
        return cz_group_create_threads(groups, world, options);
    late.test = late_test;
    late.poll = late_poll;
    late.poll_seconds = 5e-6; /* nobody else calls when a transfer may be asked again */
    CZ_TRY(cz__threads_create(endpoints, world));
    cz_status status = CZ_OK;
    for (int r = 0; r < world; r++) { /* an endpoint is left if its group fails */
        if (status == CZ_OK)
            status = cz_group_create_custom(&groups[r], r, world, &late, endpoints[r], options);
        else
            cz__backend_threads.leave(endpoints[r], NULL);
    }
    return status;
}

#endif
