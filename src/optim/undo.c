/* SPDX-License-Identifier: MIT */
/* A log of what updates overwrite: for each parameter its numbers, and one after the other the
 * elements of its value and of its slots, whole arrays that are filled tile by tile. */
#include "optim/undo.h"

#include <inttypes.h>
#include <string.h>

#include "base/memory.h"
#include "base/status.h"

typedef struct kept {
    size_t offset; /* of its elements in the log */
    int64_t step;
    unsigned used;
    bool scalars_used;
} kept;

struct cz__undo {
    cz_optim *optim; /* borrowed */
    uint64_t most;
    kept *params;    /* owned, one for each parameter */
    double *scalars; /* owned, the optimizer's scalar_count for each */
    char *memory;    /* owned; `room` bytes */
    size_t room, taken;
    bool stepped; /* before this step */
};

cz_status cz__undo_create(cz__undo **out, cz_optim *optim, uint64_t most)
{
    cz__undo *undo = *out = cz__calloc(1, sizeof *undo);
    const size_t params = (size_t)optim->param_count;
    if (undo) {
        undo->optim = optim;
        undo->most = most;
        undo->params = cz__calloc(params, sizeof *undo->params);
        undo->scalars = cz__calloc(params * (size_t)optim->scalar_count, sizeof *undo->scalars);
    }
    if (undo && undo->params && undo->scalars)
        return CZ_OK;
    cz__undo_destroy(out);
    return cz__fail(CZ_ERR_MEMORY, "in backward: no memory to undo steps of %zu parameters",
                    params);
}

void cz__undo_destroy(cz__undo **out)
{
    cz__undo *undo = *out;
    if (!undo)
        return;
    cz__free(undo->params);
    cz__free(undo->scalars);
    cz__free(undo->memory);
    cz__free(undo);
    *out = NULL;
}

/* ---- arrays ---- */

/* Bytes of it: of 8-bit state those of whole blocks. */
static size_t array_bytes(const cz_optim *optim, int64_t param, int array, int64_t count)
{
    if (cz__optim_is_packed(optim, param, array))
        return cz__packed_bytes(count);
    return (size_t)count * (array < 0 ? cz_dtype_size(cz__model_value(optim->model, param)->dtype)
                                      : cz__optim_slot_size(optim, param, array));
}

static char *array_of(const cz_optim *optim, int64_t param, int array)
{
    const int64_t place = optim->shard.first_span[param];
    return array < 0 ? optim->tables.values[param]
                     : optim->shard.slots[place * optim->slot_count + array];
}

/* Where in an array some of its elements are, or their codes; and the scales of these. */
typedef struct stretch {
    size_t offset, bytes;
} stretch;

static stretch elements_at(const cz_optim *optim, int64_t param, int array, int64_t first,
                           int64_t count)
{
    const int64_t all = cz_tensor_count(cz__model_value(optim->model, param));
    if (cz__optim_is_packed(optim, param, array))
        return (stretch){array_bytes(optim, param, array, all) - (size_t)(all - first),
                         (size_t)count};
    return (stretch){array_bytes(optim, param, array, first),
                     array_bytes(optim, param, array, count)};
}

/* Elements begin with a block. */
static stretch scales_at(const cz_optim *optim, int64_t param, int array, int64_t first,
                         int64_t count)
{
    if (!cz__optim_is_packed(optim, param, array))
        return (stretch){0};
    return (stretch){(size_t)(first / CZ__BLOCK) * sizeof(float),
                     (size_t)cz__blocks(count) * sizeof(float)};
}

/* The value (-1), then the slots in use. */
static int next_array(const cz_optim *optim, int64_t param, int array)
{
    const unsigned in_use = cz__optim_slots_in_use(optim, param);
    do
        array++;
    while (array < optim->slot_count && !(in_use >> array & 1u));
    return array;
}

static size_t array_room(const cz_optim *optim, int64_t param, int array)
{
    const int64_t count = cz_tensor_count(cz__model_value(optim->model, param));
    return cz__slot_bytes(array_bytes(optim, param, array, count));
}

static size_t param_room(const cz_optim *optim, int64_t param)
{
    size_t bytes = 0;
    for (int a = -1; a < optim->slot_count; a = next_array(optim, param, a))
        bytes += array_room(optim, param, a);
    return bytes;
}

/* ---- a step ---- */

cz_status cz__undo_begin(cz__undo *undo)
{
    const cz_optim *optim = undo->optim;
    uint64_t wanted = 0;
    for (int64_t p = 0; p < optim->param_count; p++)
        if (cz__optim_holds(optim, p) && optim->tables.trainable[p])
            wanted += param_room(optim, p);
    wanted = wanted < undo->most ? wanted : undo->most;
    if (wanted > undo->room) {
        char *memory = cz__allocate(CZ_MEMORY_STATE, (size_t)wanted);
        if (!memory)
            return cz__fail(CZ_ERR_MEMORY,
                            "in backward: no memory for %" PRIu64
                            " bytes to undo a step; undo_bytes says how many it may have",
                            wanted);
        cz__free(undo->memory);
        undo->memory = memory;
        undo->room = (size_t)wanted;
    }
    undo->taken = 0;
    undo->stepped = optim->stepped;
    return CZ_OK;
}

static void copy_scalars(const cz_optim *optim, int64_t param, double *to, const double *from)
{
    const int64_t count = optim->scalar_count;
    if (count > 0)
        memcpy(to + param * count, from + param * count, (size_t)count * sizeof *to);
}

bool cz__undo_keep_param(cz__undo *undo, int64_t param)
{
    const cz_optim *optim = undo->optim;
    const size_t bytes = param_room(optim, param);
    if (bytes > undo->room - undo->taken)
        return false;
    undo->params[param] =
        (kept){undo->taken, optim->steps[param], optim->used[param], optim->scalars_used[param]};
    undo->taken += bytes;
    copy_scalars(optim, param, undo->scalars, optim->scalars);
    return true;
}

void cz__undo_restore_param(cz__undo *undo, int64_t param)
{
    cz_optim *optim = undo->optim;
    const kept *before = &undo->params[param];
    optim->steps[param] = before->step;
    optim->used[param] = before->used;
    optim->scalars_used[param] = before->scalars_used;
    copy_scalars(optim, param, optim->scalars, undo->scalars);
}

void cz__undo_restore_optim(const cz__undo *undo)
{
    undo->optim->stepped = undo->stepped;
}

void cz__undo_keep(cz__undo *undo, int64_t param, int64_t first, int64_t count)
{
    const cz_optim *optim = undo->optim;
    char *row = undo->memory + undo->params[param].offset;
    for (int a = -1; a < optim->slot_count; a = next_array(optim, param, a)) {
        const stretch elements = elements_at(optim, param, a, first, count);
        const stretch scales = scales_at(optim, param, a, first, count);
        const char *array = array_of(optim, param, a);
        cz__copy_past_caches(row + elements.offset, array + elements.offset, elements.bytes);
        memcpy(row + scales.offset, array + scales.offset, scales.bytes);
        row += array_room(optim, param, a);
    }
}

void cz__undo_restore(const cz__undo *undo, int64_t param, int64_t first, int64_t count)
{
    const cz_optim *optim = undo->optim;
    const char *row = undo->memory + undo->params[param].offset;
    for (int a = -1; a < optim->slot_count; a = next_array(optim, param, a)) {
        const stretch elements = elements_at(optim, param, a, first, count);
        const stretch scales = scales_at(optim, param, a, first, count);
        char *array = array_of(optim, param, a);
        memcpy(array + elements.offset, row + elements.offset, elements.bytes);
        memcpy(array + scales.offset, row + scales.offset, scales.bytes);
        row += array_room(optim, param, a);
    }
}
