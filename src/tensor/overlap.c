/* SPDX-License-Identifier: MIT */
/* All memories of a model in the order of their addresses: what begins before the furthest end so
 * far overlaps it. */
#include "tensor/model.h"

#include "base/memory.h"
#include "base/status.h"
#include "tensor/entries.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

typedef enum extent_kind {
    OWN_VALUE,
    OTHER_VALUE,
    OWN_GRADIENT,
    OTHER_GRADIENT,
    BUFFER,
    KINDS
} extent_kind;

typedef struct extent {
    const cz_device *device;
    uintptr_t begin, end;
    extent_kind kind;
    int64_t number; /* of the parameter, or the buffer */
} extent;

static int compare_extents(const void *left, const void *right)
{
    const extent *a = left, *b = right;
    const uintptr_t devices[] = {(uintptr_t)a->device, (uintptr_t)b->device};
    if (a->device != b->device)
        return devices[0] < devices[1] ? -1 : 1;
    if (a->begin != b->begin)
        return a->begin < b->begin ? -1 : 1;
    if (a->kind != b->kind)
        return a->kind < b->kind ? -1 : 1;
    return (a->number > b->number) - (a->number < b->number);
}

/* ---- what there is ---- */

static void *gradient_of(const cz__overlaps *o, int64_t param)
{
    const cz_tensor *gradient = o->gradients ? NULL : cz__model_gradient(o->model, param);
    if (o->gradients)
        return o->gradients[param];
    return gradient ? gradient->data : NULL;
}

/* Sparse ones say elsewhere that they are not taken. */
static void add_extent(extent *extents, int64_t *count, const cz_tensor *like, const void *data,
                       extent_kind kind, int64_t number)
{
    const size_t bytes = (size_t)cz_tensor_count(like) * cz_dtype_size(like->dtype);
    const uintptr_t begin = (uintptr_t)data;
    if (data && bytes > 0 && like->layout == CZ_DENSE)
        extents[(*count)++] = (extent){cz__device_of(like), begin, begin + bytes, kind, number};
}

static void add_gradient(const cz__overlaps *o, extent *extents, int64_t *count, int64_t param,
                         bool own)
{
    cz_tensor like = *cz__model_value(o->model, param);
    like.dtype = cz__model_gradient_dtype(o->model, param);
    add_extent(extents, count, &like, gradient_of(o, param),
               own && cz__model_requires_grad(o->model, param) ? OWN_GRADIENT : OTHER_GRADIENT,
               param);
}

static int64_t list_extents(const cz__overlaps *o, extent *extents)
{
    const cz_model *model = o->model;
    int64_t count = 0;
    for (int64_t p = 0; p < cz__model_param_count(model); p++) {
        const cz_tensor *value = cz__model_value(model, p);
        const bool own = o->is_own(o->context, p);
        add_extent(extents, &count, value, value->data, own ? OWN_VALUE : OTHER_VALUE, p);
        add_gradient(o, extents, &count, p, own);
    }
    for (int64_t b = 0; b < cz__model_buffer_count(model); b++)
        add_extent(extents, &count, cz__model_buffer(model, b), cz__model_buffer(model, b)->data,
                   BUFFER, b);
    return count;
}

/* ---- what is wrong ---- */

static bool is_gradient(const extent *e)
{
    return e->kind == OWN_GRADIENT || e->kind == OTHER_GRADIENT;
}

static bool may_share(const cz__overlaps *o, const extent *a, const extent *b)
{
    if (is_gradient(a) && is_gradient(b))
        return o->reuses_gradients || a->kind != OWN_GRADIENT || b->kind != OWN_GRADIENT;
    if (is_gradient(a) || is_gradient(b)) {
        const extent *gradient = is_gradient(a) ? a : b, *other = is_gradient(a) ? b : a;
        return other->kind != BUFFER && other->number == gradient->number &&
               (o->before_use || gradient->kind == OTHER_GRADIENT);
    }
    return a->kind == b->kind && a->kind != OWN_VALUE;
}

static void print(const cz__overlaps *o, const extent *e, char *text, size_t room)
{
    static const char *const words[] = {"value of parameter", "value of parameter",
                                        "gradient of parameter", "gradient of parameter", "buffer"};
    const char *name = e->kind == BUFFER ? cz__model_buffer_name(o->model, e->number)
                                         : cz__model_name(o->model, e->number);
    snprintf(text, room, "%s%s %" PRId64 " '%.60s'", e->kind == BUFFER ? "" : "the ",
             words[e->kind], e->number, name);
}

static cz_status refuse_overlap(const cz__overlaps *o, const extent *a, const extent *b)
{
    char one[128], other[128];
    const bool swap = a->kind > b->kind || (a->kind == b->kind && a->number > b->number);
    const extent *first = swap ? b : a, *second = swap ? a : b;
    print(o, first, one, sizeof one);
    print(o, second, other, sizeof other);
    if (first->kind <= OTHER_VALUE && second->kind <= OTHER_VALUE) {
        const bool turned = first->number > second->number;
        const extent *low = turned ? second : first, *high = turned ? first : second;
        return cz__fail(CZ_ERR_ARGUMENT,
                        "%s: parameters %" PRId64 " '%.60s' and %" PRId64
                        " '%.60s' have values in the same memory",
                        o->part, low->number, cz__model_name(o->model, low->number), high->number,
                        cz__model_name(o->model, high->number));
    }
    return cz__fail(CZ_ERR_ARGUMENT, "%s: %s and %s are in the same memory; each needs its own",
                    o->part, one, other);
}

static cz_status find_overlap(const cz__overlaps *o, const extent *extents, int64_t count)
{
    const extent *furthest[KINDS] = {NULL};
    for (int64_t i = 0; i < count; i++) {
        const extent *e = &extents[i];
        for (int k = 0; k < KINDS; k++) {
            const extent *f = furthest[k];
            if (f && f->device == e->device && f->end > e->begin && !may_share(o, f, e))
                return refuse_overlap(o, f, e);
        }
        const extent *last = furthest[e->kind];
        if (!last || last->device != e->device || last->end < e->end)
            furthest[e->kind] = e;
    }
    return CZ_OK;
}

cz_status cz__check_overlaps(const cz__overlaps *o)
{
    const size_t most =
        2 * (size_t)cz__model_param_count(o->model) + (size_t)cz__model_buffer_count(o->model);
    extent *extents = cz__calloc(most, sizeof *extents);
    if (!extents)
        return cz__fail(CZ_ERR_MEMORY, "%s: no memory for a table of %zu addresses", o->part, most);
    const int64_t count = list_extents(o, extents);
    qsort(extents, (size_t)count, sizeof *extents, compare_extents);
    const cz_status status = find_overlap(o, extents, count);
    cz__free(extents);
    return status;
}

/* ---- again ---- */

/* Gradients that are there were there together before; those that are not do not matter. */
static bool is_known(const cz__overlap_memory *memory, const cz__overlaps *o)
{
    if (!memory->gradients || memory->reused != o->reuses_gradients ||
        memory->moves != cz__model_moves(o->model))
        return false;
    if (!o->gradients && memory->gradient_moves == cz__model_gradient_moves(o->model))
        return true;
    for (int64_t p = 0; p < cz__model_param_count(o->model); p++) {
        void *gradient = gradient_of(o, p);
        if (gradient && gradient != memory->gradients[p])
            return false;
    }
    return true;
}

static void drop_table(cz__overlap_memory *memory)
{
    cz__free(memory->table);
    memory->table = NULL;
}

cz_status cz__check_overlaps_again(cz__overlap_memory *memory, const cz__overlaps *o)
{
    const size_t params = (size_t)cz__model_param_count(o->model);
    drop_table(memory);
    if (is_known(memory, o)) {
        if (!o->gradients)
            memory->gradient_moves = cz__model_gradient_moves(o->model);
        return CZ_OK;
    }
    CZ_TRY(cz__check_overlaps(o));
    if (!memory->gradients)
        memory->gradients = cz__calloc(params, sizeof *memory->gradients);
    if (!memory->gradients)
        return cz__fail(CZ_ERR_MEMORY, "%s: no memory for a table of %zu addresses", o->part,
                        params);
    for (size_t p = 0; p < params; p++)
        memory->gradients[p] = gradient_of(o, (int64_t)p);
    memory->moves = cz__model_moves(o->model);
    memory->gradient_moves = o->gradients ? UINT64_MAX : cz__model_gradient_moves(o->model);
    memory->reused = o->reuses_gradients;
    return CZ_OK;
}

cz_status cz__check_overlaps_at_first(cz__overlap_memory *memory, const cz__overlaps *o)
{
    cz__overlaps strict = *o;
    strict.reuses_gradients = strict.before_use = false;
    cz__overlap_memory_clear(memory);
    const cz__sentence own = cz__sentence_hold();
    const cz_status status = cz__check_overlaps_again(memory, &strict);
    if (status != CZ_ERR_ARGUMENT) {
        if (!status)
            cz__sentence_resume(own);
        else
            cz__sentence_drop(own);
        return status;
    }
    cz__sentence_resume(own);
    return cz__check_overlaps(o);
}

/* ---- one after the other ---- */

/* All memories in order. What is whose own is asked when it is looked at. */
struct cz__extent_table {
    uint64_t gradient_moves; /* of the model when it was made */
    int64_t count;
    struct {
        extent what;
        uintptr_t furthest; /* end of this one and of those before it on its device */
    } rows[];
};

static cz_status have_table(cz__overlap_memory *memory, const cz__overlaps *o)
{
    const uint64_t moves = cz__model_gradient_moves(o->model);
    const size_t most =
        2 * (size_t)cz__model_param_count(o->model) + (size_t)cz__model_buffer_count(o->model);
    if (memory->table && memory->table->gradient_moves == moves)
        return CZ_OK;
    drop_table(memory);
    extent *extents = cz__calloc(most, sizeof *extents);
    struct cz__extent_table *table = cz__calloc(1, sizeof *table + most * sizeof *table->rows);
    if (!extents || !table) {
        cz__free(extents);
        cz__free(table);
        return cz__fail(CZ_ERR_MEMORY, "%s: no memory for a table of %zu addresses", o->part, most);
    }
    table->gradient_moves = moves;
    table->count = list_extents(o, extents);
    qsort(extents, (size_t)table->count, sizeof *extents, compare_extents);
    for (int64_t i = 0; i < table->count; i++) {
        const bool goes_on = i > 0 && extents[i].device == extents[i - 1].device;
        const uintptr_t before = goes_on ? table->rows[i - 1].furthest : 0;
        table->rows[i].what = extents[i];
        table->rows[i].furthest = extents[i].end > before ? extents[i].end : before;
    }
    cz__free(extents);
    memory->table = table;
    return CZ_OK;
}

/* How many begin before the end of this one, in the order of the table. */
static int64_t count_before_end(const struct cz__extent_table *table, const extent *e)
{
    int64_t low = 0, high = table->count;
    while (low < high) {
        const int64_t middle = low + (high - low) / 2;
        const extent *row = &table->rows[middle].what;
        const bool before = row->device == e->device
                                ? row->begin < e->end
                                : (uintptr_t)row->device < (uintptr_t)e->device;
        low = before ? middle + 1 : low;
        high = before ? high : middle;
    }
    return low;
}

static extent as_it_is_now(const cz__overlaps *o, extent e)
{
    if (e.kind == BUFFER)
        return e;
    const bool own = o->is_own(o->context, e.number);
    if (is_gradient(&e))
        e.kind = own && cz__model_requires_grad(o->model, e.number) ? OWN_GRADIENT : OTHER_GRADIENT;
    else
        e.kind = own ? OWN_VALUE : OTHER_VALUE;
    return e;
}

/* Is this memory apart from all others that it must not share? */
static bool is_apart(const struct cz__extent_table *table, const cz__overlaps *o, const extent *e)
{
    for (int64_t i = count_before_end(table, e) - 1; i >= 0; i--) {
        if (table->rows[i].what.device != e->device || table->rows[i].furthest <= e->begin)
            return true;
        const extent other = as_it_is_now(o, table->rows[i].what);
        const bool same = other.kind == e->kind && other.number == e->number;
        if (!same && other.end > e->begin && !may_share(o, &other, e))
            return false;
    }
    return true;
}

static bool are_apart(const struct cz__extent_table *table, const cz__overlaps *o, int64_t param)
{
    const cz_tensor *value = cz__model_value(o->model, param);
    extent own[2];
    int64_t count = 0;
    add_extent(own, &count, value, value->data, OWN_VALUE, param);
    add_gradient(o, own, &count, param, true);
    for (int64_t k = 0; k < count; k++)
        if (!is_apart(table, o, &own[k]))
            return false;
    return true;
}

cz_status cz__check_overlaps_of(cz__overlap_memory *memory, const cz__overlaps *o,
                                const int64_t *params, int64_t count)
{
    cz__overlaps strict = *o;
    strict.reuses_gradients = strict.before_use = false;
    bool apart = is_known(memory, &strict);
    if (apart)
        CZ_TRY(have_table(memory, &strict));
    for (int64_t k = 0; apart && k < count; k++)
        apart = are_apart(memory->table, &strict, params[k]);
    return apart ? CZ_OK : cz__check_overlaps_at_first(memory, o);
}

void cz__overlap_memory_clear(cz__overlap_memory *memory)
{
    drop_table(memory);
    cz__free(memory->gradients);
    *memory = (cz__overlap_memory){0};
}
