/* SPDX-License-Identifier: MIT */
/* Tensors of two checkpoints, pair by pair, a block at a time. */
#include <ctype.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/memory.h"
#include "diff.h"
#include "io/json.h"
#include "io/types.h"

enum { BLOCK = 4 << 20 };

/* The two sides of one thing. */
typedef struct tensor_pair {
    int64_t a, b;     /* places */
    const char *slot; /* NULL: the value */
    const cz__shown *name;
} tensor_pair;

static bool same_shape(const cz_archive_tensor *a, const cz_archive_tensor *b)
{
    return a->dimensions == b->dimensions &&
           memcmp(a->shape, b->shape, (size_t)a->dimensions * sizeof *a->shape) == 0;
}

/* As io/types.h counts them: those that the library does not compute with, too. */
static cz_dtype type_of(const cz_archive_tensor *t)
{
    char name[32];
    size_t i = 0;
    for (; t->type[i] && i < sizeof name - 1; i++)
        name[i] = (char)toupper((unsigned char)t->type[i]);
    name[i] = 0;
    return cz__type_find(name);
}

static cz_status measure(comparison *c, const tensor_pair *p, char *blocks, distance *d)
{
    const cz_archive_tensor s = source_tensor(c->a, p->a);
    const cz_dtype dtype = p->slot ? source_slot_dtype(c->a, p->a, p->slot) : type_of(&s);
    const size_t size = p->slot ? cz_dtype_size(dtype) : s.element_size;
    const int64_t room = BLOCK / (int64_t)size;
    for (int64_t at = 0, until; at < s.count; at = until) {
        until = s.count - at < room ? s.count : at + room;
        CZ_TRY(cz_archive_read(c->a->archive, p->a, p->slot, at, until, blocks));
        CZ_TRY(cz_archive_read(c->b->archive, p->b, p->slot, at, until, blocks + BLOCK));
        ulps_compare(d, dtype, blocks, blocks + BLOCK, until - at, at, c->allowed);
        progress_add(&c->bar, (uint64_t)(until - at) * size);
    }
    return CZ_OK;
}

static cz_status put_json(comparison *c, const tensor_pair *p, const distance *d, bool differs)
{
    json_t *item = json_object();
    const char *name = source_tensor(c->a, p->a).name;
    if (json_array_append_new(c->tensors, item) != 0)
        return cz_fail(CZ_ERR_MEMORY, "no memory for JSON");
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

static cz_status compare_pair(comparison *c, const tensor_pair *p, char *blocks)
{
    distance d = {.at = -1};
    CZ_TRY(measure(c, p, blocks, &d));
    const bool differs = c->tolerant ? d.beyond > 0 : d.different > 0;
    c->compared++;
    c->differing += differs;
    if (p->slot || p->a < c->a->info.param_count) /* buffers may be counters */
        ulps_add(p->slot ? &c->state : &c->values, &d);
    if (!differs && !c->all)
        return CZ_OK;
    return c->tensors ? put_json(c, p, &d, differs)
                      : diff_fold_add(c, source_tensor(c->a, p->a).name, p->slot, &d);
}

/* ---- which pairs there are ---- */

static bool has_slot(const source *s, int64_t param, const char *slot)
{
    const char *other;
    for (int64_t i = 0; (other = cz_archive_slot(s->archive, param, i, NULL)); i++)
        if (strcmp(other, slot) == 0)
            return true;
    return false;
}

static cz_status compare_slots(comparison *c, tensor_pair p, char *blocks)
{
    const source *a = c->a, *b = c->b;
    if (p.a >= a->info.param_count || p.b >= b->info.param_count || a->info.foreign ||
        b->info.foreign)
        return CZ_OK;
    for (int64_t i = 0; (p.slot = cz_archive_slot(a->archive, p.a, i, NULL)); i++) {
        if (!has_slot(b, p.b, p.slot)) {
            CZ_TRY(diff_note(c, "%s: only A has %s", p.name->text, cz__show(p.slot).text));
            continue;
        }
        const cz_dtype types[] = {source_slot_dtype(a, p.a, p.slot),
                                  source_slot_dtype(b, p.b, p.slot)};
        if (types[0] == types[1])
            CZ_TRY(compare_pair(c, &p, blocks));
        else
            CZ_TRY(diff_note(c, "%s: %s is %s in A, %s in B", p.name->text, cz__show(p.slot).text,
                             cz_dtype_name(types[0]), cz_dtype_name(types[1])));
    }
    for (int64_t i = 0; (p.slot = cz_archive_slot(b->archive, p.b, i, NULL)); i++)
        if (!has_slot(a, p.a, p.slot))
            CZ_TRY(diff_note(c, "%s: only B has %s", p.name->text, cz__show(p.slot).text));
    return CZ_OK;
}

static cz_status compare_stored(comparison *c, int64_t place, char *blocks)
{
    const cz_archive_tensor a = source_tensor(c->a, place);
    const int64_t other = cz_archive_find(c->b->archive, a.name);
    const cz__shown name = cz__show(a.name);
    if (other < 0)
        return diff_note(c, "%s: only in A, %s %s", name.text, a.type,
                         show_shape(a.dimensions, a.shape).text);
    const cz_archive_tensor b = source_tensor(c->b, other);
    if (!same_shape(&a, &b))
        return diff_note(c, "%s: of shape %s in A, %s in B", name.text,
                         show_shape(a.dimensions, a.shape).text,
                         show_shape(b.dimensions, b.shape).text);
    if (strcmp(a.type, b.type) != 0)
        return diff_note(c, "%s: %s in A, %s in B", name.text, a.type, b.type);
    const tensor_pair p = {place, other, NULL, &name};
    CZ_TRY(compare_pair(c, &p, blocks));
    return c->parameters_only ? CZ_OK : compare_slots(c, p, blocks);
}

static cz_status compare_all(comparison *c, char *blocks)
{
    for (int64_t i = 0; i < source_count(c->a); i++)
        CZ_TRY(compare_stored(c, i, blocks));
    for (int64_t i = 0; i < source_count(c->b); i++) {
        const cz_archive_tensor b = source_tensor(c->b, i);
        if (cz_archive_find(c->a->archive, b.name) < 0)
            CZ_TRY(diff_note(c, "%s: only in B, %s %s", cz__show(b.name).text, b.type,
                             show_shape(b.dimensions, b.shape).text));
    }
    return CZ_OK;
}

cz_status diff_tensors(comparison *c)
{
    uint64_t total = 0;
    char *blocks = cz__allocate(CZ_MEMORY_STAGING, 2 * BLOCK);
    if (!blocks)
        return cz_fail(CZ_ERR_MEMORY, "no memory for two blocks of %d bytes", BLOCK);
    for (int64_t i = 0; i < source_count(c->a); i++)
        total +=
            source_value_bytes(c->a, i) + (c->parameters_only ? 0 : source_state_bytes(c->a, i));
    progress_begin(&c->bar, "comparing", total, c->quiet);
    cz_status status = compare_all(c, blocks);
    if (status == CZ_OK)
        status = diff_find_renamed(c);
    progress_end(&c->bar);
    cz__free(blocks);
    return status;
}
