/* SPDX-License-Identifier: MIT */
/* State in 8 bits: which slots of which parameters, where it lies, and in f32 for those who look at
 * state by address. Updates have a block at a time in f32 (mixed.c). */
#include <inttypes.h>
#include <string.h>

#include "base/memory.h"
#include "base/status.h"
#include "optim/object.h"
#include "shard/shard.h"

/* ---- which ---- */

/* Moments: averages of gradients, which may be below zero, and of their squares, which are not. */
static const struct {
    const cz_rule *(*rule)(void);
    const char *slot;
    bool is_signed;
} moments[] = {
    {cz__rule_adam, "exp_avg", true},         {cz__rule_adam, "exp_avg_sq", false},
    {cz__rule_adam, "max_exp_avg_sq", false}, {cz__rule_adamw, "exp_avg", true},
    {cz__rule_adamw, "exp_avg_sq", false},    {cz__rule_adamw, "max_exp_avg_sq", false},
    {cz__rule_lion, "exp_avg", true},         {cz__rule_sgd, "momentum_buffer", true},
};

/* Of a rule's slot: may it be, and with which codes? */
static bool is_moment(const cz_rule *rule, const char *slot, bool *is_signed)
{
    for (size_t k = 0; k < sizeof moments / sizeof *moments; k++) {
        *is_signed = moments[k].is_signed;
        if (moments[k].rule() == rule && strcmp(moments[k].slot, slot) == 0)
            return true;
    }
    return false;
}

cz_status cz__optim_settle_packed(const cz_optim *optim, int64_t number)
{
    cz__optim_group *group = &optim->groups[number];
    const cz_rule *rule = group->rule;
    for (int i = 0, e = 0; i < rule->slot_count; i++) {
        const cz_slot_spec slot = cz__rule_slot(rule, i);
        bool with_sign;
        if (slot.kind == CZ_SLOT_ELEMENT && is_moment(rule, slot.name, &with_sign)) {
            group->packed |= 1u << e;
            group->with_sign |= (unsigned)with_sign << e;
        }
        e += slot.kind == CZ_SLOT_ELEMENT;
    }
    group->state_dtype = CZ_F32;
    return group->packed
               ? CZ_OK
               : cz__fail(CZ_ERR_ARGUMENT,
                          "optim: state_dtype of parameter group %" PRId64
                          " is u8, and rule %s has no state that is kept in 8 bits: adam, adamw, "
                          "lion and sgd have",
                          number, rule->name);
}

static bool is_large_enough(const cz_optim *optim, int64_t param)
{
    return cz_tensor_count(cz__model_value(optim->model, param)) >= optim->packed_from;
}

bool cz__optim_is_packed(const cz_optim *optim, int64_t param, int slot)
{
    const int64_t group = optim->group_of[param];
    return group >= 0 && slot >= 0 && optim->groups[group].packed >> slot & 1u &&
           is_large_enough(optim, param);
}

int64_t cz__optim_block(const cz_optim *optim, int64_t param)
{
    const int64_t group = optim->group_of[param];
    return group >= 0 && optim->groups[group].packed && is_large_enough(optim, param) ? CZ__BLOCK
                                                                                      : 1;
}

cz_status cz__optim_check_blocks(const cz_optim *optim, const cz_shard_map *map)
{
    for (int64_t p = 0; p < optim->param_count; p++) {
        const int64_t count = cz__shard_map_count(map, p);
        cz_span span;
        if (cz__optim_block(optim, p) == 1)
            continue;
        for (int64_t at = 0; at < count && cz__shard_map_locate(map, p, at, &span); at = span.end)
            if (span.end < count && span.end % CZ__BLOCK != 0)
                return cz__fail(CZ_ERR_ARGUMENT,
                                "optim: state in 8 bits has blocks of %d elements, and the shard "
                                "map cuts parameter '%.60s' at element %" PRId64 " of %" PRId64
                                "; partition greedily or with given owners",
                                CZ__BLOCK, cz__model_name(optim->model, p), span.end, count);
    }
    return CZ_OK;
}

/* ---- where ---- */

size_t cz__packed_bytes(int64_t count)
{
    return (size_t)cz__blocks(count) * sizeof(float) + (size_t)count;
}

cz__packed cz__optim_packed(const cz_optim *optim, const cz__optim_shard *shard, int64_t place,
                            int slot, int64_t first)
{
    const cz__local_span *span = &shard->spans[place];
    float *scales = shard->slots[place * optim->slot_count + slot];
    uint8_t *codes = (uint8_t *)(scales + cz__blocks(span->end - span->begin));
    return (cz__packed){scales + first / CZ__BLOCK, codes + first};
}

static bool is_signed(const cz_optim *optim, int64_t group, int slot)
{
    return optim->groups[group].with_sign >> slot & 1u;
}

static void read_packed(const cz_optim *optim, const cz__optim_shard *shard, int64_t place,
                        int slot, int64_t first, int64_t count, float *values)
{
    const cz__packed packed = cz__optim_packed(optim, shard, place, slot, first);
    cz__unpack(is_signed(optim, shard->spans[place].group, slot), count, packed.codes,
               packed.scales, values);
}

static void write_packed(const cz_optim *optim, const cz__optim_shard *shard, int64_t place,
                         int slot, int64_t first, int64_t count, const float *values)
{
    const cz__packed packed = cz__optim_packed(optim, shard, place, slot, first);
    cz__pack(is_signed(optim, shard->spans[place].group, slot), count, values, packed.codes,
             packed.scales);
}

void cz__optim_read_packed(const cz_optim *optim, int64_t place, int slot, int64_t first,
                           int64_t count, float *values)
{
    read_packed(optim, &optim->shard, place, slot, first, count, values);
}

void cz__optim_write_packed(const cz_optim *optim, int64_t place, int slot, int64_t first,
                            int64_t count, const float *values)
{
    write_packed(optim, &optim->shard, place, slot, first, count, values);
}

/* ---- in f32, by address ---- */

static bool is_here(const cz_optim *optim, const cz__optim_shard *shard, int64_t place, int slot)
{
    const cz__local_span *span = &shard->spans[place];
    return span->begin < span->end && span->slots >> slot & 1u &&
           cz__optim_is_packed(optim, span->param, slot);
}

/* For each slot that is here in 8 bits. */
typedef cz_status (*slot_visitor)(const cz_optim *optim, cz__optim_shard *shard, int64_t place,
                                  int slot);
static cz_status visit(const cz_optim *optim, cz__optim_shard *shard, slot_visitor visitor)
{
    for (int64_t s = 0; s < shard->span_count; s++)
        for (int e = 0; e < optim->slot_count; e++)
            if (is_here(optim, shard, s, e))
                CZ_TRY(visitor(optim, shard, s, e));
    return CZ_OK;
}

static float **unpacked_at(const cz_optim *optim, const cz__optim_shard *shard, int64_t place,
                           int slot)
{
    return &shard->unpacked[place * optim->slot_count + slot];
}

static int64_t elements_of(const cz__optim_shard *shard, int64_t place)
{
    return shard->spans[place].end - shard->spans[place].begin;
}

static cz_status have_unpacked(const cz_optim *optim, cz__optim_shard *shard, int64_t place,
                               int slot)
{
    const int64_t count = elements_of(shard, place);
    float **to = unpacked_at(optim, shard, place, slot);
    *to = cz__calloc((size_t)count, sizeof **to);
    return *to ? CZ_OK
               : cz__fail(CZ_ERR_MEMORY,
                          "optim: no memory for %" PRId64
                          " elements of state in f32, which is kept in 8 bits",
                          count);
}

static cz_status unpack_slot(const cz_optim *optim, cz__optim_shard *shard, int64_t place, int slot)
{
    read_packed(optim, shard, place, slot, 0, elements_of(shard, place),
                *unpacked_at(optim, shard, place, slot));
    return CZ_OK;
}

static cz_status pack_slot(const cz_optim *optim, cz__optim_shard *shard, int64_t place, int slot)
{
    write_packed(optim, shard, place, slot, 0, elements_of(shard, place),
                 *unpacked_at(optim, shard, place, slot));
    return CZ_OK;
}

static bool has_packed(const cz_optim *optim)
{
    for (int64_t k = 0; k < optim->group_count; k++)
        if (optim->groups[k].packed)
            return true;
    return false;
}

cz_status cz__shard_unpack(const cz_optim *optim, cz__optim_shard *shard)
{
    cz__shard_drop_unpacked(optim, shard);
    if (!has_packed(optim))
        return CZ_OK;
    const size_t cells = (size_t)shard->span_count * (size_t)optim->slot_count;
    shard->unpacked = cz__calloc(cells, sizeof *shard->unpacked);
    cz_status status = shard->unpacked
                           ? visit(optim, shard, have_unpacked)
                           : cz__fail(CZ_ERR_MEMORY, "optim: no memory for a table of state");
    if (status == CZ_OK)
        cz__shard_read_again(optim, shard);
    else
        cz__shard_drop_unpacked(optim, shard);
    return status;
}

void cz__shard_read_again(const cz_optim *optim, cz__optim_shard *shard)
{
    if (shard->unpacked)
        (void)visit(optim, shard, unpack_slot);
}

void cz__shard_pack(const cz_optim *optim, cz__optim_shard *shard)
{
    if (shard->unpacked)
        (void)visit(optim, shard, pack_slot);
    cz__shard_drop_unpacked(optim, shard);
}

void cz__shard_drop_unpacked(const cz_optim *optim, cz__optim_shard *shard)
{
    if (!shard->unpacked)
        return;
    for (int64_t k = 0; k < shard->span_count * optim->slot_count; k++)
        cz__free(shard->unpacked[k]);
    cz__free(shard->unpacked);
    shard->unpacked = NULL;
}

cz_status cz__optim_unpack(cz_optim *optim)
{
    return cz__shard_unpack(optim, &optim->shard);
}

void cz__optim_pack(cz_optim *optim)
{
    cz__shard_pack(optim, &optim->shard);
}

void cz__optim_drop_unpacked(cz_optim *optim)
{
    cz__shard_drop_unpacked(optim, &optim->shard);
}
