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

/* What is here of a slot: elements of a type, or codes, for which `scales` are. NULL: it is not in
 * use. */
typedef struct slot_memory {
    void *at;
    float *scales;
    bool is_signed;
} slot_memory;

/* In f32. */
static void *widen_slot(const cz_device *device, cz_dtype dtype, const slot_memory *slot,
                        int64_t count, rows *r)
{
    if (!slot->scales)
        return slot->at ? widen(device, dtype, slot->at, count, r) : NULL;
    float *row = take_row(r);
    cz__unpack(slot->is_signed, count, slot->at, slot->scales, row);
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
                       int64_t count, uint64_t key, int64_t first)
{
    if (dtype != CZ_F32 && to)
        (void)device->convert_stochastic(NULL, dtype, to, wide, count, key, first);
}

/* ---- whole tensors: after the rule's own scratch memory rows of all elements ---- */

static rows find_rows(const cz_optim *optim, const cz__local_span *span, int part)
{
    char *scratch = cz__optim_scratch(optim, span->device, part);
    if (!cz__optim_use(optim, span->group)->rule->update_tensor)
        return (rows){scratch, CZ__ROW * sizeof(float)};
    return (rows){scratch + cz__optim_own_scratch_bytes(optim, span->param),
                  cz__optim_row_bytes(optim, span->param)};
}

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

/* ---- updates ---- */

enum { SLOT_OF_VALUE = -1, SLOTS_OF_FIRST_PASS = CZ__RULE_SLOTS };

/* A piece, and what is the same for all of its tiles. */
typedef struct mixed_piece {
    const cz_optim *optim;
    const cz__piece *piece;
    const cz__prepared *prepared;
    const cz__span_memory *memory;
    const cz_device *device;
    const cz__rule_use *use;
    cz_dtype dtype, state; /* of the values, of what the rule keeps */
    size_t size, gradient_size, state_size;
    int rule_slots;
    bool whole; /* the tensor is one tile */
    rows rows;
    int64_t place;                      /* of its first element */
    uint64_t key, keys[CZ__RULE_SLOTS]; /* of the value, of each slot */
    cz_sum *sums;                       /* NULL, or for the rule's first pass */
} mixed_piece;

/* From that element on, with which a block begins where there are codes. */
static slot_memory slot_at(const mixed_piece *m, int slot, int64_t first)
{
    const cz__optim_group *group = &m->optim->groups[m->optim->shard.spans[m->piece->place].group];
    char *at = m->memory->slots[slot];
    float *scales = m->memory->scales[slot];
    const size_t size = scales ? sizeof(uint8_t) : m->state_size;
    return (slot_memory){.at = at ? at + (size_t)first * size : NULL,
                         .scales = scales ? scales + first / CZ__BLOCK : NULL,
                         .is_signed = group->with_sign >> slot & 1u};
}

/* `first` of the piece, `count` elements. */
static void update_tile(const mixed_piece *m, int64_t first, int64_t count)
{
    const cz_optim *optim = m->optim;
    const cz_device *device = m->device;
    const cz__prepared *prepared = m->prepared;
    const int64_t place = m->place + first;
    rows rows_left = m->rows;
    char *value = m->memory->value + (size_t)first * m->size;
    float *master = optim->master_slot < 0 ? NULL : m->memory->slots[optim->master_slot];
    void *wide[CZ__RULE_SLOTS], *param;
    const void *gradient =
        widen_gradient(device, m->piece, m->memory->gradient + (size_t)first * m->gradient_size,
                       count, &rows_left);
    if (master) {
        param = master += first;
        (void)device->refresh(NULL, m->dtype, value, master, count);
    } else {
        param = widen(device, m->dtype, value, count, &rows_left);
    }
    for (int e = 0; e < m->rule_slots; e++) {
        const slot_memory slot = slot_at(m, e, first);
        wide[e] = widen_slot(device, m->state, &slot, count, &rows_left);
    }
    if (m->sums)
        m->use->sums_kernel(NULL, count, param, gradient, wide, prepared->coefficients,
                            prepared->flags, m->sums);
    else if (m->whole)
        cz__optim_update_tensor(optim, optim->shard.spans[m->piece->place].param, param, gradient,
                                wide, prepared, m->piece->part);
    else
        m->use->kernel(NULL, count, param, gradient, wide, prepared->coefficients, prepared->flags);
    for (int e = 0; e < m->rule_slots; e++) {
        const slot_memory slot = slot_at(m, e, first);
        if (slot.scales)
            cz__pack(slot.is_signed, count, wide[e], slot.at, slot.scales);
        else
            bring_back(device, m->state, slot.at, wide[e], count, m->keys[e], place);
    }
    if (m->sums)
        return;
    if (master)
        (void)device->convert(NULL, m->dtype, value, CZ_F32, master, count);
    else
        bring_back(device, m->dtype, value, param, count, m->key, place);
    if (prepared->weight == 0)
        return;
    if (!master && m->dtype != CZ_F32) /* what is averaged is the value, as it was rounded */
        (void)device->convert(NULL, CZ_F32, param, m->dtype, value, count);
    cz__optim_average(device, CZ_F32, prepared->weight, count, param,
                      (float *)m->memory->slots[optim->average_slot] + first);
}

static uint64_t key_of_slot(const cz__prepared *prepared, int64_t slot)
{
    return cz__fingerprint(prepared->key, &slot, sizeof slot);
}

/* Tiles begin where blocks of roundings by chance do; a rule over whole tensors has one tile. */
void cz__optim_update_mixed(const cz_optim *optim, const cz__piece *piece,
                            const cz__prepared *prepared, const cz__span_memory *memory,
                            cz_sum *sums)
{
    const cz__local_span *span = &optim->shard.spans[piece->place];
    mixed_piece m = {.optim = optim,
                     .piece = piece,
                     .prepared = prepared,
                     .memory = memory,
                     .device = span->device,
                     .use = cz__optim_use(optim, span->group),
                     .dtype = cz__model_value(optim->model, span->param)->dtype,
                     .state = optim->groups[span->group].state_dtype,
                     .gradient_size = cz_dtype_size(piece->dtype),
                     .rule_slots = cz__optim_use(optim, span->group)->slot_count,
                     .whole = cz__optim_use(optim, span->group)->rule->update_tensor != NULL,
                     .rows = find_rows(optim, span, piece->part),
                     .place = span->begin + piece->first,
                     .key = key_of_slot(prepared, SLOT_OF_VALUE),
                     .sums = sums};
    m.size = cz_dtype_size(m.dtype);
    m.state_size = cz_dtype_size(m.state);
    for (int e = 0; e < m.rule_slots; e++)
        m.keys[e] = key_of_slot(prepared, sums ? e + SLOTS_OF_FIRST_PASS : e);
    for (int64_t first = 0, some; first < piece->count; first += some) {
        const int64_t left = piece->count - first;
        some = CZ__TILE - (m.place + first) % CZ__TILE;
        some = m.whole || left < some ? left : some;
        update_tile(&m, first, some);
    }
}
