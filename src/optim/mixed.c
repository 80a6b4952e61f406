/* SPDX-License-Identifier: MIT */
/* Updates where values, gradients or state are of another type than the one in which kernels
 * compute. What is of another one they get as tiles in f32, which are made, and brought back, while
 * all of it is in a cache: memory is gone through once. */
#include "base/fingerprint.h"
#include "optim/object.h"

/* What is here of a slot: elements of a type, or codes. NULL: it is not in use. */
typedef struct slot_memory {
    void *at;
    float *scales;
    bool is_signed;
} slot_memory;

/* `first` is a multiple of a block's elements where there are codes. */
static slot_memory slot_at(const cz_optim *optim, const cz__local_span *span,
                           const cz__span_memory *memory, int slot, int64_t first)
{
    const cz__optim_group *group = &optim->groups[span->group];
    char *at = memory->slots[slot];
    float *scales = memory->scales[slot];
    const size_t size = scales ? sizeof(uint8_t) : cz_dtype_size(group->state_dtype);
    return (slot_memory){.at = at ? at + (size_t)first * size : NULL,
                         .scales = scales ? scales + first / CZ__BLOCK : NULL,
                         .is_signed = group->with_sign >> slot & 1u};
}

/* Elements in f32: where they are, or in the next row. */
static void *widen(const cz_device *device, cz_dtype dtype, void *from, int64_t count, float **rows)
{
    float *row = *rows;
    if (dtype == CZ_F32)
        return from;
    *rows += CZ__ROW;
    (void)device->convert(NULL, CZ_F32, row, dtype, from, count);
    return row;
}

/* A slot: in f32, or of codes, for which `scales` are. */
static void *widen_slot(const cz_device *device, cz_dtype dtype, const slot_memory *slot,
                        int64_t count, float **rows)
{
    float *row = *rows;
    if (!slot->scales)
        return slot->at ? widen(device, dtype, slot->at, count, rows) : NULL;
    *rows += CZ__ROW;
    cz__unpack(slot->is_signed, count, slot->at, slot->scales, row);
    return row;
}

/* The gradient, multiplied by what it is to be multiplied by. */
static const void *widen_gradient(const cz_device *device, const cz__piece *piece, const void *from,
                                  int64_t count, float **rows)
{
    float *row = *rows;
    if (piece->dtype == CZ_F32 && piece->factor == 1)
        return from;
    *rows += CZ__ROW;
    (void)device->convert(NULL, CZ_F32, row, piece->dtype, from, count);
    if (piece->factor != 1)
        (void)device->scale(NULL, CZ_F32, piece->factor, count, row);
    return row;
}

/* Rounded by chance to where it came from. Both passes of a rule round its slots: apart. */
static void bring_back(const cz_device *device, cz_dtype dtype, void *to, const void *wide,
                       int64_t count, uint64_t key, int64_t slot, int64_t first)
{
    if (dtype != CZ_F32 && to)
        (void)device->convert_stochastic(NULL, dtype, to, wide, count,
                                         cz__fingerprint(key, &slot, sizeof slot), first);
}

enum { SLOT_OF_VALUE = -1, SLOTS_OF_FIRST_PASS = CZ__RULE_SLOTS };

/* `first` of the piece, `count` elements; with sums the rule's first pass. */
static void update_mixed_tile(const cz_optim *optim, const cz__piece *piece,
                              const cz__prepared *prepared, const cz__span_memory *memory,
                              int64_t first, int64_t count, cz_sum *sums)
{
    const cz__local_span *span = &optim->shard.spans[piece->place];
    const cz_device *device = span->device;
    const cz_dtype state = optim->groups[span->group].state_dtype;
    const cz_dtype dtype = cz__model_value(optim->model, span->param)->dtype;
    const int64_t place = span->begin + piece->first + first;
    const int rule_slots = cz__optim_rule_slots(optim);
    float *rows = cz__optim_scratch(optim, device, piece->part);
    char *value = memory->value + (size_t)first * cz_dtype_size(dtype);
    float *master = optim->master_slot < 0 ? NULL : memory->slots[optim->master_slot];
    slot_memory slots[CZ__RULE_SLOTS];
    void *wide[CZ__RULE_SLOTS], *param;
    const void *gradient = widen_gradient(
        device, piece, memory->gradient + (size_t)first * cz_dtype_size(piece->dtype), count,
        &rows);
    if (master) {
        param = master += first;
        (void)device->refresh(NULL, dtype, value, master, count);
    } else {
        param = widen(device, dtype, value, count, &rows);
    }
    for (int e = 0; e < rule_slots; e++) {
        slots[e] = slot_at(optim, span, memory, e, first);
        wide[e] = widen_slot(device, state, &slots[e], count, &rows);
    }
    if (sums)
        optim->sums_kernel(NULL, count, param, gradient, wide, prepared->coefficients,
                           prepared->flags, sums);
    else
        optim->kernel(NULL, count, param, gradient, wide, prepared->coefficients, prepared->flags);
    for (int e = 0; e < rule_slots; e++)
        if (slots[e].scales)
            cz__pack(slots[e].is_signed, count, wide[e], slots[e].at, slots[e].scales);
        else
            bring_back(device, state, slots[e].at, wide[e], count, prepared->key,
                       sums ? e + SLOTS_OF_FIRST_PASS : e, place);
    if (sums)
        return;
    if (master)
        (void)device->convert(NULL, dtype, value, CZ_F32, master, count);
    else
        bring_back(device, dtype, value, param, count, prepared->key, SLOT_OF_VALUE, place);
}

void cz__optim_update_mixed(const cz_optim *optim, const cz__piece *piece,
                            const cz__prepared *prepared, const cz__span_memory *memory,
                            cz_sum *sums)
{
    for (int64_t first = 0; first < piece->count; first += CZ__TILE) {
        const int64_t left = piece->count - first;
        update_mixed_tile(optim, piece, prepared, memory, first, left < CZ__TILE ? left : CZ__TILE,
                          sums);
    }
}
