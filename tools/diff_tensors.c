/* SPDX-License-Identifier: MIT */
/* Tensors of two checkpoints, pair by pair, a block at a time. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/memory.h"
#include "base/status.h"
#include "io/seal.h"
#include "diff.h"

enum { BLOCK = 4 << 20 };

/* The two sides of one thing. */
typedef struct pair {
    int64_t a, b;     /* places */
    const char *slot; /* NULL: the value */
    const cz__shown *name;
} pair;

static bool same_shape(const cz__stored *a, const cz__stored *b)
{
    return a->dimensions == b->dimensions &&
           memcmp(a->shape, b->shape, (size_t)a->dimensions * sizeof *a->shape) == 0;
}

static cz_status measure(comparison *c, const pair *p, char *blocks, distance *d)
{
    const cz__stored *s = &c->a->input.index.stored[p->a];
    const int64_t room = BLOCK / (int64_t)cz__type_unit(s->dtype);
    for (int64_t at = 0, until; at < s->count; at = until) {
        until = s->count - at < room ? s->count : at + room;
        CZ_TRY(cz__input_read(&c->a->input, p->a, p->slot, at, until, blocks));
        CZ_TRY(cz__input_read(&c->b->input, p->b, p->slot, at, until, blocks + BLOCK));
        ulps_compare(d, s->dtype, blocks, blocks + BLOCK, until - at, at, c->allowed);
        progress_add(&c->bar, (uint64_t)(until - at) * cz__type_unit(s->dtype));
    }
    return CZ_OK;
}

static cz_status put_json(comparison *c, const pair *p, const distance *d, bool differs)
{
    json_t *item = json_object();
    const char *name = c->a->input.index.stored[p->a].name;
    if (json_array_append_new(c->tensors, item) != 0)
        return cz__fail(CZ_ERR_MEMORY, "no memory for JSON");
    CZ_TRY(cz__json_set(item, "name", json_string(name)));
    CZ_TRY(cz__json_set(item, "slot", p->slot ? json_string(p->slot) : json_null()));
    CZ_TRY(cz__json_set(item, "elements", json_integer(d->count)));
    CZ_TRY(cz__json_set(item, "different", json_integer(d->different)));
    CZ_TRY(cz__json_set(item, "differs", json_boolean(differs)));
    const uint64_t ulps = d->ulps < INT64_MAX ? d->ulps : INT64_MAX;
    CZ_TRY(cz__json_set(item, "ulps", json_integer((json_int_t)ulps)));
    CZ_TRY(cz__json_set(item, "nan_on_one_side", json_integer(d->nans)));
    if (d->size > 0)
        CZ_TRY(cz__json_set(item, "relative", json_real(ulps_relative(d))));
    char number[32]; /* JSON has no infinity */
    snprintf(number, sizeof number, "%.17g", d->absolute);
    return cz__json_set(item, "absolute",
                        d->absolute <= 0x1.fffffffffffffp1023 ? json_real(d->absolute)
                                                              : json_string(number));
}

static cz_status compare_pair(comparison *c, const pair *p, char *blocks)
{
    distance d = {.at = -1};
    CZ_TRY(measure(c, p, blocks, &d));
    const bool differs = c->tolerant ? d.beyond > 0 : d.different > 0;
    c->compared++;
    c->differing += differs;
    if (p->slot || p->a < c->a->input.index.param_count) /* buffers may be counters */
        ulps_add(p->slot ? &c->state : &c->values, &d);
    if (!differs && !c->all)
        return CZ_OK;
    return c->tensors ? put_json(c, p, &d, differs)
                      : diff_fold_add(c, c->a->input.index.stored[p->a].name, p->slot, &d);
}

/* ---- which pairs there are ---- */

static bool has_slot(const cz__index *index, int64_t param, const char *slot)
{
    const char *other;
    cz_dtype dtype;
    for (int64_t at = 0; cz__index_slot(index, param, &at, &other, &dtype);)
        if (strcmp(other, slot) == 0)
            return true;
    return false;
}

static cz_status compare_slots(comparison *c, pair p, char *blocks)
{
    cz_dtype dtype;
    const cz__index *a = &c->a->input.index, *b = &c->b->input.index;
    if (p.a >= a->param_count || p.b >= b->param_count || c->a->foreign || c->b->foreign)
        return CZ_OK;
    for (int64_t at = 0; cz__index_slot(a, p.a, &at, &p.slot, &dtype);) {
        if (has_slot(b, p.b, p.slot))
            CZ_TRY(compare_pair(c, &p, blocks));
        else
            CZ_TRY(diff_note(c, "%s: only A has %s", p.name->text, cz__show(p.slot).text));
    }
    for (int64_t at = 0; cz__index_slot(b, p.b, &at, &p.slot, &dtype);)
        if (!has_slot(a, p.a, p.slot))
            CZ_TRY(diff_note(c, "%s: only B has %s", p.name->text, cz__show(p.slot).text));
    return CZ_OK;
}

static cz_status compare_stored(comparison *c, int64_t place, char *blocks)
{
    const cz__stored *a = &c->a->input.index.stored[place];
    const int64_t other = cz__index_find(&c->b->input.index, a->name);
    const cz__shown name = cz__show(a->name);
    if (other < 0)
        return diff_note(c, "%s: only in A, %s %s", name.text, cz__type_shown(a->dtype),
                         show_shape(a->dimensions, a->shape).text);
    const cz__stored *b = &c->b->input.index.stored[other];
    if (!same_shape(a, b))
        return diff_note(c, "%s: of shape %s in A, %s in B", name.text,
                         show_shape(a->dimensions, a->shape).text,
                         show_shape(b->dimensions, b->shape).text);
    if (a->dtype != b->dtype)
        return diff_note(c, "%s: %s in A, %s in B", name.text, cz__type_shown(a->dtype),
                         cz__type_shown(b->dtype));
    const pair p = {place, other, NULL, &name};
    CZ_TRY(compare_pair(c, &p, blocks));
    return c->parameters_only ? CZ_OK : compare_slots(c, p, blocks);
}

static cz_status compare_all(comparison *c, char *blocks)
{
    const cz__index *a = &c->a->input.index, *b = &c->b->input.index;
    for (int64_t i = 0; i < a->param_count + a->buffer_count; i++)
        CZ_TRY(compare_stored(c, i, blocks));
    for (int64_t i = 0; i < b->param_count + b->buffer_count; i++)
        if (cz__index_find(a, b->stored[i].name) < 0)
            CZ_TRY(diff_note(c, "%s: only in B, %s %s", cz__show(b->stored[i].name).text,
                             cz__type_shown(b->stored[i].dtype),
                             show_shape(b->stored[i].dimensions, b->stored[i].shape).text));
    return CZ_OK;
}

cz_status diff_tensors(comparison *c)
{
    uint64_t total = 0;
    const cz__index *a = &c->a->input.index;
    char *blocks = cz__allocate(CZ_MEMORY_STAGING, 2 * BLOCK);
    if (!blocks)
        return cz__fail(CZ_ERR_MEMORY, "two blocks of %d bytes", BLOCK);
    for (int64_t i = 0; i < a->param_count + a->buffer_count; i++)
        total += source_value_bytes(a, i) + (c->parameters_only ? 0 : source_state_bytes(a, i));
    progress_begin(&c->bar, "comparing", total, c->quiet);
    cz_status status = compare_all(c, blocks);
    if (status == CZ_OK)
        status = diff_find_renamed(c);
    progress_end(&c->bar);
    cz__free(blocks);
    return status;
}
