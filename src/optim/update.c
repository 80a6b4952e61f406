/* SPDX-License-Identifier: MIT */
/* What an update is made of: the rule's kernel over a piece of a span, and over tiles. Rules with
 * partial sums make two passes; those that need whole tensors have a function of their own. */
#include <string.h>

#include "base/sum.h"
#include "base/fingerprint.h"
#include "device/print.h"
#include "optim/object.h"
#include "tensor/model.h"

/* ---- what a rule prepares ---- */

static cz_rule_step step_of(const cz_optim *optim, int64_t param)
{
    return (cz_rule_step){
        .size = sizeof(cz_rule_step),
        .hypers = optim->groups[optim->group_of[param]].hypers,
        .step = optim->steps[param] + 1,
        .scalars = cz__optim_use_of(optim, param)->scalar_count > 0
                       ? optim->scalars + param * optim->scalar_count
                       : NULL,
        .argument = optim->step.argument,
        .context = cz__optim_rule_of(optim, param)->context,
    };
}

static void prepare_afresh(const cz_optim *optim, int64_t param, cz__prepared *prepared)
{
    const cz_rule_step step = step_of(optim, param);
    memset(prepared, 0, sizeof *prepared);
    cz__optim_rule_of(optim, param)->prepare(&step, prepared->coefficients, &prepared->flags);
    prepared->flags &= ~CZ_UPDATE_FIRST;
    prepared->step = step.step;
}

/* Where parameters have nothing of their own to prepare from, those of a group share the
 * outcome. */
static void prepare(const cz_optim *optim, int64_t param, cz__prepared *prepared)
{
    const int64_t step = optim->steps[param] + 1;
    cz__prepared *shared = &optim->groups[optim->group_of[param]].prepared[step % CZ__PREPARED];
    if (cz__optim_use_of(optim, param)->scalar_count > 0 || optim->step.argument) {
        prepare_afresh(optim, param, prepared);
        return;
    }
    if (shared->step != step)
        prepare_afresh(optim, param, shared);
    *prepared = *shared;
}

/* Of what its roundings by chance are made in this step. */
static uint64_t key_of(const cz_optim *optim, int64_t param)
{
    const uint64_t words[] = {optim->seed, (uint64_t)optim->steps[param] + 1};
    return cz__fingerprint(cz__print_key(cz__model_name(optim->model, param), "rounding"), words,
                           sizeof words);
}

/* A parameter's step begins: its slots are in use, the coefficients are made. */
static void begin_step(cz_optim *optim, int64_t param, cz__prepared *prepared)
{
    const unsigned in_use = cz__optim_slots_in_use(optim, param) & ~cz__optim_average_bit(optim);
    const unsigned of_rule = in_use & ~cz__optim_master_bit(optim);
    const bool first = of_rule && !(optim->used[param] & of_rule);
    cz__optim_start(optim, param, in_use);
    prepare(optim, param, prepared);
    prepared->flags |= first ? CZ_UPDATE_FIRST : 0u;
    prepared->key = optim->is_mixed ? key_of(optim, param) : 0;
}

/* ---- one span ---- */

static void find_memory(cz__span_memory *memory, const cz_optim *optim, const cz__piece *piece)
{
    const cz__local_span *span = &optim->shard.spans[piece->place];
    const int64_t param = span->param;
    const unsigned in_use = cz__optim_slots_in_use(optim, param);
    const size_t first = (size_t)piece->first, offset = (size_t)span->begin + first;
    char *const *slots = (char *const *)optim->shard.slots + piece->place * optim->slot_count;
    memory->count = piece->count;
    memory->value = (char *)optim->tables.values[param] +
                    offset * cz_dtype_size(cz__model_value(optim->model, param)->dtype);
    memory->gradient = piece->gradient + offset * cz_dtype_size(piece->dtype);
    for (int e = 0; e < optim->slot_count; e++) {
        const bool is_packed = in_use >> e & 1u && cz__optim_is_packed(optim, param, e);
        memory->slots[e] =
            in_use >> e & 1u ? slots[e] + first * cz__optim_slot_size(optim, param, e) : NULL;
        memory->scales[e] = NULL;
        if (is_packed) {
            const cz__packed packed =
                cz__optim_packed(optim, &optim->shard, piece->place, e, piece->first);
            memory->slots[e] = packed.codes;
            memory->scales[e] = packed.scales;
        }
    }
}

/* The average of a whole tensor, in tiles of its type. */
static void average_tensor(const cz_optim *optim, int64_t param, const cz__span_memory *memory,
                           double weight, int part)
{
    const cz_device *device = cz__device_of(cz__model_value(optim->model, param));
    const cz_dtype dtype = cz__model_value(optim->model, param)->dtype;
    const cz_dtype wide = cz__optim_slot_dtype(optim, param, optim->average_slot);
    char *average = memory->slots[optim->average_slot];
    void *row = cz__optim_scratch(optim, device, part);
    if (dtype == wide) {
        cz__optim_average(device, wide, weight, memory->count, memory->value, average);
        return;
    }
    for (int64_t first = 0; first < memory->count; first += CZ__TILE) {
        const int64_t left = memory->count - first, count = left < CZ__TILE ? left : CZ__TILE;
        (void)device->convert(NULL, wide, row, dtype,
                              memory->value + (size_t)first * cz_dtype_size(dtype), count);
        cz__optim_average(device, wide, weight, count, row,
                          average + (size_t)first * cz_dtype_size(wide));
    }
}

static void update_plain_tensor(const cz_optim *optim, int64_t param, cz__span_memory *memory,
                                const cz__prepared *prepared, int part)
{
    cz__optim_update_tensor(optim, param, memory->value, memory->gradient, memory->slots, prepared,
                            part);
    if (prepared->weight > 0)
        average_tensor(optim, param, memory, prepared->weight, part);
}

/* Elements that the kernel and the average go over while they are in the first-level cache. */
enum { AVERAGED_TILE = 1024 };

static void update_and_average(const cz_optim *optim, cz_update_kernel kernel,
                               const cz_device *device, const cz__span_memory *memory,
                               const cz__prepared *prepared)
{
    const size_t size = cz_dtype_size(optim->dtype);
    void *slots[CZ__RULE_SLOTS];
    for (int64_t first = 0; first < memory->count; first += AVERAGED_TILE) {
        const int64_t left = memory->count - first;
        const int64_t count = left < AVERAGED_TILE ? left : AVERAGED_TILE;
        const size_t offset = (size_t)first * size;
        for (int e = 0; e < optim->slot_count; e++)
            slots[e] = memory->slots[e] ? (char *)memory->slots[e] + offset : NULL;
        kernel(NULL, count, memory->value + offset, memory->gradient + offset, slots,
               prepared->coefficients, prepared->flags);
        cz__optim_average(device, optim->dtype, prepared->weight, count, memory->value + offset,
                          slots[optim->average_slot]);
    }
}

/* Is all of it in the type in which kernels compute, as it is? */
static bool is_plain(const cz_optim *optim, const cz__piece *piece)
{
    const cz__local_span *span = &optim->shard.spans[piece->place];
    return !optim->is_mixed || (piece->dtype == optim->dtype && piece->factor == 1 &&
                                optim->groups[span->group].state_dtype == optim->dtype &&
                                cz__optim_block(optim, span->param) == 1 &&
                                cz__model_value(optim->model, span->param)->dtype == optim->dtype);
}

/* ---- a piece ---- */

cz__piece cz__optim_piece(const cz_optim *optim, int64_t place, const void *gradient)
{
    const int64_t param = optim->shard.spans[place].param;
    const cz_dtype dtype = cz__optim_given_dtype(optim, param);
    return (cz__piece){.place = place,
                       .gradient = gradient,
                       .dtype = dtype,
                       .factor = dtype == optim->dtype ? 1 : optim->factor};
}

void cz__optim_update_piece(const cz_optim *optim, const cz__piece *piece,
                            const cz__prepared *prepared)
{
    const cz__local_span *span = &optim->shard.spans[piece->place];
    cz__span_memory memory;
    const cz__rule_use *use = cz__optim_use(optim, span->group);
    find_memory(&memory, optim, piece);
    if (!is_plain(optim, piece))
        cz__optim_update_mixed(optim, piece, prepared, &memory, NULL);
    else if (use->rule->update_tensor)
        update_plain_tensor(optim, span->param, &memory, prepared, piece->part);
    else if (prepared->weight > 0)
        update_and_average(optim, use->kernel, span->device, &memory, prepared);
    else
        use->kernel(NULL, memory.count, memory.value, memory.gradient, memory.slots,
                    prepared->coefficients, prepared->flags);
}

void cz__optim_add_sums_of_piece(const cz_optim *optim, const cz__piece *piece,
                                 const cz__prepared *prepared, cz_sum *sums)
{
    cz__span_memory memory;
    const cz__rule_use *use = cz__optim_use(optim, optim->shard.spans[piece->place].group);
    find_memory(&memory, optim, piece);
    if (is_plain(optim, piece))
        use->sums_kernel(NULL, memory.count, memory.value, memory.gradient, memory.slots,
                         prepared->coefficients, prepared->flags, sums);
    else
        cz__optim_update_mixed(optim, piece, prepared, &memory, sums);
}

/* ---- one parameter ---- */

static void combine(const cz_optim *optim, int64_t param, cz__prepared *prepared)
{
    const cz_rule_step step = step_of(optim, param);
    const unsigned first = prepared->flags & CZ_UPDATE_FIRST;
    cz__optim_rule_of(optim, param)
        ->combine(&step, cz__optim_sum_values(optim, param), prepared->coefficients,
                  &prepared->flags);
    prepared->flags = (prepared->flags & ~CZ_UPDATE_FIRST) | first;
}

void cz__optim_begin_param(cz_optim *optim, int64_t param, cz__prepared *prepared)
{
    if (cz__optim_has_sums(optim, param)) {
        *prepared = optim->shard.prepared[optim->shard.first_span[param]];
        combine(optim, param, prepared);
    } else {
        begin_step(optim, param, prepared);
    }
    prepared->weight = cz__optim_begin_average(optim, param);
}

/* The gradient is read, the others are read and written. */
uint64_t cz__optim_element_traffic(const cz_optim *optim, int64_t param)
{
    const unsigned in_use = cz__optim_slots_in_use(optim, param);
    uint64_t bytes = 2 * cz_dtype_size(cz__model_value(optim->model, param)->dtype) +
                     cz__optim_gradient_size(optim, param);
    for (int e = 0; e < optim->slot_count; e++)
        bytes += in_use >> e & 1u ? 2 * (cz__optim_is_packed(optim, param, e)
                                             ? sizeof(uint8_t)
                                             : cz__optim_slot_size(optim, param, e))
                                  : 0;
    return bytes;
}

void cz__optim_begin_sums(cz_optim *optim, int64_t param)
{
    begin_step(optim, param, &optim->shard.prepared[optim->shard.first_span[param]]);
    memset(cz__optim_sums(optim, param), 0, (size_t)optim->sum_count * sizeof(cz_sum));
}

void cz__optim_end_sums(cz_optim *optim, int64_t param)
{
    cz_sum *sums = cz__optim_sums(optim, param);
    for (int k = 0; k < optim->sum_count; k++)
        cz__sum_settle(&sums[k]);
}

int cz__optim_sum_count(const cz_optim *optim)
{
    return optim->sum_count;
}

bool cz__optim_has_sums(const cz_optim *optim, int64_t param)
{
    return optim->group_of[param] >= 0 && cz__optim_rule_of(optim, param)->sum_count > 0;
}

cz_sum *cz__optim_sums(const cz_optim *optim, int64_t param)
{
    const int64_t head = optim->shard.first_span[param];
    return head < 0 ? NULL : optim->shard.sums + head * optim->sum_count;
}

double *cz__optim_sum_values(const cz_optim *optim, int64_t param)
{
    return optim->sum_values + param * optim->sum_count;
}

/* ---- tiles ---- */
/* The passes of a step in tiles, as they come out of a reduction or go to other ranks: kernels on
 * each while it is in cache. */

/* All by kernels, in the host's memory, what is here of a parameter in one row, and no threads to
 * share it with; tiles may end within a block of 8-bit state. */
bool cz__optim_takes_tiles(const cz_optim *optim)
{
    for (int64_t s = 0; s < optim->shard.span_count; s++)
        if (cz__optim_block(optim, optim->shard.spans[s].param) > 1)
            return false;
    return !cz__optim_any_rule(optim, CZ__NEEDS_WHOLE_TENSORS) && optim->shard.in_parts &&
           !cz__optim_works_in_parts(optim);
}

cz__tiles cz__optim_tiles(cz_optim *optim)
{
    return (cz__tiles){.optim = optim, .dtype = optim->dtype, .param = -1, .factor = 1};
}

/* The tile as a piece of its span; true: it is the first one of its parameter. */
static bool find_piece(cz__tiles *tiles, int64_t param, int64_t first, int64_t count,
                       const void *gradient, cz__piece *piece)
{
    const cz_optim *optim = tiles->optim;
    const cz__local_span *spans = optim->shard.spans;
    const bool begins = param != tiles->param;
    if (begins) {
        tiles->param = param;
        tiles->place = optim->shard.first_span[param];
    }
    if (first < spans[tiles->place].begin || first >= spans[tiles->place].end)
        for (tiles->place = optim->shard.first_span[param];
             first < spans[tiles->place].begin || first >= spans[tiles->place].end;)
            tiles->place = spans[tiles->place].next;
    const uintptr_t before = (uintptr_t)first * cz_dtype_size(tiles->dtype);
    *piece = cz__optim_piece(optim, tiles->place, (const char *)((uintptr_t)gradient - before));
    piece->dtype = tiles->dtype;
    piece->first = first - spans[tiles->place].begin;
    piece->count = count;
    return begins;
}

/* ---- the update ---- */

/* Are a parameter's gradients multiplied in their memory? */
static bool scales_in_memory(const cz_optim *optim, int64_t param)
{
    return cz__optim_given_dtype(optim, param) == optim->dtype;
}

void cz__optim_update_tile(cz__tiles *tiles, int64_t param, int64_t first, int64_t count,
                           const void *gradient)
{
    cz_optim *optim = tiles->optim;
    cz__piece piece;
    if (find_piece(tiles, param, first, count, gradient, &piece))
        cz__optim_begin_param(optim, param, &tiles->prepared);
    if (!scales_in_memory(optim, param))
        piece.factor *= tiles->factor;
    else if (tiles->factor != 1)
        (void)optim->device->scale(NULL, optim->dtype, tiles->factor, count,
                                   (char *)tiles->gradients[param] +
                                       (size_t)first * cz_dtype_size(optim->dtype));
    cz__optim_update_piece(optim, &piece, &tiles->prepared);
}

/* Does a span begin what is here of a parameter that takes part? */
static bool begins_param(const cz_optim *optim, int64_t place, const uint8_t *present)
{
    const int64_t param = optim->shard.spans[place].param;
    return optim->shard.first_span[param] == place && present[param] &&
           optim->tables.trainable[param];
}

uint64_t cz__optim_end_tiles(cz__tiles *tiles, const uint8_t *present)
{
    cz_optim *optim = tiles->optim;
    uint64_t bytes = 0;
    optim->stepped = true;
    for (int64_t s = 0; s < optim->shard.span_count; s++) {
        const cz__local_span *span = &optim->shard.spans[s];
        if (!present[span->param] || !optim->tables.trainable[span->param])
            continue;
        const bool head = begins_param(optim, s, present);
        if (head && span->next < 0 && span->begin == span->end)
            cz__optim_begin_param(optim, span->param, &tiles->prepared);
        optim->steps[span->param] += head;
        bytes +=
            (uint64_t)(span->end - span->begin) * cz__optim_element_traffic(optim, span->param);
    }
    return bytes;
}

int64_t cz__optim_elements(const cz_optim *optim, const uint8_t *present)
{
    int64_t elements = 0;
    for (int64_t s = 0; s < optim->shard.span_count; s++) {
        const cz__local_span *span = &optim->shard.spans[s];
        if (present[span->param])
            elements += span->end - span->begin;
    }
    return elements;
}

/* ---- the sums of a rule ---- */

/* And has it sums? */
static bool begins_sums(const cz_optim *optim, int64_t place, const uint8_t *present)
{
    return begins_param(optim, place, present) &&
           cz__optim_has_sums(optim, optim->shard.spans[place].param);
}

void cz__optim_begin_sum_tiles(cz__tiles *tiles, const uint8_t *present)
{
    cz_optim *optim = tiles->optim;
    for (int64_t s = 0; s < optim->shard.span_count; s++)
        if (begins_sums(optim, s, present))
            cz__optim_begin_sums(optim, optim->shard.spans[s].param);
}

void cz__optim_sum_tile(cz__tiles *tiles, int64_t param, int64_t first, int64_t count,
                        const void *gradient)
{
    const cz_optim *optim = tiles->optim;
    cz__piece piece;
    if (!cz__optim_has_sums(optim, param))
        return;
    (void)find_piece(tiles, param, first, count, gradient, &piece);
    cz__optim_add_sums_of_piece(optim, &piece,
                                &optim->shard.prepared[optim->shard.first_span[param]],
                                cz__optim_sums(optim, param));
}

void cz__optim_end_sum_tiles(cz__tiles *tiles, const uint8_t *present)
{
    cz_optim *optim = tiles->optim;
    for (int64_t s = 0; s < optim->shard.span_count; s++)
        if (begins_sums(optim, s, present))
            cz__optim_end_sums(optim, optim->shard.spans[s].param);
}

/* ---- the norm ---- */

void cz__norm_add_tile(cz__tiles *tiles, int64_t count, const void *gradient)
{
    const cz_optim *optim = tiles->optim;
    (void)optim->device->add_squares(NULL, tiles->dtype, count, gradient, tiles->squares);
}
