/* SPDX-License-Identifier: MIT */
/* The machine: opcodes, one function each. Those that are only known by name are refused by it. */
#include <inttypes.h>
#include <string.h>

#include "base/memory.h"
#include "base/status.h"
#include "io/pickle_machine.h"

typedef cz__pickle_machine machine;

/* ---- the stack ---- */

static cz_status set_mark(machine *m, int argument)
{
    int64_t *marks = cz__grow(m->marks, m->mark_count, &m->mark_room, sizeof *marks);
    if (!marks)
        return cz__pickle_no_memory(m);
    m->marks = marks;
    m->marks[m->mark_count++] = m->depth;
    return CZ_OK;
}

/* The values above the last mark, which goes: they stay in the stack's memory until something is
 * pushed. */
static cz_status take_marked(machine *m, int64_t *begin, int64_t *count)
{
    if (m->mark_count == 0)
        return cz__pickle_fail(m, "an opcode that wants a mark, and there is none");
    *begin = m->marks[--m->mark_count];
    *count = m->depth - *begin;
    m->depth = *begin;
    return CZ_OK;
}

static cz_status make_tuple_of(machine *m, int64_t begin, int64_t count)
{
    cz__pickle_value *v;
    const int32_t first = count > 0 ? m->stack[begin] : 0; /* whose place the tuple takes */
    CZ_TRY(cz__pickle_push_new(m, CZ__PICKLE_TUPLE, &v));
    const int32_t tuple = m->stack[begin];
    if (count == 0)
        return CZ_OK;
    m->stack[begin] = first;
    const cz_status status = cz__pickle_extend(m, tuple, m->stack + begin, count);
    m->stack[begin] = tuple;
    return status;
}

static cz_status push_tuple(machine *m, int argument)
{
    int64_t begin = 0, count = 0;
    CZ_TRY(take_marked(m, &begin, &count));
    return make_tuple_of(m, begin, count);
}

static cz_status push_tuple_of(machine *m, int argument)
{
    if (cz__pickle_above(m) < argument)
        return cz__pickle_fail(m, "a tuple of %d, and fewer values", argument);
    m->depth -= argument;
    return make_tuple_of(m, m->depth, argument);
}

/* ---- filling ---- */

/* What Python can hash. */
static bool is_key(cz__pickle_kind kind)
{
    return kind != CZ__PICKLE_LIST && kind != CZ__PICKLE_DICT;
}

/* An object that is filled as a list or a dictionary is one, of a class of the program's own. */
static void take_for(machine *m, int32_t place, cz__pickle_kind kind)
{
    cz__pickle_value *v = &m->pickle->values[place];
    if (v->kind == CZ__PICKLE_OPAQUE && !v->note)
        *v = (cz__pickle_value){.kind = kind};
}

static cz_status fill_container(machine *m, cz__pickle_kind kind, int64_t begin, int64_t count)
{
    if (cz__pickle_above(m) > 0)
        take_for(m, m->stack[m->depth - 1], kind);
    if (cz__pickle_above(m) < 1 || m->pickle->values[m->stack[m->depth - 1]].kind != kind)
        return cz__pickle_fail(m, "items for %s that is not there", cz__pickle_kind_name(kind));
    if (kind == CZ__PICKLE_DICT && count % 2 != 0)
        return cz__pickle_fail(m, "a key without a value");
    if (kind == CZ__PICKLE_DICT) {
        for (int64_t i = 0; i < count; i += 2) {
            const cz__pickle_kind key = m->pickle->values[m->stack[begin + i]].kind;
            if (!is_key(key))
                return cz__pickle_fail(m, "%s as a key", cz__pickle_kind_name(key));
        }
    }
    return cz__pickle_extend(m, m->stack[m->depth - 1], m->stack + begin, count);
}

static cz_status add_marked(machine *m, int argument)
{
    int64_t begin = 0, count = 0;
    CZ_TRY(take_marked(m, &begin, &count));
    return fill_container(m, (cz__pickle_kind)argument, begin, count);
}

static cz_status add_one(machine *m, int argument)
{
    const int count = argument == CZ__PICKLE_DICT ? 2 : 1;
    if (cz__pickle_above(m) < count)
        return cz__pickle_fail(m, "nothing to add");
    m->depth -= count;
    return fill_container(m, (cz__pickle_kind)argument, m->depth, count);
}

/* Attributes, which are left but for those of records: the metadata of a module's dictionary, what
 * an object has. */
static cz_status set_state(machine *m, int argument)
{
    if (cz__pickle_above(m) < 2)
        return cz__pickle_fail(m, "BUILD without a state");
    m->depth--;
    cz__pickle_value *const v = &m->pickle->values[m->stack[m->depth - 1]];
    const cz__pickle_value *const attributes = &m->pickle->values[m->stack[m->depth]];
    const cz__pickle_kind object = v->kind;
    /* NumPy's types: (3, '<', …) says that their bytes are little-endian, and anything else is
     * nothing we read */
    if (object == CZ__PICKLE_OPAQUE && strcmp(v->module, "numpy") == 0 &&
        !(attributes->kind == CZ__PICKLE_TUPLE && attributes->count > 1 &&
          cz__pickle_is_text(&m->pickle->values[attributes->items[1]], "<")))
        v->name = "dtype";
    if (object == CZ__PICKLE_OBJECT && v->count == 1)
        return cz__pickle_extend(m, m->stack[m->depth - 1], &m->stack[m->depth], 1);
    if (object == CZ__PICKLE_DICT || object == CZ__PICKLE_LIST || object == CZ__PICKLE_CALL ||
        object == CZ__PICKLE_OPAQUE)
        return CZ_OK;
    return cz__pickle_fail(m, "BUILD of %s", cz__pickle_kind_name(object));
}

/* Sets, which have no use here. */
static cz_status push_set(machine *m, int argument)
{
    return cz__pickle_push_opaque(m, "builtins", "set", NULL);
}

static cz_status add_to_set(machine *m, int argument)
{
    int64_t begin = 0, count = 0;
    CZ_TRY(take_marked(m, &begin, &count));
    return cz__pickle_above(m) > 0 &&
                   m->pickle->values[m->stack[m->depth - 1]].kind == CZ__PICKLE_OPAQUE
               ? CZ_OK
               : cz__pickle_fail(m, "items for a set that is not there");
}

static cz_status push_frozen_set(machine *m, int argument)
{
    int64_t begin = 0, count = 0;
    CZ_TRY(take_marked(m, &begin, &count));
    return cz__pickle_push_opaque(m, "builtins", "frozenset", NULL);
}

/* With arguments by name. */
static cz_status call_with_names(machine *m, int argument)
{
    if (cz__pickle_above(m) < 3)
        return cz__pickle_fail(m, "a call without a callable and arguments");
    m->depth--;
    return cz__pickle_call(m);
}

/* Python drops what it had put down of a tuple that is in itself. */
static cz_status pop(machine *m, int argument)
{
    if (cz__pickle_above(m) > 0)
        m->depth--;
    else if (m->mark_count > 0)
        m->mark_count--;
    else
        return cz__pickle_fail(m, "nothing to drop");
    return CZ_OK;
}

static cz_status pop_marked(machine *m, int argument)
{
    int64_t begin, count;
    return take_marked(m, &begin, &count);
}

static cz_status call(machine *m, int argument)
{
    return cz__pickle_call(m);
}

static cz_status push_persistent(machine *m, int argument)
{
    cz__pickle_value *v;
    if (cz__pickle_above(m) < 1 ||
        m->pickle->values[m->stack[m->depth - 1]].kind != CZ__PICKLE_TUPLE)
        return cz__pickle_fail(m, "BINPERSID without a tuple");
    const int32_t tuple = m->stack[--m->depth];
    CZ_TRY(cz__pickle_push_new(m, CZ__PICKLE_PERSISTENT, &v));
    return cz__pickle_extend(m, m->stack[m->depth - 1], &tuple, 1);
}

/* ---- the memo ---- */

/* Numbers go up as values are remembered: one beyond the bytes of the pickle is a trap. */
static cz_status remember(machine *m, uint64_t number)
{
    if (cz__pickle_above(m) < 1)
        return cz__pickle_fail(m, "nothing to remember");
    if (number >= m->count || number >= CZ__PICKLE_MOST_VALUES)
        return cz__pickle_fail(m, "a memo of %" PRIu64 " values", number);
    while (m->memo_count <= (int64_t)number) {
        int32_t *memo = cz__grow(m->memo, m->memo_count, &m->memo_room, sizeof *memo);
        if (!memo)
            return cz__pickle_no_memory(m);
        m->memo = memo;
        m->memo[m->memo_count++] = -1;
    }
    m->memo[number] = m->stack[m->depth - 1];
    return CZ_OK;
}

static cz_status put(machine *m, int argument)
{
    uint64_t number;
    CZ_TRY(cz__pickle_take_number(m, argument, &number));
    return remember(m, number);
}

static cz_status memoize(machine *m, int argument)
{
    return remember(m, (uint64_t)m->memoized++);
}

static cz_status get(machine *m, int argument)
{
    uint64_t number;
    CZ_TRY(cz__pickle_take_number(m, argument, &number));
    if (number >= (uint64_t)m->memo_count || m->memo[number] < 0)
        return cz__pickle_fail(m, "value %" PRIu64 " of the memo, which has none", number);
    return cz__pickle_push(m, m->memo[number]);
}

/* ---- around ---- */

static cz_status check_protocol(machine *m, int argument)
{
    uint64_t protocol;
    CZ_TRY(cz__pickle_take_number(m, 1, &protocol));
    return protocol >= 2 && protocol <= 5
               ? CZ_OK
               : cz__pickle_fail(m, "protocol %" PRIu64 ", wanted 2 to 5", protocol);
}

static cz_status check_frame(machine *m, int argument)
{
    uint64_t length;
    CZ_TRY(cz__pickle_take_number(m, 8, &length));
    return length <= m->count - m->at ? CZ_OK
                                      : cz__pickle_fail(m, "a frame of %" PRIu64 " bytes", length);
}

static const struct {
    const char *name;
    cz_status (*run)(machine *m, int argument); /* NULL: refused */
    int argument;
} opcodes[256] = {
    ['N'] = {"NONE", cz__pickle_push_none, 0},
    [0x88] = {"NEWTRUE", cz__pickle_push_bool, 1},
    [0x89] = {"NEWFALSE", cz__pickle_push_bool, 0},
    ['K'] = {"BININT1", cz__pickle_push_integer, 1},
    ['M'] = {"BININT2", cz__pickle_push_integer, 2},
    ['J'] = {"BININT", cz__pickle_push_integer, 4},
    [0x8a] = {"LONG1", cz__pickle_push_long, 1},
    [0x8b] = {"LONG4", cz__pickle_push_long, 4},
    ['G'] = {"BINFLOAT", cz__pickle_push_real, 0},
    [0x8c] = {"SHORT_BINUNICODE", cz__pickle_push_text, 1},
    ['X'] = {"BINUNICODE", cz__pickle_push_text, 4},
    [0x8d] = {"BINUNICODE8", cz__pickle_push_text, 8},
    ['U'] = {"SHORT_BINSTRING", cz__pickle_push_text, 1},
    ['T'] = {"BINSTRING", cz__pickle_push_text, 4},
    ['C'] = {"SHORT_BINBYTES", cz__pickle_push_bytes, 1},
    ['B'] = {"BINBYTES", cz__pickle_push_bytes, 4},
    [0x8e] = {"BINBYTES8", cz__pickle_push_bytes, 8},
    ['c'] = {"GLOBAL", cz__pickle_push_global, 0},
    [0x93] = {"STACK_GLOBAL", cz__pickle_push_stack_global, 0},
    ['('] = {"MARK", set_mark, 0},
    ['t'] = {"TUPLE", push_tuple, 0},
    [0x85] = {"TUPLE1", push_tuple_of, 1},
    [0x86] = {"TUPLE2", push_tuple_of, 2},
    [0x87] = {"TUPLE3", push_tuple_of, 3},
    [')'] = {"EMPTY_TUPLE", cz__pickle_push_empty, CZ__PICKLE_TUPLE},
    [']'] = {"EMPTY_LIST", cz__pickle_push_empty, CZ__PICKLE_LIST},
    ['}'] = {"EMPTY_DICT", cz__pickle_push_empty, CZ__PICKLE_DICT},
    ['a'] = {"APPEND", add_one, CZ__PICKLE_LIST},
    ['e'] = {"APPENDS", add_marked, CZ__PICKLE_LIST},
    ['s'] = {"SETITEM", add_one, CZ__PICKLE_DICT},
    ['u'] = {"SETITEMS", add_marked, CZ__PICKLE_DICT},
    ['R'] = {"REDUCE", call, 0},
    [0x81] = {"NEWOBJ", call, 0}, /* of a class: the same for those in the list */
    ['b'] = {"BUILD", set_state, 0},
    ['Q'] = {"BINPERSID", push_persistent, 0},
    ['q'] = {"BINPUT", put, 1},
    ['r'] = {"LONG_BINPUT", put, 4},
    [0x94] = {"MEMOIZE", memoize, 0},
    ['h'] = {"BINGET", get, 1},
    ['j'] = {"LONG_BINGET", get, 4},
    [0x80] = {"PROTO", check_protocol, 0},
    [0x95] = {"FRAME", check_frame, 0},
    ['0'] = {"POP", pop, 0},
    ['1'] = {"POP_MARK", pop_marked, 0},
    ['2'] = {"DUP", NULL, 0},
    ['I'] = {"INT", NULL, 0},
    ['L'] = {"LONG", NULL, 0},
    ['F'] = {"FLOAT", NULL, 0},
    ['S'] = {"STRING", NULL, 0},
    ['V'] = {"UNICODE", NULL, 0},
    ['P'] = {"PERSID", NULL, 0},
    ['p'] = {"PUT", NULL, 0},
    ['g'] = {"GET", NULL, 0},
    ['d'] = {"DICT", NULL, 0},
    ['l'] = {"LIST", NULL, 0},
    ['i'] = {"INST", NULL, 0},
    ['o'] = {"OBJ", NULL, 0},
    [0x82] = {"EXT1", NULL, 0},
    [0x83] = {"EXT2", NULL, 0},
    [0x84] = {"EXT4", NULL, 0},
    [0x8f] = {"EMPTY_SET", push_set, 0},
    [0x90] = {"ADDITEMS", add_to_set, 0},
    [0x91] = {"FROZENSET", push_frozen_set, 0},
    [0x92] = {"NEWOBJ_EX", call_with_names, 0},
    [0x96] = {"BYTEARRAY8", cz__pickle_push_bytes, 8},
    [0x97] = {"NEXT_BUFFER", NULL, 0},
    [0x98] = {"READONLY_BUFFER", NULL, 0},
};

static cz_status run_one(machine *m, unsigned opcode)
{
    if (opcodes[opcode].run)
        return opcodes[opcode].run(m, opcodes[opcode].argument);
    if (!opcodes[opcode].name)
        return cz__pickle_fail(m, "the byte 0x%02x, which is no opcode", opcode);
    return cz__pickle_fail(
        m, "the opcode %s, which is none of a state dictionary: refused, nothing was executed",
        opcodes[opcode].name);
}

static cz_status run_opcodes(machine *m)
{
    if (m->count < 2 || cz__pickle_bytes_of(m)[0] != 0x80)
        return cz__pickle_fail(m, "no pickle of protocol 2 or later");
    while (m->at < m->count) {
        m->op_at = m->at;
        const unsigned opcode = cz__pickle_bytes_of(m)[m->at++];
        if (opcode != '.') {
            CZ_TRY(run_one(m, opcode));
            continue;
        }
        if (m->depth != 1 || m->mark_count != 0 || m->at != m->count)
            return cz__pickle_fail(m, "its end, with %" PRId64 " values and %zu bytes left",
                                   m->depth, m->count - m->at);
        m->pickle->root = m->stack[0];
        return CZ_OK;
    }
    m->op_at = m->at;
    return cz__pickle_fail(m, "nothing more: it has no end");
}

cz_status cz__pickle_read(cz__pickle **out, const char *where, const void *bytes, size_t count)
{
    machine m = {.where = where, .count = count, .budget = cz__budget_of(where, count)};
    *out = NULL;
    m.pickle = cz__calloc(1, sizeof *m.pickle);
    if (m.pickle)
        m.pickle->bytes = cz__calloc(count + 1, 1);
    cz_status status = CZ_OK;
    if (!m.pickle || !m.pickle->bytes)
        status = cz__pickle_no_memory(&m);
    else {
        memcpy(m.pickle->bytes, bytes, count);
        status = run_opcodes(&m);
    }
    cz__free(m.stack);
    cz__free(m.marks);
    cz__free(m.memo);
    if (status != CZ_OK)
        cz__pickle_destroy(&m.pickle);
    *out = m.pickle;
    return status;
}
