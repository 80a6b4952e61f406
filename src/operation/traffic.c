/* SPDX-License-Identifier: MIT */
/* What a rank has sent: counted where transfers are posted, once for all groups that share an
 * executor. */
#include "base/options.h"
#include "base/status.h"
#include "operation/operation.h"

static uint64_t read_of(const atomic_ullong *from)
{
    return atomic_load_explicit(from, memory_order_relaxed);
}

/* Whoever drives counts, one thread at a time, and any thread reads: no addition that others could
 * come between, which would cost more than a small operation's data. */
static void add(atomic_ullong *to, uint64_t more)
{
    atomic_store_explicit(to, read_of(to) + more, memory_order_relaxed);
}

void cz__traffic_sent(const cz_group *group, unsigned step, size_t bytes)
{
    cz__traffic *traffic = cz__executor_traffic(group->executor);
    add(&traffic->sent_bytes, bytes);
    add(&traffic->messages, 1);
    if (step != CZ__STEP_REDUCE && step != CZ__STEP_EXCHANGE)
        add(&traffic->header_bytes, bytes);
}

void cz__traffic_were_data(const cz_group *group, size_t bytes)
{
    cz__traffic *traffic = cz__executor_traffic(group->executor);
    add(&traffic->header_bytes, -(uint64_t)bytes);
}

void cz__traffic_handed_over(const cz_group *group, size_t bytes)
{
    add(&cz__executor_traffic(group->executor)->sent_bytes, bytes);
}

void cz__traffic_headers(const cz_group *group, unsigned count)
{
    cz__traffic *traffic = cz__executor_traffic(group->executor);
    add(&traffic->sent_bytes, count * sizeof(cz__header));
    add(&traffic->header_bytes, count * sizeof(cz__header));
    add(&traffic->messages, count);
}

void cz__traffic_native(const cz_group *group)
{
    add(&cz__executor_traffic(group->executor)->native, 1);
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
                               .native = read_of(&counted->native)};
    return cz__options_write(info, &now, sizeof now, "cz_group_info");
}
