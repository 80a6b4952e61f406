/* SPDX-License-Identifier: MIT */
/* Updates where values, gradients or state are of another type than the one in which rules
 * compute. What is of another one kernels get as tiles in f32, which are made, and brought back,
 * while all of it is in a cache: memory is gone through once. Rules over whole tensors get all of
 * it at once. */
#include "base/fingerprint.h"
#include "optim/object.h"

/* Scratch memory for arrays in f32. */
typedef struct rows {
    char *next;
    size_t bytes; /* from one to the next */
} rows;

static float *take_row(rows *r)
{
    float *row = (float *)(void *)r->next;
    r->next += r->bytes;
    return row;
}

/* Elements in f32: where they are, or in the next row. */
static void *widen(const cz_device *device, cz_dtype dtype, void *from, int64_t count, rows *r)
{
    if (dtype == CZ_F32)
        return from;
    float *row = take_row(r);
    (void)device->convert(NULL, CZ_F32, row, dtype, from, count);
    return row;
}

/* The gradient, multiplied by what it is to be multiplied by. */
static const void *widen_gradient(const cz_device *device, const cz__piece *piece, const void *from,
                                  int64_t count, rows *r)
{
    if (piece->dtype == CZ_F32 && piece->factor == 1)
        return from;
    float *row = take_row(r);
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

/* Those of a whole tensor have all of its elements, after the rule's own scratch memory. */
static rows find_rows(const cz_optim *optim, const cz__local_span *span, int part)
{
    char *scratch = cz__optim_scratch(optim, span->device, part);
    if (!cz__optim_use(optim, span->group)->rule->update_tensor)
        return (rows){scratch, CZ__ROW * sizeof(float)};
    return (rows){scratch + cz__optim_own_scratch_bytes(optim, span->param),
                  cz__optim_tensor_row_bytes(optim, span->param)};
}

/* ---- updates ---- */

void cz__optim_update_tensor(const cz_optim *optim, int64_t param, void *value,
                             const void *gradient, void *const *slots, const cz__prepared *prepared,
                             int part)
{
    const cz_device *device = cz__device_of(cz__model_value(optim->model, param));
    cz_tensor tensor = *cz__model_value(optim->model, param);
    tensor.data = value;
    tensor.dtype = optim->dtype;
    const cz_tensor_update update = {
        .size = sizeof update,
        .param = &tensor,
        .grad = gradient,
        .slots = slots,
        .coefficients = prepared->coefficients,
        .flags = prepared->flags,
        .scratch = cz__optim_scratch(optim, device, part),
        .context = cz__optim_rule_of(optim, param)->context,
    };
    cz__optim_rule_of(optim, param)->update_tensor(&update);
}

enum { SLOT_OF_VALUE = -1, SLOTS_OF_FIRST_PASS = CZ__RULE_SLOTS };

/* `first` of the piece, `count` elements; with sums the rule's first pass. */
static void update_mixed_tile(const cz_optim *optim, const cz__piece *piece,
                              const cz__prepared *prepared, const cz__span_memory *memory,
                              int64_t first, int64_t count, cz_sum *sums)
{
    const cz__local_span *span = &optim->shard.spans[piece->place];
    const cz_device *device = span->device;
    const cz__rule_use *use = cz__optim_use(optim, span->group);
    const cz_dtype state = optim->groups[span->group].state_dtype;
    const cz_dtype dtype = cz__model_value(optim->model, span->param)->dtype;
    const int64_t place = span->begin + piece->first + first;
    const int rule_slots = use->slot_count;
    rows rows_left = find_rows(optim, span, piece->part);
    char *value = memory->value + (size_t)first * cz_dtype_size(dtype);
    float *master = optim->master_slot < 0 ? NULL : memory->slots[optim->master_slot];
    void *slots[CZ__RULE_SLOTS], *wide[CZ__RULE_SLOTS], *param;
    const void *gradient = widen_gradient(
        device, piece, memory->gradient + (size_t)first * cz_dtype_size(piece->dtype), count,
        &rows_left);
    if (master) {
        param = master += first;
        (void)device->refresh(NULL, dtype, value, master, count);
    } else {
        param = widen(device, dtype, value, count, &rows_left);
    }
    for (int e = 0; e < rule_slots; e++) {
        char *slot = memory->slots[e];
        slots[e] = slot ? slot + (size_t)first * cz_dtype_size(state) : NULL;
        wide[e] = slot ? widen(device, state, slots[e], count, &rows_left) : NULL;
    }
    if (sums)
        use->sums_kernel(NULL, count, param, gradient, wide, prepared->coefficients,
                         prepared->flags, sums);
    else if (use->rule->update_tensor)
        cz__optim_update_tensor(optim, span->param, param, gradient, wide, prepared, piece->part);
    else
        use->kernel(NULL, count, param, gradient, wide, prepared->coefficients, prepared->flags);
    for (int e = 0; e < rule_slots; e++)
        bring_back(device, state, slots[e], wide[e], count, prepared->key,
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
    const cz__local_span *span = &optim->shard.spans[piece->place];
    const bool whole = cz__optim_use(optim, span->group)->rule->update_tensor != NULL;
    for (int64_t first = 0, count; first < piece->count; first += count) {
        const int64_t left = piece->count - first;
        count = whole || left < CZ__TILE ? left : CZ__TILE;
        update_mixed_tile(optim, piece, prepared, memory, first, count, sums);
    }
}
