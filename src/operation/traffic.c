/* SPDX-License-Identifier: MIT */
/* What a rank has sent: counted where transfers are posted, once for all groups that share an
 * executor. */
#include "operation/operation.h"

/* Whoever drives counts, one thread at a time, and any thread reads: no addition that others could
 * come between, which would cost more than a small operation's data. */
static void add_to(atomic_ullong *to, uint64_t more)
{
    const uint64_t before = atomic_load_explicit(to, memory_order_relaxed);
    atomic_store_explicit(to, before + more, memory_order_relaxed);
}

void cz__traffic_sent(const cz_group *group, unsigned step, size_t bytes)
{
    cz__traffic *traffic = cz__executor_traffic(group->executor);
    add_to(&traffic->sent_bytes, bytes);
    add_to(&traffic->messages, 1);
    if (step != CZ__STEP_REDUCE && step != CZ__STEP_EXCHANGE)
        add_to(&traffic->header_bytes, bytes);
}

void cz__traffic_were_data(const cz_group *group, size_t bytes)
{
    cz__traffic *traffic = cz__executor_traffic(group->executor);
    add_to(&traffic->header_bytes, -(uint64_t)bytes);
}

void cz__traffic_handed_over(const cz_group *group, size_t bytes)
{
    add_to(&cz__executor_traffic(group->executor)->sent_bytes, bytes);
}

void cz__traffic_headers(const cz_group *group, unsigned count)
{
    cz__traffic *traffic = cz__executor_traffic(group->executor);
    add_to(&traffic->sent_bytes, count * sizeof(cz__header));
    add_to(&traffic->header_bytes, count * sizeof(cz__header));
    add_to(&traffic->messages, count);
}

void cz__traffic_native(const cz_group *group)
{
    add_to(&cz__executor_traffic(group->executor)->native, 1);
}
