/* SPDX-License-Identifier: MIT */
/* The sharded optimizer's state as one dictionary: put together on one rank or on all, handed out,
 * and taken apart again. */
#include <string.h>

#include "base/float_mode.h"
#include "base/memory.h"
#include "base/status.h"
#include "base/thread.h"
#include "czero/state.h"
#include "shard/shard.h"
#include "zero/zero.h"
#include "collective/model.h"

/* ---- putting it together ---- */

typedef struct consolidation {
    cz_zero *zero;
    int to; /* CZ_ALL_RANKS or a rank */
    cz__zero_progress shared;
    cz__progress progress;
    cz_state_dict *dict;  /* owned; NULL on ranks that receive nothing */
    cz_shard_map *target; /* owned, as the others: the receiver owns everything */
    uint8_t *include;     /* parameters with the slot at hand */
    void **tensors;       /* addresses of element 0 of the slot at hand in `dict` */
    int slot;
    cz_dtype dtype; /* of this one, of the parameters that are in hand */
} consolidation;

static void consolidation_clear(consolidation *c)
{
    cz__optim_drop_unpacked(c->zero->optim);
    cz__zero_progress_clear(&c->shared);
    cz_state_dict_destroy(&c->dict);
    cz__shard_map_destroy(&c->target);
    cz__free(c->include);
    cz__free(c->tensors);
}

static bool receives(const consolidation *c)
{
    return c->to == CZ_ALL_RANKS || c->to == cz_group_rank(c->zero->group);
}

static cz_status make_target(consolidation *c)
{
    const cz_zero *zero = c->zero;
    const int receiver = c->to == CZ_ALL_RANKS ? 0 : c->to;
    int64_t *counts = cz__calloc((size_t)zero->param_count, sizeof *counts);
    if (!counts)
        return cz__fail(CZ_ERR_MEMORY, "zero consolidate: no memory for a table of %lld parameters",
                        (long long)zero->param_count);
    for (int64_t p = 0; p < zero->param_count; p++)
        counts[p] = cz__shard_map_count(zero->map, p);
    const cz_status status = cz__shard_map_create_single(&c->target, cz_group_size(zero->group),
                                                         zero->param_count, counts, receiver);
    cz__free(counts);
    return status;
}

static cz_status allocate(consolidation *c)
{
    const size_t params = (size_t)c->zero->param_count;
    c->include = cz__calloc(params, sizeof *c->include);
    c->tensors = cz__calloc(params, sizeof *c->tensors);
    if (!c->include || !c->tensors)
        return cz__fail(CZ_ERR_MEMORY, "zero consolidate: no memory for tables of %zu parameters",
                        params);
    CZ_TRY(make_target(c));
    CZ_TRY(cz__optim_unpack(c->zero->optim));
    return receives(c) ? cz__optim_dict_create(&c->dict, c->zero->optim, &c->progress) : CZ_OK;
}

static const void *source(void *context, int64_t param, int64_t begin)
{
    const consolidation *c = context;
    return cz__optim_slot_address(c->zero->optim, param, c->slot, begin);
}

static void *target(void *context, int64_t param, int64_t begin)
{
    const consolidation *c = context;
    return (char *)c->tensors[param] + (size_t)begin * cz_dtype_size(c->dtype);
}

/* All ranks: own spans into the dictionary, then each span from there to everybody. */
static cz_status gather_slot(consolidation *c)
{
    const cz_zero *zero = c->zero;
    const cz__mapped memory = {
        .map = zero->map, .data = c->tensors, .include = c->include, .dtype = c->dtype};
    cz_span_iterator iterator;
    cz_span span;
    cz_span_iterate(zero->map, cz_group_rank(zero->group), &iterator);
    while (cz_span_next(&iterator, &span))
        if (c->include[span.param])
            CZ_TRY(zero->device->copy(NULL, target(c, span.param, span.begin),
                                      source(c, span.param, span.begin),
                                      (size_t)(span.end - span.begin) * cz_dtype_size(c->dtype)));
    return cz__gather_along_map(zero->group, &memory, CZ_LABEL("consolidate"));
}

static cz_status bring_slot(consolidation *c)
{
    const cz_zero *zero = c->zero;
    const cz__move move = {.from = zero->map,
                           .to = c->target,
                           .include = c->include,
                           .element_size = cz_dtype_size(c->dtype),
                           .source = source,
                           .target = target,
                           .context = c};
    if (!cz__zero_include_slot(zero, &c->progress, c->slot, c->dtype, c->include))
        return CZ_OK;
    for (int64_t p = 0; p < zero->param_count; p++)
        if (c->include[p] && c->dict)
            c->tensors[p] = cz__optim_dict_slot(zero->optim, c->dict, p, c->slot);
    return c->to == CZ_ALL_RANKS ? gather_slot(c)
                                 : cz__move_between_maps(zero->group, &move, "consolidate");
}

static cz_status consolidate(consolidation *c)
{
    cz_zero *zero = c->zero;
    CZ_TRY(cz__zero_progress_create(zero, &c->shared));
    c->progress = cz__zero_progress_view(&c->shared);
    CZ_TRY(cz__agree(zero->group, allocate(c), 0, NULL, "zero: consolidate"));
    for (c->slot = 0; c->slot < cz__optim_slot_count(zero->optim); c->slot++)
        for (c->dtype = CZ_F32; c->dtype <= CZ_BF16; c->dtype++)
            CZ_TRY(bring_slot(c));
    return CZ_OK;
}

static cz_status check_receiver(const cz_zero *zero, int to)
{
    const int ranks = cz_group_size(zero->group);
    if (to == CZ_ALL_RANKS || (to >= 0 && to < ranks))
        return CZ_OK;
    return cz__fail(CZ_ERR_ARGUMENT,
                    "zero consolidate: to rank %d, the group has 0 to %d (CZ_ALL_RANKS: %d)", to,
                    ranks - 1, CZ_ALL_RANKS);
}

static void describe_receiver(cz__description *d, const void *context)
{
    const consolidation *c = context;
    cz__describe_call(d, &c->zero->object);
    cz__describe_number(d, &(cz__subject){NULL, "the receiver", -1, NULL, "is rank"},
                        CZ__FIELD_NUMBER, c->to);
}

cz_status cz_zero_consolidate_state_dict(cz_zero *zero, int to)
{
    CZ__OWN_FLOATS;
    CZ__UNCANCELLED;
    cz__description room = {0};
    if (!zero)
        return cz__fail(CZ_ERR_ARGUMENT, "zero consolidate: zero is NULL");
    consolidation c = {.zero = zero, .to = to};
    const cz_status agreed = cz__agree_on(zero->group, "zero consolidate", describe_receiver, &c,
                                          check_receiver(zero, to), &room);
    cz__description_clear(&room);
    CZ_TRY(agreed);
    CZ_TRY(cz__agree_on(zero->group, "zero", cz__describe_settings, zero, cz__zero_check_idle(zero),
                        &zero->settings));
    cz__zero_forget_dict(zero);
    const cz_status status = consolidate(&c);
    if (!status) {
        zero->consolidated = c.dict;
        zero->consolidated_to = to;
        zero->consolidated_at = zero->step_count;
        c.dict = NULL;
    }
    consolidation_clear(&c);
    return status;
}

/* ---- handing it out ---- */

cz_status cz_zero_state_dict(cz_zero *zero, cz_state_dict **out)
{
    CZ__UNCANCELLED;
    if (out)
        *out = NULL;
    if (!zero || !out)
        return cz__fail(CZ_ERR_ARGUMENT, "zero state_dict: %s is NULL", zero ? "out" : "zero");
    const int rank = cz_group_rank(zero->group);
    if (zero->consolidated_to == CZ__NOWHERE)
        return cz__fail(CZ_ERR_STATE,
                        "zero state_dict: nothing is consolidated on rank %d; all ranks call "
                        "cz_zero_consolidate_state_dict() first",
                        rank);
    if (zero->consolidated_to != CZ_ALL_RANKS && zero->consolidated_to != rank)
        return cz__fail(CZ_ERR_STATE,
                        "zero state_dict: rank %d asked, the state was consolidated on rank %d",
                        rank, zero->consolidated_to);
    if (zero->consolidated_at != zero->step_count)
        return cz__fail(
            CZ_ERR_STATE,
            "zero state_dict: what is consolidated is %lld steps old; consolidate again",
            (long long)(zero->step_count - zero->consolidated_at));
    *out = zero->consolidated;
    zero->consolidated = NULL;
    cz__zero_forget_dict(zero);
    return CZ_OK;
}

/* ---- taking it apart ---- */

static void describe_dict(cz__description *d, const void *context)
{
    cz__describe_dict(d, "the state dictionary", NULL, context);
}

/* Never CZ_OK. */
static cz_status name_difference(const cz_zero *zero, const cz_state_dict *dict)
{
    cz__description room = {0};
    const cz_status status =
        cz__agree_on(zero->group, "zero load_state_dict", describe_dict, dict, CZ_OK, &room);
    cz__description_clear(&room);
    return status != CZ_OK
               ? status
               : cz__fail(CZ_ERR_MISMATCH,
                          "zero load_state_dict: ranks were given different dictionaries");
}

cz_status cz_zero_load_state_dict(cz_zero *zero, const cz_state_dict *dict)
{
    CZ__OWN_FLOATS;
    CZ__UNCANCELLED;
    cz__load *load = NULL;
    bool same;
    if (!zero)
        return cz__fail(CZ_ERR_ARGUMENT, "zero load_state_dict: zero is NULL");
    cz_status status = cz__zero_check_idle(zero);
    if (!status)
        status = cz__load_create(&load, zero->optim, dict, CZ_MISSING_NONE, false);
    status = cz__agree_for(zero->group, &zero->object, status,
                           load ? cz__load_fingerprint(load) : 0, &same, "zero: load_state_dict");
    if (status)
        goto done;
    if (!same)
        status = name_difference(zero, dict);
    if (status)
        goto done;
    cz__load_commit(load);
    cz__zero_forget_dict(zero);
done:
    cz__load_destroy(&load);
    return status;
}
