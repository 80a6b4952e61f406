/* SPDX-License-Identifier: MIT */
/* Pickles that are written: protocol 2, in the few opcodes that torch's restricted reader takes. */
#include <string.h>

#include "io/pickle.h"

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
