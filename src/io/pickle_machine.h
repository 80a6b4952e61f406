/* SPDX-License-Identifier: MIT */
/* The machine that a pickle is a program for, for the files that are its parts: values and calls
 * (pickle_call.c), opcodes that push a value (pickle_push.c), and the others (pickle_read.c). */
#ifndef CZ_IO_PICKLE_MACHINE_H
#define CZ_IO_PICKLE_MACHINE_H

#include "io/pickle.h"
#include "io/stream.h"

enum { CZ__PICKLE_MOST_VALUES = 1 << 24 };

typedef struct cz__pickle_machine {
    cz__pickle *pickle;
    const char *where;
    size_t count, at; /* bytes; the next one */
    size_t op_at;     /* of the opcode that is being done */
    int32_t *stack;   /* owned, as the next two */
    int64_t *marks;   /* depths of the stack */
    int32_t *memo;    /* -1: not set */
    int64_t depth, stack_room, mark_count, mark_room, memo_count, memo_room;
    int64_t memoized; /* what MEMOIZE has counted */
    cz__budget budget;
} cz__pickle_machine;

/* CZ_ERR_FORMAT with the place. */
cz_status cz__pickle_fail(const cz__pickle_machine *m, const char *format, ...) CZ_PRINTF(2, 3);
cz_status cz__pickle_no_memory(const cz__pickle_machine *m);

/* A new value on the stack, zeroed but for its kind; valid until the next one. */
cz_status cz__pickle_push_new(cz__pickle_machine *m, cz__pickle_kind kind,
                              cz__pickle_value **value);
cz_status cz__pickle_push(cz__pickle_machine *m, int32_t place);
/* `module` and `name` stay as long as the pickle, `note` for ever. */
cz_status cz__pickle_push_opaque(cz__pickle_machine *m, const char *module, const char *name,
                                 const char *note);
/* Values above the last mark. */
int64_t cz__pickle_above(const cz__pickle_machine *m);
/* `count` places become items of a value. */
cz_status cz__pickle_extend(cz__pickle_machine *m, int32_t to, const int32_t *items, int64_t count);

/* The two values on top are a callable and its arguments: what the call stands for takes their
 * place. */
cz_status cz__pickle_call(cz__pickle_machine *m);

/* ---- opcodes ---- */

static inline unsigned char *cz__pickle_bytes_of(const cz__pickle_machine *m)
{
    return (unsigned char *)m->pickle->bytes;
}
/* The next bytes, up to 8 of them, as a number. */
cz_status cz__pickle_take_number(cz__pickle_machine *m, int bytes, uint64_t *number);

/* What `argument` is, the table of opcodes says: a value, a kind, bytes of a number or of a
 * length. */
cz_status cz__pickle_push_none(cz__pickle_machine *m, int argument);
cz_status cz__pickle_push_bool(cz__pickle_machine *m, int argument);
cz_status cz__pickle_push_empty(cz__pickle_machine *m, int argument);
cz_status cz__pickle_push_integer(cz__pickle_machine *m, int argument);
cz_status cz__pickle_push_long(cz__pickle_machine *m, int argument);
cz_status cz__pickle_push_real(cz__pickle_machine *m, int argument);
cz_status cz__pickle_push_text(cz__pickle_machine *m, int argument);
cz_status cz__pickle_push_bytes(cz__pickle_machine *m, int argument);
cz_status cz__pickle_push_global(cz__pickle_machine *m, int argument);
cz_status cz__pickle_push_stack_global(cz__pickle_machine *m, int argument);

#endif
