/* SPDX-License-Identifier: MIT */
/* Opcodes that push a value: constants, texts, names. And the bytes that follow opcodes. */
#include <inttypes.h>
#include <string.h>

#include "base/status.h"
#include "io/pickle_machine.h"

typedef cz__pickle_machine machine;

/* The next `count` bytes; NULL: they are not there. */
static unsigned char *take(machine *m, uint64_t count)
{
    unsigned char *bytes = cz__pickle_bytes_of(m) + m->at;
    if (count > m->count - m->at)
        return NULL;
    m->at += (size_t)count;
    return bytes;
}

cz_status cz__pickle_take_number(machine *m, int bytes, uint64_t *number)
{
    const unsigned char *p = take(m, (uint64_t)bytes);
    *number = 0;
    if (!p)
        return cz__pickle_fail(m, "it ends in an opcode");
    for (int i = 0; i < bytes; i++)
        *number |= (uint64_t)p[i] << 8 * i;
    return CZ_OK;
}

/* ---- values ---- */

cz_status cz__pickle_push_none(machine *m, int argument)
{
    cz__pickle_value *v;
    return cz__pickle_push_new(m, CZ__PICKLE_NONE, &v);
}

cz_status cz__pickle_push_bool(machine *m, int argument)
{
    cz__pickle_value *v;
    CZ_TRY(cz__pickle_push_new(m, CZ__PICKLE_BOOL, &v));
    v->integer = argument;
    return CZ_OK;
}

cz_status cz__pickle_push_empty(machine *m, int argument)
{
    cz__pickle_value *v;
    return cz__pickle_push_new(m, (cz__pickle_kind)argument, &v);
}

/* `argument`: bytes of it, 4: with a sign. */
cz_status cz__pickle_push_integer(machine *m, int argument)
{
    uint64_t number;
    cz__pickle_value *v;
    CZ_TRY(cz__pickle_take_number(m, argument, &number));
    CZ_TRY(cz__pickle_push_new(m, CZ__PICKLE_INTEGER, &v));
    v->integer = argument == 4 ? (int32_t)(uint32_t)number : (int64_t)number;
    return CZ_OK;
}

/* Of so many bytes as stand before, little-endian with a sign. What 64 bits do not hold is no number of ours. */
cz_status cz__pickle_push_long(machine *m, int argument)
{
    uint64_t count, number = 0;
    cz__pickle_value *v;
    CZ_TRY(cz__pickle_take_number(m, argument, &count));
    const unsigned char *bytes = take(m, count);
    if (!bytes)
        return cz__pickle_fail(m, "an integer of %" PRIu64 " bytes, %zu are left", count,
                               m->count - m->at);
    const bool negative = count > 0 && bytes[count - 1] & 0x80;
    for (; count > 8 && bytes[count - 1] == (negative ? 0xff : 0);) /* more bytes than it needs */
        count--;
    if (count > 8 || (count == 8 && negative != bytes[7] >> 7))
        return cz__pickle_push_opaque(m, "", "an integer of more than 64 bits", NULL);
    for (uint64_t i = 0; i < 8; i++)
        number |= (uint64_t)(i < count ? bytes[i] : negative ? 0xff : 0) << 8 * i;
    CZ_TRY(cz__pickle_push_new(m, CZ__PICKLE_INTEGER, &v));
    v->integer = (int64_t)number;
    return CZ_OK;
}

cz_status cz__pickle_push_real(machine *m, int argument)
{
    uint64_t number;
    cz__pickle_value *v;
    CZ_TRY(cz__pickle_take_number(m, 8, &number));
    CZ_TRY(cz__pickle_push_new(m, CZ__PICKLE_REAL, &v));
    number = __builtin_bswap64(number);
    memcpy(&v->real, &number, sizeof v->real);
    return CZ_OK;
}

/* Moved by one byte, over what said its length, so that there is room for its end. */
cz_status cz__pickle_push_text(machine *m, int argument)
{
    uint64_t length;
    cz__pickle_value *v;
    CZ_TRY(cz__pickle_take_number(m, argument, &length));
    unsigned char *bytes = take(m, length);
    if (!bytes)
        return cz__pickle_fail(m, "a text of %" PRIu64 " bytes, %zu are left", length,
                               m->count - m->at);
    char *text = (char *)memmove(bytes - 1, bytes, (size_t)length);
    text[length] = 0;
    if (strlen(text) != length) { /* what Python had as bytes, before it had an opcode for them */
        CZ_TRY(cz__pickle_push_new(m, CZ__PICKLE_BYTES, &v));
        v->bytes = text;
        v->length = (int64_t)length;
        return CZ_OK;
    }
    if (!cz__utf8(text))
        return cz__pickle_fail(m, "a text that is not UTF-8");
    CZ_TRY(cz__pickle_push_new(m, CZ__PICKLE_TEXT, &v));
    v->text = text;
    return CZ_OK;
}

cz_status cz__pickle_push_bytes(machine *m, int argument)
{
    uint64_t length;
    cz__pickle_value *v;
    CZ_TRY(cz__pickle_take_number(m, argument, &length));
    const unsigned char *bytes = take(m, length);
    if (!bytes)
        return cz__pickle_fail(m, "%" PRIu64 " bytes, %zu are left", length, m->count - m->at);
    CZ_TRY(cz__pickle_push_new(m, CZ__PICKLE_BYTES, &v));
    v->bytes = (const char *)bytes;
    v->length = (int64_t)length;
    return CZ_OK;
}

/* ---- names ---- */

cz_status cz__pickle_push_opaque(machine *m, const char *module, const char *name, const char *note)
{
    cz__pickle_value *v;
    CZ_TRY(cz__pickle_push_new(m, CZ__PICKLE_OPAQUE, &v));
    v->module = module;
    v->name = name;
    v->note = note;
    return CZ_OK;
}

/* Could it be a name of Python's? */
static bool is_name(const char *name)
{
    bool plain = *name != 0;
    for (const char *at = name; *at && plain;)
        at += cz__character(at, &plain);
    return plain;
}

static cz_status push_name(machine *m, const char *module, const char *name)
{
    cz__pickle_value *v;
    const cz__pickle_global *global = cz__pickle_global_find(module, name);
    if (cz__pickle_is_attack(module, name))
        return cz__pickle_fail(m,
                               "the name %s.%s, which no data have: refused, nothing was executed. "
                               "The file is made to harm whoever loads it in Python",
                               cz__show(module).text, cz__show(name).text);
    if (!is_name(module) || !is_name(name))
        return cz__pickle_fail(m, "the name %s.%s, which can be none of Python's",
                               cz__show(module).text, cz__show(name).text);
    m->pickle->opaque_count += global ? 0 : 1;
    if (!global || global->role == CZ__PICKLE_REFUSED)
        return cz__pickle_push_opaque(m, global ? global->module : module,
                                      global ? global->name : name, global ? global->note : NULL);
    CZ_TRY(cz__pickle_push_new(m, CZ__PICKLE_GLOBAL, &v));
    v->global = global;
    return CZ_OK;
}

/* A line, whose end becomes that of a text; NULL: there is none. */
static char *take_line(machine *m)
{
    char *line = (char *)cz__pickle_bytes_of(m) + m->at;
    char *end = memchr(line, '\n', m->count - m->at);
    if (!end)
        return NULL;
    *end = 0;
    m->at += (size_t)(end - line) + 1;
    return line;
}

cz_status cz__pickle_push_global(machine *m, int argument)
{
    const char *module = take_line(m);
    const char *name = module ? take_line(m) : NULL;
    return name ? push_name(m, module, name) : cz__pickle_fail(m, "a name that does not end");
}

cz_status cz__pickle_push_stack_global(machine *m, int argument)
{
    const cz__pickle_value *values = m->pickle->values;
    if (cz__pickle_above(m) < 2 || values[m->stack[m->depth - 1]].kind != CZ__PICKLE_TEXT ||
        values[m->stack[m->depth - 2]].kind != CZ__PICKLE_TEXT)
        return cz__pickle_fail(m, "STACK_GLOBAL without two texts");
    m->depth -= 2;
    return push_name(m, values[m->stack[m->depth]].text, values[m->stack[m->depth + 1]].text);
}
