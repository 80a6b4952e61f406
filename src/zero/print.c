/* SPDX-License-Identifier: MIT */
/* Fingerprints of a sharded optimizer: each rank adds up what it has, all add up these sums. What
 * each section was is kept, so that memory which has changed since is found. And what checked mode
 * compares before a step: values that all ranks hold. */
#include <inttypes.h>
#include <string.h>

#include "base/float_mode.h"
#include "base/memory.h"
#include "base/status.h"
#include "base/thread.h"
#include "collective/description.h"
#include "collective/replicas.h"
#include "optim/print.h"
#include "shard/shard.h"
#include "zero/zero.h"

/* ---- sections ---- */

static cz_status count_section(void *context, const cz__section *section)
{
    ++*(int64_t *)context;
    return CZ_OK;
}

typedef struct sections {
    const cz_zero *zero;
    uint64_t *prints; /* two for each section */
    int64_t next;
    uint64_t all[2];
} sections;

static cz_status note_section(void *context, const cz__section *section)
{
    sections *s = context;
    uint64_t *print = s->prints + 2 * s->next++;
    print[0] = print[1] = 0;
    CZ_TRY(cz__section_print(section, print));
    s->all[0] += print[0];
    s->all[1] += print[1];
    return CZ_OK;
}

static cz_status compare_section(void *context, const cz__section *section)
{
    sections *s = context;
    const uint64_t *noted = s->prints + 2 * s->next++;
    uint64_t print[2] = {0, 0};
    CZ_TRY(cz__section_print(section, print));
    if (memcmp(print, noted, sizeof print) == 0)
        return CZ_OK;
    return cz__fail(CZ_ERR_MISMATCH,
                    "zero check_fingerprint: %s%sparameter %" PRId64
                    " '%.60s' has changed since the fingerprint after %" PRId64
                    " steps, somewhere in elements %" PRId64 " to %" PRId64,
                    section->slot ? section->slot : "", section->slot ? " of " : "", section->param,
                    cz__model_name(s->zero->model, section->param), s->zero->step_count,
                    section->begin, section->end - 1);
}

/* One rank has those that nobody owns. */
static bool has_rest(const cz_zero *zero)
{
    return cz_group_rank(zero->group) == 0;
}

/* ---- what ranks hold of the same parameters ---- */

static cz_status compare_values(cz_zero *zero, cz__replica *list, cz_status mine)
{
    const cz__asker asker = {"zero step", &zero->object, zero->step_count};
    int64_t count = 0;
    if (list) {
        for (int64_t p = 0; p < zero->param_count; p++)
            if (cz__zero_is_trained(zero, p))
                list[count++] = cz__replica_of_param(zero->model, p);
    }
    return cz__check_replicas(zero->group, &asker, list, count, mine);
}

cz_status cz__zero_compare_in_checked_mode(cz_zero *zero)
{
    if (!cz__group_is_checked(zero->group) || zero->shared_values || cz_group_size(zero->group) < 2)
        return CZ_OK;
    /* With overlap_gather values may still be on their way. */
    cz_status mine = zero->ddp ? cz__ddp_settle(zero->ddp) : CZ_OK;
    cz__replica *list = cz__calloc((size_t)zero->param_count, sizeof *list);
    if (!list && mine == CZ_OK)
        mine = cz__fail(CZ_ERR_MEMORY, "zero step: no memory for a list of %" PRId64 " parameters",
                        zero->param_count);
    const cz_status status = compare_values(zero, list, mine);
    cz__free(list);
    return status;
}

/* ---- the fingerprint ---- */

static cz_status have_room(cz_zero *zero)
{
    int64_t count = 0;
    CZ_TRY(cz__optim_visit_sections(zero->optim, has_rest(zero), count_section, &count));
    if (zero->prints && count == zero->print_count)
        return CZ_OK;
    cz__free(zero->prints);
    zero->print_count = count;
    zero->prints = cz__calloc(2 * (size_t)count, sizeof *zero->prints);
    return zero->prints
               ? CZ_OK
               : cz__fail(CZ_ERR_MEMORY,
                          "zero fingerprint: no memory for a table of %" PRId64 " sections", count);
}

static cz_status add_up(cz_zero *zero, uint64_t print[2])
{
    const int rank = cz_group_rank(zero->group);
    sections s = {.zero = zero};
    zero->printed = false;
    CZ_TRY(cz__zero_check_idle(zero));
    CZ_TRY(have_room(zero));
    s.prints = zero->prints;
    CZ_TRY(cz__optim_visit_sections(zero->optim, has_rest(zero), note_section, &s));
    for (int64_t k = 0; k < zero->param_count; k++)
        if (cz__shard_map_home(zero->map, k) == rank)
            cz__optim_print_scalars(zero->optim, k, s.all);
    memcpy(print, s.all, sizeof s.all);
    return CZ_OK;
}

cz_status cz_zero_fingerprint(cz_zero *zero, uint64_t fingerprint[2])
{
    CZ__OWN_FLOATS;
    CZ__UNCANCELLED;
    uint64_t print[2] = {0, 0};
    bool same;
    if (!zero)
        return cz__fail(CZ_ERR_ARGUMENT, "zero fingerprint: zero is NULL");
    const cz_status mine = fingerprint
                               ? add_up(zero, print)
                               : cz__fail(CZ_ERR_ARGUMENT, "zero fingerprint: fingerprint is NULL");
    CZ_TRY(cz__agree_for(zero->group, &zero->object, mine, 0, &same, "zero fingerprint"));
    CZ_TRY(cz_all_reduce(zero->group, print, 2, CZ_I64, CZ_SUM, CZ_LABEL("zero: fingerprint")));
    memcpy(fingerprint, print, sizeof print);
    zero->printed = true;
    zero->printed_at = zero->step_count;
    return CZ_OK;
}

static cz_status compare(cz_zero *zero)
{
    sections s = {.zero = zero, .prints = zero->prints};
    if (!zero->printed || zero->printed_at != zero->step_count)
        return cz__fail(CZ_ERR_STATE, "zero check_fingerprint: %s",
                        zero->printed ? "a step came after the last fingerprint"
                                      : "no fingerprint was taken");
    CZ_TRY(cz__zero_check_idle(zero));
    return cz__optim_visit_sections(zero->optim, has_rest(zero), compare_section, &s);
}

cz_status cz_zero_check_fingerprint(cz_zero *zero)
{
    CZ__OWN_FLOATS;
    CZ__UNCANCELLED;
    bool same;
    if (!zero)
        return cz__fail(CZ_ERR_ARGUMENT, "zero check_fingerprint: zero is NULL");
    return cz__agree_for(zero->group, &zero->object, compare(zero), 0, &same,
                         "zero check_fingerprint");
}
