/* SPDX-License-Identifier: MIT */
/* The values of a pickle, and the machine's stack of them. */
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/memory.h"
#include "base/status.h"
#include "io/pickle.h"
#include "io/pickle_machine.h"

enum {
    ITEM_COST = 2 * sizeof(int32_t)
}; /* lists grow to twice their size, and leave what they grew out of */

cz_status cz__pickle_fail(const cz__pickle_machine *m, const char *format, ...)
{
    char what[400];
    va_list args;
    va_start(args, format);
    vsnprintf(what, sizeof what, format, args);
    va_end(args);
    return cz__fail(CZ_ERR_FORMAT, "%s: at byte %zu: %s", m->where, m->op_at, what);
}

cz_status cz__pickle_no_memory(const cz__pickle_machine *m)
{
    return cz__fail(CZ_ERR_MEMORY, "%s: no memory to read it", m->where);
}

cz_status cz__pickle_push(cz__pickle_machine *m, int32_t place)
{
    int32_t *stack = m->depth < CZ__PICKLE_MOST_VALUES
                         ? cz__grow(m->stack, m->depth, &m->stack_room, sizeof *stack)
                         : NULL;
    if (!stack)
        return cz__pickle_no_memory(m);
    m->stack = stack;
    m->stack[m->depth++] = place;
    return CZ_OK;
}

cz_status cz__pickle_push_new(cz__pickle_machine *m, cz__pickle_kind kind, cz__pickle_value **value)
{
    cz__pickle *p = m->pickle;
    if (p->count >= CZ__PICKLE_MOST_VALUES)
        return cz__pickle_fail(m, "more than %d values", (int)CZ__PICKLE_MOST_VALUES);
    CZ_TRY(cz__budget_spend(&m->budget, sizeof **value + sizeof *m->stack, "its values"));
    cz__pickle_value *values = cz__grow(p->values, p->count, &p->capacity, sizeof *values);
    if (!values)
        return cz__pickle_no_memory(m);
    p->values = values;
    *value = &p->values[p->count];
    **value = (cz__pickle_value){.kind = kind};
    return cz__pickle_push(m, (int32_t)p->count++);
}

int64_t cz__pickle_above(const cz__pickle_machine *m)
{
    return m->depth - (m->mark_count > 0 ? m->marks[m->mark_count - 1] : 0);
}

/* Most values have a few items, and there are millions: they share blocks, and go with the
 * pickle. */
enum { BLOCK_ITEMS = 16 * 1024 };
struct cz__pickle_items {
    struct cz__pickle_items *next;
    int64_t used, room;
    int32_t items[];
};

static int32_t *take_items(cz__pickle *p, int64_t count)
{
    struct cz__pickle_items *block = p->items;
    if (!block || block->room - block->used < count) {
        const int64_t room = count > BLOCK_ITEMS / 4 ? count : BLOCK_ITEMS;
        block = cz__calloc(1, sizeof *block + (size_t)room * sizeof *block->items);
        if (!block)
            return NULL;
        block->room = room;
        /* One for many items alone is full: the one before goes on being filled. */
        const bool alone = room == count && p->items;
        block->next = alone ? p->items->next : p->items;
        *(alone ? &p->items->next : &p->items) = block;
    }
    block->used += count;
    return block->items + block->used - count;
}

/* As many as there are at first; twice as many when more come. */
static cz_status have_room(cz__pickle_machine *m, cz__pickle_value *v, int64_t more)
{
    if (v->capacity - v->count >= more)
        return CZ_OK;
    const int64_t least = v->count + more;
    const int64_t capacity = least > 2 * v->capacity ? least : 2 * v->capacity;
    int32_t *items = take_items(m->pickle, capacity);
    if (!items)
        return cz__pickle_no_memory(m);
    if (v->count > 0)
        memcpy(items, v->items, (size_t)v->count * sizeof *items);
    v->items = items;
    v->capacity = capacity;
    return CZ_OK;
}

/* The items may be the value's own: a dictionary that is copied is another value, but a list may be
 * its own item. */
cz_status cz__pickle_extend(cz__pickle_machine *m, int32_t to, const int32_t *items, int64_t count)
{
    CZ_TRY(cz__budget_spend(&m->budget, (uint64_t)count * ITEM_COST, "items of its values"));
    cz__pickle_value *v = &m->pickle->values[to];
    CZ_TRY(have_room(m, v, count));
    if (count > 0)
        memcpy(v->items + v->count, items, (size_t)count * sizeof *items);
    v->count += count;
    return CZ_OK;
}

void cz__pickle_destroy(cz__pickle **pickle)
{
    if (!pickle || !*pickle)
        return;
    while ((*pickle)->items) {
        struct cz__pickle_items *block = (*pickle)->items;
        (*pickle)->items = block->next;
        cz__free(block);
    }
    cz__free((*pickle)->values);
    cz__free((*pickle)->bytes);
    cz__free(*pickle);
    *pickle = NULL;
}

const cz__pickle_value *cz__pickle_get(const cz__pickle *p, const cz__pickle_value *dict,
                                       const char *key)
{
    if (!dict || dict->kind != CZ__PICKLE_DICT)
        return NULL;
    for (int64_t i = dict->count - 2; i >= 0; i -= 2)
        if (cz__pickle_is_text(cz__pickle_item(p, dict, i), key))
            return cz__pickle_item(p, dict, i + 1);
    return NULL;
}

const cz__pickle_value *cz__pickle_attribute(const cz__pickle *p, const cz__pickle_value *object,
                                             const char *class_name, const char *attribute)
{
    if (!object || object->kind != CZ__PICKLE_OBJECT || object->count < 2 ||
        strcmp(cz__pickle_item(p, object, 0)->global->name, class_name) != 0)
        return NULL;
    return cz__pickle_get(p, cz__pickle_item(p, object, 1), attribute);
}

const char *cz__pickle_kind_name(cz__pickle_kind kind)
{
    static const char *const names[] = {
        [CZ__PICKLE_NONE] = "None",
        [CZ__PICKLE_BOOL] = "a truth value",
        [CZ__PICKLE_INTEGER] = "an integer",
        [CZ__PICKLE_REAL] = "a real",
        [CZ__PICKLE_TEXT] = "a text",
        [CZ__PICKLE_BYTES] = "bytes",
        [CZ__PICKLE_LIST] = "a list",
        [CZ__PICKLE_TUPLE] = "a tuple",
        [CZ__PICKLE_DICT] = "a dictionary",
        [CZ__PICKLE_GLOBAL] = "a name",
        [CZ__PICKLE_PERSISTENT] = "a storage",
        [CZ__PICKLE_CALL] = "a tensor",
        [CZ__PICKLE_OBJECT] = "an object of torch's",
        [CZ__PICKLE_OPAQUE] = "an object of Python's",
    };
    return names[kind];
}

/* Each once; a few are enough. */
bool cz__pickle_list_opaque(const cz__pickle *p, cz__text *list)
{
    enum { FEW = 5 };
    const cz__pickle_value *listed[FEW];
    int count = 0;
    for (int64_t i = 0; i < p->count && count <= FEW; i++) {
        const cz__pickle_value *v = &p->values[i];
        bool known = v->kind != CZ__PICKLE_OPAQUE || strcmp(v->module, "numpy") == 0;
        for (int k = 0; !known && k < count; k++)
            known =
                strcmp(v->name, listed[k]->name) == 0 && strcmp(v->module, listed[k]->module) == 0;
        if (known)
            continue;
        if (count < FEW) {
            listed[count] = v;
            cz__text_print(list, "%s%s%s%s", count ? ", " : "", cz__show(v->module).text,
                           v->module[0] ? "." : "", cz__show(v->name).text);
        } else
            cz__text_print(list, ", …");
        count++;
    }
    return !list->failed;
}

/* ---- pickles that are written ---- */
/* Pickles that are written: protocol 2, in the few opcodes that torch's restricted reader takes. */

/* Little-endian, whatever the machine. */
static void put_bytes(cz__pickling *p, char opcode, uint64_t value, int count)
{
    char bytes[9] = {opcode};
    for (int i = 0; i < count; i++)
        bytes[1 + i] = (char)(value >> 8 * i & 0xff);
    (void)cz__text_append(&p->out, bytes, (size_t)count + 1);
}

void cz__pickle_op(cz__pickling *p, char opcode)
{
    (void)cz__text_append(&p->out, &opcode, 1);
}

void cz__pickle_begin(cz__pickling *p)
{
    put_bytes(p, '\x80', 2, 1);
}

void cz__pickle_end(cz__pickling *p)
{
    cz__pickle_op(p, '.');
}

void cz__pickle_put_none(cz__pickling *p)
{
    cz__pickle_op(p, 'N');
}

void cz__pickle_put_bool(cz__pickling *p, bool value)
{
    cz__pickle_op(p, value ? '\x88' : '\x89');
}

void cz__pickle_put_integer(cz__pickling *p, int64_t value)
{
    if (value >= 0 && value < 256)
        put_bytes(p, 'K', (uint64_t)value, 1);
    else if (value >= 0 && value < 65536)
        put_bytes(p, 'M', (uint64_t)value, 2);
    else if (value >= INT32_MIN && value <= INT32_MAX)
        put_bytes(p, 'J', (uint64_t)value, 4);
    else {
        put_bytes(p, '\x8a', 8, 1);
        for (int i = 0; i < 8; i++)
            cz__pickle_op(p, (char)((uint64_t)value >> 8 * i & 0xff));
    }
}

void cz__pickle_put_real(cz__pickling *p, double value)
{
    uint64_t bits;
    memcpy(&bits, &value, sizeof bits);
    put_bytes(p, 'G', __builtin_bswap64(bits), 8);
}

void cz__pickle_put_text(cz__pickling *p, const char *text)
{
    const size_t length = strlen(text);
    put_bytes(p, 'X', length, 4);
    (void)cz__text_append(&p->out, text, length);
}

/* The first time by name, then by its place in the memo. */
void cz__pickle_put_global(cz__pickling *p, const char *module, const char *name)
{
    for (int i = 0; i < p->name_count; i++)
        if (strcmp(p->names[i], name) == 0) {
            put_bytes(p, 'h', (uint64_t)i, 1);
            return;
        }
    (void)cz__text_print(&p->out, "c%s\n%s\n", module, name);
    if (p->name_count < (int)(sizeof p->names / sizeof *p->names)) {
        put_bytes(p, 'q', (uint64_t)p->name_count, 1);
        p->names[p->name_count++] = name;
    }
}

void cz__pickle_begin_dict(cz__pickling *p)
{
    cz__pickle_op(p, CZ__PICKLE_OP_EMPTY_DICT);
    cz__pickle_op(p, CZ__PICKLE_OP_MARK);
}

void cz__pickle_end_dict(cz__pickling *p)
{
    cz__pickle_op(p, CZ__PICKLE_OP_SETITEMS);
}

void cz__pickle_begin_list(cz__pickling *p)
{
    cz__pickle_op(p, CZ__PICKLE_OP_EMPTY_LIST);
    cz__pickle_op(p, CZ__PICKLE_OP_MARK);
}

void cz__pickle_end_list(cz__pickling *p)
{
    cz__pickle_op(p, CZ__PICKLE_OP_APPENDS);
}

/* ---- values that are copied ---- */

enum { MOST_DEPTH = 64 };

typedef struct copying {
    cz__pickling *to;
    const cz__pickle *from;
    size_t most;
    cz__pickle_other other;
    void *context;
} copying;

static cz_status copy_value(const copying *c, const cz__pickle_value *v, int depth)
{
    if (c->to->out.count > c->most)
        return cz__fail(CZ_ERR_FORMAT, "the same values again and again, or in themselves");
    switch (depth < MOST_DEPTH ? v->kind : CZ__PICKLE_OPAQUE) {
    case CZ__PICKLE_NONE:
        cz__pickle_put_none(c->to);
        return CZ_OK;
    case CZ__PICKLE_BOOL:
        cz__pickle_put_bool(c->to, v->integer != 0);
        return CZ_OK;
    case CZ__PICKLE_INTEGER:
        cz__pickle_put_integer(c->to, v->integer);
        return CZ_OK;
    case CZ__PICKLE_REAL:
        cz__pickle_put_real(c->to, v->real);
        return CZ_OK;
    case CZ__PICKLE_TEXT:
        cz__pickle_put_text(c->to, v->text);
        return CZ_OK;
    case CZ__PICKLE_LIST:
        cz__pickle_begin_list(c->to);
        break;
    case CZ__PICKLE_DICT:
        cz__pickle_begin_dict(c->to);
        break;
    case CZ__PICKLE_TUPLE:
        cz__pickle_op(c->to, CZ__PICKLE_OP_MARK);
        break;
    default:
        return c->other(c->to, v, c->context);
    }
    for (int64_t i = 0; i < v->count; i++)
        CZ_TRY(copy_value(c, cz__pickle_item(c->from, v, i), depth + 1));
    if (v->kind == CZ__PICKLE_LIST)
        cz__pickle_end_list(c->to);
    else if (v->kind == CZ__PICKLE_DICT)
        cz__pickle_end_dict(c->to);
    else
        cz__pickle_op(c->to, CZ__PICKLE_OP_TUPLE);
    return CZ_OK;
}

cz_status cz__pickle_copy(cz__pickling *to, const cz__pickle *from, const cz__pickle_value *value,
                          size_t most, cz__pickle_other other, void *context)
{
    const copying c = {to, from, most, other, context};
    return copy_value(&c, value, 0);
}
