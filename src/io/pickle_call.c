/* SPDX-License-Identifier: MIT */
/* What calls in a pickle stand for. Nothing is called. */
#include <string.h>

#include "base/status.h"
#include "io/pickle_machine.h"

typedef struct call {
    int32_t function, arguments; /* places */
    const cz__pickle_global *global;
} call;

static const cz__pickle_value *at(const cz__pickle_machine *m, int32_t place)
{
    return &m->pickle->values[place];
}

static cz_status bad_arguments(const cz__pickle_machine *m, const call *c)
{
    return cz__pickle_fail(m, "%s.%s is called with %lld arguments that it does not take",
                           c->global->module, c->global->name,
                           (long long)at(m, c->arguments)->count);
}

/* OrderedDict(), Counter({…}): a copy, as calls give new objects. */
static cz_status make_dict(cz__pickle_machine *m, const call *c)
{
    const cz__pickle_value *arguments = at(m, c->arguments);
    cz__pickle_value *made;
    int32_t from = -1;
    if (arguments->count > 1 ||
        (arguments->count == 1 && at(m, arguments->items[0])->kind != CZ__PICKLE_DICT))
        return bad_arguments(m, c);
    if (arguments->count == 1)
        from = arguments->items[0];
    CZ_TRY(cz__pickle_push_new(m, CZ__PICKLE_DICT, &made));
    if (from < 0)
        return CZ_OK;
    return cz__pickle_extend(m, m->stack[m->depth - 1], at(m, from)->items, at(m, from)->count);
}

static cz_status make_empty_dict(cz__pickle_machine *m)
{
    cz__pickle_value *made;
    return cz__pickle_push_new(m, CZ__PICKLE_DICT, &made);
}

/* Whatever it makes is of the kind of what makes it. */
static cz_status make_opaque(cz__pickle_machine *m, int32_t function)
{
    const cz__pickle_value of = *at(m, function);
    return cz__pickle_push_opaque(m, of.module, of.name, of.note);
}

/* Of the bytes of a text: latin-1 has one character for each byte, which UTF-8 has as one or two.
 * Anything else stays a thing that nobody reads. */
static cz_status encode(cz__pickle_machine *m, const call *c)
{
    const cz__pickle_value *arguments = at(m, c->arguments);
    const cz__pickle_value *text = arguments->count > 0 ? at(m, arguments->items[0]) : NULL;
    const bool latin = arguments->count == 2 &&
                       cz__pickle_is_text(at(m, arguments->items[1]), "latin1") &&
                       (text->kind == CZ__PICKLE_TEXT || text->kind == CZ__PICKLE_BYTES);
    cz__pickle_value *made;
    if (!latin)
        return cz__pickle_push_opaque(m, "_codecs", "encode", NULL);
    const char *from = text->kind == CZ__PICKLE_TEXT ? text->text : text->bytes;
    const int64_t length = text->kind == CZ__PICKLE_TEXT ? (int64_t)strlen(from) : text->length;
    CZ_TRY(cz__pickle_push_new(m, CZ__PICKLE_BYTES, &made));
    made->bytes = from;
    made->length = length;
    made->of_latin = true;
    return CZ_OK;
}

/* What numbers are of: the first argument, "f8". Its state says in which order bytes are. */
static cz_status make_numpy_type(cz__pickle_machine *m, const call *c)
{
    const cz__pickle_value *arguments = at(m, c->arguments);
    const bool named = arguments->count > 0 && at(m, arguments->items[0])->kind == CZ__PICKLE_TEXT;
    return cz__pickle_push_opaque(m, c->global->module,
                                  named ? at(m, arguments->items[0])->text : "dtype", NULL);
}

/* A number of 8 bytes at most, in *bytes; false: its bytes are no number's. */
static bool take_number(const cz__pickle_value *v, size_t size, unsigned char bytes[8])
{
    size_t count = 0;
    for (int64_t i = 0; i < v->length; i++) {
        unsigned value = (unsigned char)v->bytes[i];
        if (v->of_latin && value >= 0x80) { /* two bytes of UTF-8 for one */
            if (i + 1 >= v->length || (value != 0xc2 && value != 0xc3))
                return false;
            value = (value & 3) << 6 | ((unsigned char)v->bytes[++i] & 0x3f);
        }
        if (count == size)
            return false;
        bytes[count++] = (unsigned char)value;
    }
    return count == size;
}

/* A scalar of NumPy's that is a number, as programs have them for rates and epochs; others are
 * opaque. */
static cz_status make_number(cz__pickle_machine *m, const call *c)
{
    const cz__pickle_value *arguments = at(m, c->arguments), *type = NULL, *bytes = NULL;
    unsigned char raw[8] = {0};
    cz__pickle_value *made;
    if (arguments->count == 2) {
        type = at(m, arguments->items[0]);
        bytes = at(m, arguments->items[1]);
    }
    const bool typed = type && type->kind == CZ__PICKLE_OPAQUE && bytes->kind == CZ__PICKLE_BYTES;
    if (typed && strcmp(type->name, "f8") == 0 && take_number(bytes, 8, raw)) {
        CZ_TRY(cz__pickle_push_new(m, CZ__PICKLE_REAL, &made));
        memcpy(&made->real, raw, 8);
    } else if (typed && strcmp(type->name, "f4") == 0 && take_number(bytes, 4, raw)) {
        float real;
        memcpy(&real, raw, 4);
        CZ_TRY(cz__pickle_push_new(m, CZ__PICKLE_REAL, &made));
        made->real = (double)real;
    } else if (typed && strcmp(type->name, "i8") == 0 && take_number(bytes, 8, raw)) {
        CZ_TRY(cz__pickle_push_new(m, CZ__PICKLE_INTEGER, &made));
        memcpy(&made->integer, raw, 8);
    } else {
        m->pickle->opaque_count++;
        return cz__pickle_push_opaque(m, c->global->module, c->global->name, NULL);
    }
    return CZ_OK;
}

static cz_status take_tuple(cz__pickle_machine *m, const call *c)
{
    const cz__pickle_value *arguments = at(m, c->arguments);
    if (arguments->count != 1 || at(m, arguments->items[0])->kind != CZ__PICKLE_TUPLE)
        return bad_arguments(m, c);
    return cz__pickle_push(m, arguments->items[0]);
}

static cz_status make_device(cz__pickle_machine *m)
{
    cz__pickle_value *made;
    CZ_TRY(cz__pickle_push_new(m, CZ__PICKLE_TEXT, &made));
    made->text = "device";
    return CZ_OK;
}

static cz_status keep_call(cz__pickle_machine *m, const call *c)
{
    cz__pickle_value *made;
    const int32_t items[] = {c->function, c->arguments};
    CZ_TRY(cz__pickle_push_new(m, CZ__PICKLE_CALL, &made));
    return cz__pickle_extend(m, m->stack[m->depth - 1], items, 2);
}

/* Attributes come with BUILD. */
static cz_status make_object(cz__pickle_machine *m, const call *c)
{
    cz__pickle_value *made;
    CZ_TRY(cz__pickle_push_new(m, CZ__PICKLE_OBJECT, &made));
    return cz__pickle_extend(m, m->stack[m->depth - 1], &c->function, 1);
}

/* A parameter is the tensor it is made from. */
static cz_status take_first(cz__pickle_machine *m, const call *c)
{
    const cz__pickle_value *arguments = at(m, c->arguments);
    if (arguments->count < 1 || at(m, arguments->items[0])->kind != CZ__PICKLE_CALL)
        return bad_arguments(m, c);
    return cz__pickle_push(m, arguments->items[0]);
}

/* (function, type, arguments, state): tensors that have attributes, which are left. */
static cz_status make_from_type(cz__pickle_machine *m, const call *c)
{
    const cz__pickle_value *arguments = at(m, c->arguments);
    if (arguments->count != 4)
        return bad_arguments(m, c);
    const cz__pickle_value *function = at(m, arguments->items[0]);
    const cz__pickle_value *type = at(m, arguments->items[1]);
    if (function->kind == CZ__PICKLE_OPAQUE)
        return make_opaque(m, arguments->items[0]);
    const bool is_class =
        type->kind == CZ__PICKLE_OPAQUE || /* of the program's own tensors */
        (type->kind == CZ__PICKLE_GLOBAL && type->global->role == CZ__PICKLE_CLASS);
    if (function->kind != CZ__PICKLE_GLOBAL || !is_class ||
        at(m, arguments->items[2])->kind != CZ__PICKLE_TUPLE)
        return bad_arguments(m, c);
    const call inner = {arguments->items[0], arguments->items[2], function->global};
    switch (function->global->role) {
    case CZ__PICKLE_REBUILD:
    case CZ__PICKLE_REBUILD_AS:
        return keep_call(m, &inner);
    case CZ__PICKLE_PARAMETER:
        return take_first(m, &inner);
    default:
        return bad_arguments(m, c);
    }
}

static cz_status do_call(cz__pickle_machine *m, const call *c)
{
    switch (c->global->role) {
    case CZ__PICKLE_DICT_CLASS:
        return make_dict(m, c);
    case CZ__PICKLE_DEFAULT_CLASS:
        return make_empty_dict(m);
    case CZ__PICKLE_ENCODE:
        return encode(m, c);
    case CZ__PICKLE_NUMPY_TYPE:
        return make_numpy_type(m, c);
    case CZ__PICKLE_NUMPY:
        return make_number(m, c);
    case CZ__PICKLE_SIZE_CLASS:
        return take_tuple(m, c);
    case CZ__PICKLE_DEVICE:
        return make_device(m);
    case CZ__PICKLE_REBUILD:
    case CZ__PICKLE_REBUILD_AS:
        return keep_call(m, c);
    case CZ__PICKLE_PARAMETER:
        return take_first(m, c);
    case CZ__PICKLE_RECORD:
        return make_object(m, c);
    case CZ__PICKLE_FROM_TYPE:
        return make_from_type(m, c);
    default:
        return cz__pickle_fail(m, "%s.%s is called, which no state dictionary does",
                               c->global->module, c->global->name);
    }
}

cz_status cz__pickle_call(cz__pickle_machine *m)
{
    if (cz__pickle_above(m) < 2)
        return cz__pickle_fail(m, "a call without a callable and arguments");
    call c = {m->stack[m->depth - 2], m->stack[m->depth - 1], NULL};
    if (at(m, c.function)->kind == CZ__PICKLE_OPAQUE) { /* with whatever: it is not called */
        m->depth -= 2;
        return make_opaque(m, c.function);
    }
    if (at(m, c.function)->kind != CZ__PICKLE_GLOBAL)
        return cz__pickle_fail(m, "%s is called", cz__pickle_kind_name(at(m, c.function)->kind));
    if (at(m, c.arguments)->kind != CZ__PICKLE_TUPLE)
        return cz__pickle_fail(m, "a call with %s for its arguments",
                               cz__pickle_kind_name(at(m, c.arguments)->kind));
    c.global = at(m, c.function)->global;
    m->depth -= 2;
    return do_call(m, &c);
}
